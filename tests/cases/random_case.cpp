// SPDX-License-Identifier: MIT
// Random cases: lengths around the edges of tiles, head sizes with their extremes, every kind of
// pattern.
#include "tests/cases/random_case.h"

#include "kernels/attention/select.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
using attention_test::kBest;

constexpr int64_t kLengths[] = {1,  2,  7,  15,  16,  17,  31,  33, 63,
                                64, 65, 80, 100, 127, 128, 129, 193};
constexpr int64_t kHeadSizes[] = {8, 8, 16, 16, 24, 32, 32, 40, 64, 64, 72, 96, 128, 136, 192, 256};
constexpr int64_t kHeads[] = {1, 2, 3, 4, 6};
constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
// Pairs of one case times numbers of a head: what the definition takes some hundredths of a second
// for.
constexpr int64_t kWork = 4'000'000;

template <class T, std::size_t N>
T one_of(std::mt19937& random, const T (&list)[N]) {
  return list[pick(random, 0, static_cast<int64_t>(N) - 1)];
}

std::vector<RandomKind>& random_kinds() {
  static std::vector<RandomKind> rows;
  return rows;
}

bool is_drawn_whole(const std::string& kind) {
  return std::ranges::any_of(random_kinds(),
                             [&](const RandomKind& r) { return r.pattern && r.kind == kind; });
}

// The kinds that are drawn whole.
std::vector<RandomKind> drawn_whole() {
  std::vector<RandomKind> rows;
  for (const RandomKind& row : random_kinds())
    if (row.pattern) rows.push_back(row);
  return rows;
}

bool is_made_of_others(const std::string& kind) { return kind == "merged" || kind == "heads"; }

PatternSpec random_tree(std::mt19937& random, int64_t n, int heads, bool any_direction, int depth) {
  std::vector<std::string> kinds;
  for (const PatternKind& entry : patterns())
    if (!is_drawn_whole(entry.kind) && !entry.dynamic &&
        (depth < 2 || !is_made_of_others(entry.kind)))
      kinds.emplace_back(entry.kind);
  const std::string kind = kinds[pick(random, 0, std::ssize(kinds) - 1)];
  PatternSpec spec = random_spec(random, kind, n, any_direction);
  while (heads % spec.num_verts != 0) --spec.num_verts;
  if (kind == "fixed" && pick(random, 0, 2) == 0) {
    spec.vertsize = pick(random, 1, 3);
    spec.block = pick(random, 1, 8);
    spec.stride = spec.block * spec.vertsize * (spec.num_verts + pick(random, 0, 3));
  }
  if (is_made_of_others(kind)) {
    const int count = static_cast<int>(kind == "merged" ? pick(random, 2, 3)
                                                        : pick(random, 1, std::min(heads, 3)));
    for (int p = 0; p < count; ++p) {
      const int inner = kind == "merged" ? heads : (heads - p + count - 1) / count;
      spec.of.push_back(random_tree(random, n, inner, any_direction, depth + 1));
    }
  }
  if (pick(random, 0, 5) == 0)
    for (int64_t first = pick(random, 0, 20); first < n; first += pick(random, 1, 90))
      spec.documents.push_back(first);
  if (pick(random, 0, 5) == 0 && spec.length == 0) spec.length = pick(random, 1, n + 5);
  if (pick(random, 0, 2) == 0 && !make_pattern(spec, heads)->causal())
    spec.prefix = pick(random, 1, n + 5);
  return spec;
}

constexpr std::size_t kEnoughFailures = 5;
}  // namespace

SelftestCase make_selftest_case(uint32_t seed, bool cuda) {
  std::mt19937 random(seed);
  SelftestCase c;
  c.seed = seed;
  c.dtype = kTypes[pick(random, 0, cuda ? 2 : 3)];
  attention_test::Sizes& s = c.size;
  s.batch = pick(random, 1, 3);
  s.heads = one_of(random, kHeads);
  s.qk = one_of(random, kHeadSizes);
  s.v = pick(random, 0, 1) ? s.qk : one_of(random, kHeadSizes);
  const bool square = pick(random, 0, 3) != 0;
  int64_t keys = 0;
  do {
    s.time = one_of(random, kLengths);
    keys = square ? s.time : one_of(random, kLengths);
  } while (s.batch * s.heads * (s.qk + s.v) * s.time * keys > kWork);
  const std::vector<RandomKind> whole = drawn_whole();
  if (pick(random, 0, 4) == 0 && !whole.empty()) {
    const RandomKind& kind =
        whole.size() == 1 ? whole[0] : whole[pick(random, 0, std::ssize(whole) - 1)];
    c.kind = kind.kind;
    c.pattern = kind.pattern(random, {s.time, keys}, c.heads());
  } else {
    const PatternSpec spec = random_pattern(random, std::max(s.time, keys), c.heads(), true);
    c.kind = spec.kind;
    c.pattern = make_pattern(spec, c.heads());
    const Lengths longest = c.pattern->lengths();
    if (longest.queries) s.time = std::min(s.time, longest.queries);
    if (longest.keys) keys = std::min(keys, longest.keys);
  }
  s.keys = keys == s.time ? 0 : keys;
  c.edge = pick(random, 0, 2) ? kBest : pick(random, 0, 1) ? kTile : kSmallTile;
  c.segments = pick(random, 0, 3) == 0;
  return c;
}

int SelftestCase::first_head(int group) const {
  for (int head = 0; head < heads(); ++head)
    if (pattern->group(head) == group) return head;
  fail("groups: group ", group, " has no head");
}

std::string SelftestCase::text() const {
  return str(pattern->name(), ", ", name_of(dtype), ", batch ", size.batch, ", heads ", size.heads,
             " of ", size.qk, " and ", size.v, ", queries ", lengths().queries, ", keys ",
             lengths().keys, ", tiles ",
             edge == attention_test::kBest ? std::string("as they suit") : std::to_string(edge),
             segments ? ", segments" : "");
}

bool add_random_kind(RandomKind row) {
  random_kinds().push_back(std::move(row));
  return true;
}

int64_t pick(std::mt19937& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

PatternSpec random_spec(std::mt19937& random, const std::string& kind, int64_t n,
                        bool any_direction) {
  const auto from = [&](int64_t low, int64_t high) { return pick(random, low, high); };
  PatternSpec spec;
  spec.kind = kind;
  spec.stride = from(0, 1) ? from(1, 150) : from(1, 16);
  spec.c = from(1, from(1, spec.stride));
  spec.num_verts = from(1, spec.stride / spec.c);
  spec.causal = !any_direction || from(0, 1);
  for (const RandomKind& row : random_kinds())
    if (row.fields && row.kind == kind) row.fields(random, n, spec);
  return spec;
}

PatternSpec random_pattern(std::mt19937& random, int64_t n, int heads, bool any_direction) {
  for (;;) {
    try {
      PatternSpec spec = random_tree(random, n, heads, any_direction, 0);
      static_cast<void>(make_pattern(spec, heads));
      return spec;
    } catch (const Error& error) {  // unions of unions may have too many parts
      if (std::string(error.what()).find("a union of at most") == std::string::npos) throw;
    }
  }
}

std::vector<AttentionForm> check_case(Device& device, const SelftestCase& c) {
  check_enumeration(c);
  check_tile_maps(c);
  check_cache_rows(c);
  return check_kernels(device, c);
}

SelftestResult run_selftest(Device& device, const SelftestOptions& options, Progress& progress) {
  SelftestResult result;
  const Stopwatch watch(true);
  const AttentionForm form = attention::parse_form(options.form);
  const bool all = form == AttentionForm::automatic;
  if (!all && !device.is_cuda())
    fail("--form ", options.form, ": ", device.name, " has no CUDA kernels");
  const int64_t last = options.only ? 1 : options.cases;
  const uint32_t first = options.only ? *options.only : options.seed;
  for (uint32_t seed = first;
       result.failures.size() < kEnoughFailures && (last == 0 || result.cases < last) &&
       (seed == first || watch.seconds() < 60 * options.minutes);
       ++seed) {
    std::string text;
    try {
      const SelftestCase c = make_selftest_case(seed, device.is_cuda());
      text = c.text();
      if (options.only) progress.line(str("case ", seed, ": ", text));
      const auto forms = all ? check_case(device, c) : check_kernels(device, c, form);
      if (forms.empty() && options.only) fail(options.form, " does not cover it");
      if (forms.empty()) continue;
      ++result.cases;
      for (const AttentionForm ran : forms) ++result.ran[device.is_cuda() ? name_of(ran) : "cpu"];
      ++result.ran[c.kind];
      ++result.ran[name_of(c.dtype)];
    } catch (const Error& error) {
      ++result.cases;
      result.failures.push_back(str("case ", seed, " (", text, "): ", error.what(),
                                    "; alone: selftest --device ", device.name, " --case ", seed,
                                    all ? "" : " --form " + options.form));
      progress.line("FAILED " + result.failures.back());
    }
    progress.passing(str(result.cases, " cases, ", result.failures.size(), " failed, ",
                         duration_text(watch.seconds())));
  }
  progress.clear();
  return result;
}

void selftest(const SelftestOptions& options, std::ostream& out, Progress& progress) {
  const std::unique_ptr<Device> device = make_device(options.device);
  progress.line(str("attention on ", device->description(),
                    ": patterns, tiles, kernels, decoding, pictures"));
  const SelftestResult result = run_selftest(*device, options, progress);
  out << "cases by pattern, type and kernels:";
  for (const auto& [name, count] : result.ran) out << ' ' << name << ' ' << count;
  out << '\n';
  if (result.cases == 0)
    fail("selftest: no case that ", options.form, " covers on ", device->description());
  if (!result.failures.empty())
    fail("selftest FAILED on ", device->description(), ": ", result.failures.size(), " of ",
         result.cases, " cases; first: ", result.failures.front());
  out << "selftest passed on " << device->description() << ": " << result.cases << " cases"
      << std::endl;
}
}  // namespace weft
