// SPDX-License-Identifier: MIT
// Patterns against their definitions: runs == attends(), pair counts == closed forms, errors ==
// texts.
#include "src/attention_maps.h"
#include "src/config/fields.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "tests/src/patterns/drawings.h"
#include "tests/src/patterns/pattern_testing.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace weft {
namespace {
// Drawings made by hand (tests/golden/patterns) are the witness of the definitions.
TEST(Pattern, EqualsTheDrawingsMadeByHand) {
  std::set<std::string> drawn;
  for (const Drawing& d : drawings()) {
    SCOPED_TRACE(d.file);
    const auto pattern = make_pattern(d.spec, d.heads);
    const auto n = static_cast<int64_t>(d.text.find('\n'));
    std::string text;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) text += pattern->attends(d.head, i, j) ? '#' : '.';
      text += '\n';
    }
    EXPECT_EQ(text, d.text);
    drawn.insert(d.spec.kind);
  }
  for (const PatternKind& entry : patterns())
    EXPECT_TRUE(entry.dynamic || drawn.contains(entry.kind)) << "no drawing of " << entry.kind;
}

TEST(Pattern, RunsNameTheAttendedKeys) {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 400; ++repeat) {
    const RandomCase c = random_case(random, true);
    SCOPED_TRACE(c.text());
    expect_exact_runs(*c.pattern, c.head, c.n);
    if (testing::Test::HasFailure()) return;
  }
}

// Lengths besides that of a case: bands are often those of multiples of a stride alone.
constexpr int64_t kBandLengths[] = {1, 2, 12, 60, 64, 96, 128, 240};

int expect_exact_bands_of(const AttentionPattern& pattern, int head, int64_t n) {
  int bands = expect_exact_bands(pattern, head, n);
  for (const int64_t length : kBandLengths)
    if (pattern.lengths().keys == 0 || length <= pattern.lengths().keys)
      bands += expect_exact_bands(pattern, head, length);
  return bands;
}

TEST(Pattern, AttendsAndBandsAreTheDefinition) {
  std::mt19937 random(5);
  int bands = 0;
  for (int repeat = 0; repeat < 500; ++repeat) {
    const RandomCase c = random_case(random, true);
    SCOPED_TRACE(c.text());
    expect_defined(c.spec, *c.pattern, c.head, c.n);
    bands += expect_exact_bands_of(*c.pattern, c.head, c.n);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(bands, 100);
}

TEST(Pattern, DrawnOnesAttendTheirDefinition) {
  int bands = 0;
  for (const Drawing& d : drawings()) {
    SCOPED_TRACE(d.file);
    const auto pattern = make_pattern(d.spec, d.heads);
    const Lengths most = pattern->lengths(),
                  n{most.queries ? most.queries : 200, most.keys ? most.keys : 200};
    for (int head = 0; head < d.heads; ++head) {
      if (d.spec.kind != "layout") expect_defined(d.spec, *pattern, head, n);
      expect_exact_runs(*pattern, head, n);
      if (n.queries == n.keys) bands += expect_exact_bands_of(*pattern, head, n.queries);
    }
  }
  EXPECT_GT(bands, 20);
}

// A band that is wrong in any of its numbers is found.
TEST(Pattern, AWrongBandIsFound) {
  class Wrong : public AttentionPattern {
   public:
    explicit Wrong(Band band)
        : band_(band) {}

    std::string name() const override { return "wrong"; }

    bool attends(int, int64_t i, int64_t j) const override {
      return Band{.stride = 4, .reach = 3, .skip = 1}.attends(i, j);
    }

    void key_runs(int, int64_t, std::vector<KeyRun>&) const override {}

    Band band(int, int64_t) const override { return band_; }

   private:
    Band band_;
  };

  for (const Band band :
       {Band{2, 3, 1}, Band{4, 2, 1}, Band{4, 4, 1}, Band{4, 3, 0}, Band{4, 3, 2}})
    EXPECT_NONFATAL_FAILURE(expect_exact_bands(Wrong(band), 0, 16), "errs");
  EXPECT_EQ(expect_exact_bands(Wrong({4, 3, 1}), 0, 16), 1);
}

// Equal names share tables: a field that makes a difference is in the name.
TEST(Pattern, EqualNamesAreEqualPatterns) {
  std::mt19937 random(9);
  int changed_names = 0;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const RandomCase c = random_case(random, true);
    for (const std::string& field : fields_read(c.spec)) {
      PatternSpec changed = c.spec;
      for_each_pattern_field(changed, [&](const Field& f) {
        if (f.key != field) return;
        if (auto* const* number = std::get_if<int64_t*>(&f.value)) ++**number;
        if (auto* const* flag = std::get_if<bool*>(&f.value)) **flag = !**flag;
        if (auto* const* seed = std::get_if<uint64_t*>(&f.value)) ++**seed;
        if (auto* const* list = std::get_if<std::vector<int64_t>*>(&f.value))
          (*list)->push_back(f.key == "documents" && !(*list)->empty() ? (*list)->back() + 1 : 1);
      });
      std::unique_ptr<AttentionPattern> other;
      try {
        other = make_pattern(changed, c.heads);
      } catch (const Error&) {
        continue;
      }  // no such pattern
      changed_names += other->name() != c.pattern->name();
      if (other->name() != c.pattern->name()) continue;
      SCOPED_TRACE(str(c.text(), ", ", field, " changed"));
      for (int64_t i = 0; i < c.n; i += 7)
        for (int64_t j = 0; j < c.n; ++j)
          ASSERT_EQ(other->attends(c.head, i, j), c.pattern->attends(c.head, i, j))
              << i << ", " << j;
    }
  }
  EXPECT_GT(changed_names, 200);
}

TEST(Pattern, HeadsOfAGroupSeeTheSameKeys) {
  std::mt19937 random(2);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const RandomCase c = random_case(random, true);
    SCOPED_TRACE(c.text());
    const int groups = c.pattern->groups(c.heads);
    std::vector<int> heads_of(groups, 0);
    for (int h = 0; h < c.heads; ++h) {
      ASSERT_GE(c.pattern->group(h), 0);
      ASSERT_LT(c.pattern->group(h), groups);
      ++heads_of[c.pattern->group(h)];
      if (c.pattern->group(h) != c.pattern->group(c.head)) continue;
      for (int64_t i = 0; i < c.n; i += 13)
        for (int64_t j = 0; j < c.n; ++j)
          ASSERT_EQ(c.pattern->attends(h, i, j), c.pattern->attends(c.head, i, j))
              << i << ", " << j;
    }
    for (const int count : heads_of) EXPECT_GT(count, 0);
  }
}

int64_t needed(const PatternSpec& spec, int64_t n) {
  return build_tile_tables(*make_pattern(spec, 4), 0, n).pairs.needed;
}

TEST(Pattern, PairsEqualTheClosedForms) {
  for (const int64_t n : {256, 3072, 12288}) {
    const int64_t s = 128, blocks = n / s, length = n / s;  // blocks of s, columns of n / s
    EXPECT_EQ(needed({"all"}, n), n * (n + 1) / 2);
    EXPECT_EQ(needed({"local", s}, n), s * n - s * (s - 1) / 2);
    EXPECT_EQ(needed({"strided", s}, n), n * (length + 1) / 2);
    for (const int64_t c : {8, 32})
      for (const int64_t num_verts : {1, 4})
        EXPECT_EQ(needed({"fixed", s, c, num_verts}, n),
                  n * (s + 1) / 2 + n * c * (blocks - 1) / 2);
  }
}

TEST(Pattern, NeededPairsAreThoseOfTheTiles) {
  std::mt19937 random(4);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const RandomCase c = random_case(random);
    const int64_t of_tiles = build_tile_tables(*c.pattern, c.head, c.n).pairs.needed;
    EXPECT_EQ(needed_pairs(*c.pattern, c.head, c.n), of_tiles) << c.text();
  }
}

TEST(Pattern, TilesHoldFewPairsThatNobodyNeeds) {
  const auto waste = [](const PatternSpec& spec, int head = 0, int64_t n = 12288) {
    return PackedMaps(*make_pattern(spec, 8), 8, n, 64).pairs(head).waste();
  };
  PatternSpec merged{"merged"};
  merged.of = {{"local", 128}, {"strided", 128}};
  EXPECT_LE(waste({"all"}), 1.02);
  EXPECT_LE(waste({"local", 128}), 2.0);
  EXPECT_LE(waste({"strided", 128}), 2.6);
  EXPECT_LE(waste({"fixed", 128, 32}), 1.1);
  EXPECT_LE(waste({"fixed", 128, 8}), 1.2);
  EXPECT_LE(waste(merged), 2.0);
  for (const int head : {0, 1, 2, 3})
    EXPECT_LE(waste({"fixed", 128, 32, 4}, head), 1.1) << "head " << head;
  // One position more than whole tiles, one less, and columns of half a tile.
  EXPECT_LE(waste({"strided", 128}, 0, 128 * 64 + 1), 2.1);
  EXPECT_LE(waste({"strided", 128}, 0, 128 * 64 - 1), 2.1);
  EXPECT_LE(waste({"strided", 128}, 0, 128 * 63), 2.1);
  EXPECT_LE(waste({"strided", 128}, 0, 128 * 96 + 1), 2.3);
  EXPECT_LE(waste({"strided", 128}, 0, 128 * 32), 4.0);
}

TEST(Pattern, NamesTellPatternsApart) {
  EXPECT_EQ(make_pattern({"all"}, 2)->name(), "all");
  EXPECT_EQ(make_pattern({"local", 5}, 2)->name(), "local(stride 5)");
  EXPECT_EQ(make_pattern({"strided", 6}, 2)->name(), "strided(stride 6)");
  EXPECT_EQ(make_pattern({"fixed", 128, 32, 2}, 2)->name(), "fixed(stride 128, c 32, num_verts 2)");
  const auto name = [](const char* yaml) {
    return make_pattern(parse_pattern(yaml, "here"), 2)->name();
  };
  EXPECT_EQ(name("{kind: local, stride: 5, causal: false}"), "local(stride 5, bidirectional)");
  EXPECT_EQ(name("{kind: all, causal: false, prefix: 7}"), "all(bidirectional) with prefix 7");
  EXPECT_EQ(name("{kind: all, documents: [4, 9], length: 12}"),
            "all with documents 4 9, length 12");
  EXPECT_EQ(name("{kind: heads, of: [{kind: all}, {kind: merged, of: [{kind: local, stride: 2}, "
                 "{kind: strided, "
                 "stride: 4}]}]}"),
            "heads(all, merged(local(stride 2), strided(stride 4)))");
  EXPECT_EQ(name("{kind: fixed, stride: 12, block: 2, vertsize: 3}"),
            "fixed(stride 12, c 6, num_verts 1)");
}

std::string spec_error(const PatternSpec& spec, int heads) {
  try {
    make_pattern(spec, heads);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string known_kinds() {
  std::vector<std::string> kinds;
  for (const PatternKind& entry : patterns()) kinds.emplace_back(entry.kind);
  return joined(kinds);
}

TEST(Pattern, ErrorsNameTheField) {
  EXPECT_EQ(spec_error({"strid"}, 8), str("unknown attention pattern 'strid'; known: ",
                                          known_kinds(), "; did you mean 'strided'?"));
  EXPECT_EQ(spec_error({"axial"}, 8),
            str("unknown attention pattern 'axial'; known: ", known_kinds()));
  EXPECT_EQ(spec_error({"local", 0}, 8),
            "attention pattern 'local': stride must be between 1 and 1073741824, got 0");
  EXPECT_EQ(spec_error({"strided", -3}, 8),
            "attention pattern 'strided': stride must be between 1 and 1073741824, got -3");
  EXPECT_EQ(spec_error({"fixed", 0}, 8),
            "attention pattern 'fixed': stride must be between 1 and 1073741824, got 0");
  EXPECT_EQ(spec_error({"fixed", 128, 0}, 8),
            "attention pattern 'fixed': c must be between 1 and 1073741824, got 0");
  EXPECT_EQ(spec_error({"fixed", 128, 32, 0}, 8),
            "attention pattern 'fixed': num_verts must be between 1 and 1073741824, got 0");
  EXPECT_EQ(
      spec_error({"fixed", 128, 32, 5}, 10),
      "attention pattern 'fixed': num_verts sub-blocks of c positions must fit into a block of "
      "stride "
      "positions, "
      "got num_verts 5 * c 32 > stride 128; with this stride and c, num_verts can be at most 4");
  EXPECT_EQ(spec_error({"fixed", 128, 200}, 8),
            "attention pattern 'fixed': num_verts sub-blocks of c positions must fit into a block "
            "of stride "
            "positions, "
            "got num_verts 1 * c 200 > stride 128; with this stride and c, c can be at most 128");
  EXPECT_EQ(spec_error({"fixed", 128, 32, 3}, 8),
            "attention pattern 'fixed': heads must be a multiple of num_verts, got heads 8 and "
            "num_verts 3");
  EXPECT_NE(spec_error({"all"}, 0), "no error");
  EXPECT_EQ(spec_error({"fixed", 128, 128}, 8), "no error");
}

TEST(Names, TheNearestIsSuggested) {
  const std::vector<std::string> known = {"stride", "heads", "num_verts", "c"};
  EXPECT_EQ(nearest_name("strid", known), "stride");
  EXPECT_EQ(nearest_name("head", known), "heads");
  EXPECT_EQ(nearest_name("xbc", {"abcd"}), "abcd") << "2 of 4 letters, the longer one counts";
  EXPECT_EQ(nearest_name("numverts", known), "num_verts");
  EXPECT_EQ(nearest_name("learning_rate", known), "");
  EXPECT_EQ(nearest_name("reco", {"eps", "record_every", "recompute"}), "recompute")
      << "it begins so";
  EXPECT_EQ(nearest_name("b", {"a", "c"}), "a");
  EXPECT_EQ(nearest_name("", {}), "");
}
}  // namespace
}  // namespace weft
