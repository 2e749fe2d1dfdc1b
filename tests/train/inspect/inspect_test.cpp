// SPDX-License-Identifier: MIT
// Counts of the report against their definitions, and the program as a user calls it.
#include "kernels/attention/select.h"
#include "kernels/forms.h"
#include "src/parts/parts.h"
#include "tests/src/patterns/pattern_testing.h"
#include "tests/temp_dir.h"
#include "tests/train/shell_test.h"
#include "train/inspect/key_counts.h"
#include "train/inspect/report.h"
#include "train/program/counts.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft {
namespace {
namespace fs = std::filesystem;

// Of one group of heads, from the predicate alone.
void check_counts(const RandomCase& c, const AttentionCounts& counts) {
  int64_t needed = 0, executed = 0;
  for (const int64_t h : counts.heads) {
    const auto head = static_cast<int>(h);
    int64_t least = c.n + 1, most = 0, cache_rows = 0;
    std::vector<int64_t> last(c.n, -1);
    for (int64_t i = 0; i < c.n; ++i) {
      int64_t keys = 0;
      for (int64_t j = 0; j < c.n; ++j)
        if (c.pattern->attends(head, i, j)) ++keys, last[j] = i;
      needed += keys;
      least = std::min(least, keys);
      most = std::max(most, keys);
    }
    for (int64_t i = 0; i < c.n; ++i)
      cache_rows = std::max<int64_t>(cache_rows, std::count_if(last.begin(), last.begin() + i + 1,
                                                               [&](int64_t q) { return q >= i; }));
    const KeyCounts keys = count_keys(*c.pattern, head, c.n);
    EXPECT_EQ(keys.least, least);
    EXPECT_EQ(keys.most, most);
    EXPECT_EQ(keys.cache_rows, c.pattern->causal() ? cache_rows : 0);
    std::vector<PatternPart> parts;
    c.pattern->parts(head, parts);
    for (const PatternPart& part : parts)
      executed += build_best_tables(*part.pattern, part.head, c.n, 64).pairs.executed;
  }
  EXPECT_EQ(counts.pairs.needed, needed);
  EXPECT_EQ(counts.pairs.executed, executed);
  EXPECT_GT(counts.table_bytes, 0u);
}

TEST(InspectCounts, EqualTheDefinitions) {
  std::mt19937 random(5);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const RandomCase c = random_case(random);
    if (c.n > 130) continue;
    SCOPED_TRACE(c.text());
    std::size_t heads = 0;
    for (const AttentionCounts& counts : count_attention(*c.pattern, c.heads, c.n, {})) {
      check_counts(c, counts);
      heads += counts.heads.size();
    }
    EXPECT_EQ(heads, static_cast<std::size_t>(c.heads));
  }
}

TEST(InspectCounts, CacheRowsOfKnownPatterns) {
  const auto rows = [](const PatternSpec& spec) {
    return count_keys(*make_pattern(spec, 4), 0, 1024).cache_rows;
  };
  EXPECT_EQ(rows({"all"}), 1024);
  EXPECT_EQ(rows({"local", 128}), 128);
  EXPECT_EQ(rows({"strided", 128}), 1024 - 127);  // a column is done when its last position is
  EXPECT_EQ(rows({"fixed", 128, 32}), 7 * 32 + 128);
}

// The kernels that would run: as attention.cu chooses them.
TEST(InspectCounts, NameTheFormOfEachDevice) {
  const auto pattern = make_pattern({"local", 128}, 2);
  const auto form = [&](const AttentionTarget& target) {
    return count_attention(*pattern, 2, 512, target).at(0).form_text();
  };
  EXPECT_EQ(form({64, 64, DType::bf16, 0}), "cpu");
  EXPECT_EQ(form({64, 64, DType::f32, 80}), "simple");
  EXPECT_EQ(form({64, 64, DType::bf16, 80}), "general");
  if (kBuiltForSm90a && attention::added_kernel(attention::Kernel::hopper_band)) {
    EXPECT_EQ(form({64, 64, DType::bf16, 90}), "hopper/band");
    EXPECT_EQ(form({64, 64, DType::bf16, 90, true}), "hopper/band");
  }
  EXPECT_EQ(count_attention(*pattern, 2, 512, {}).at(0).edges_text(), "64");
}

TEST(InspectText, Numbers) {
  EXPECT_EQ(numbers_text({}), "");
  EXPECT_EQ(numbers_text({3}), "3");
  EXPECT_EQ(numbers_text({3, 4}), "3, 4");
  EXPECT_EQ(numbers_text({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(numbers_text({0, 2, 4, 6}), "0, 2 .. 6");
  EXPECT_EQ(numbers_text({0, 1, 2, 7, 8, 9, 20}), "0-2, 7-9, 20");
  EXPECT_EQ(grouped_digits(0), "0");
  EXPECT_EQ(grouped_digits(999), "999");
  EXPECT_EQ(grouped_digits(-123456), "-123,456");
  EXPECT_EQ(grouped_digits(12345678), "12,345,678");
  EXPECT_EQ(text_table({{"a", "bb"}, {"ccc", "d"}}, 1), "  a    bb\n  ccc   d\n");
}

class Inspect : public testing::Test {
 protected:
  Inspect()
      : folder_(fs::temp_directory_path() / str("weft_inspect_test_", ::getpid())) {
    fs::create_directories(folder_);
    std::ofstream(path("small.yaml")) << R"(
name: small
model:
  vocab: 256
  context: 64
  layers: 3
  width: 32
  heads: 2
  position_axes: [8, 8]
  attention:
    - {kind: fixed, stride: 8, c: 2, num_verts: 2}
    - {kind: local, stride: 8}
train:
  batch: 2
)";
  }

  ~Inspect() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  InspectOptions options() const {
    InspectOptions o;
    o.config = path("small.yaml");
    o.device = "cpu";
    return o;
  }

  static std::string output(const InspectOptions& o) {
    std::ostringstream out;
    inspect(o, out);
    return out.str();
  }

  static std::string error(const InspectOptions& o) {
    try {
      output(o);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  fs::path folder_;
};

// Pairs in tiles and the share that is not needed depend on whether there are kernels for tiles of
// 16; without them tables have tiles of 64.
std::string by_edge(const char* of_16, const char* of_64) {
  return attention::added_kernel(attention::Kernel::general_small_tiles) ? of_16 : of_64;
}

TEST_F(Inspect, ReportHasEachPart) {
  const std::string text = output(options());
  const std::string fixed = "fixed(stride 8, c 2, num_verts 2)           736  " +
                            by_edge("   2,560  3.478", "   8,192  11.130") +
                            "   17.97%            1  11.5    22          22    " +
                            by_edge("16", "64") + "   cpu  ";
  for (const std::string& part :
       {std::string("small, sparse_transformer, 3 layers, width 32, 2 heads, context 64\n"),
        std::string("  blocks.0-2.mlp.up.weight          128 x 32  12,288\n"),
        std::string("  all                                         55,104\n"),
        std::string("\n  none (this config)  "), std::string("\n  block "),
        std::string("FLOPs a token"), "\n  0, 2    0      " + fixed, "\n  0, 2    1      " + fixed,
        "\n  1       0, 1   local(stride 8)                             968  " +
            by_edge("   3,584  3.702", "   8,192   8.463") +
            "   11.82%            1   7.6     8           8    " + by_edge("16", "64") +
            "   cpu  "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
}

TEST_F(Inspect, PatternOfAHeadIsDrawnAndWritten) {
  InspectOptions o = options();
  o.pattern = "2,1";
  o.length = 10;
  o.mask_out = path("m.npy");
  const std::string text = output(o);
  EXPECT_NE(text.find("layer 2, head 1: fixed(stride 8, c 2, num_verts 2), 10 positions"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\nwhat position 5 (O) sees, positions in rows of 8\n#####O..\n..\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\n########..\n....##..#.\n....##..##\n"), std::string::npos) << text;
  EXPECT_EQ(fs::file_size(path("m.npy")), 128u + 100u);
}

TEST_F(Inspect, PatternsWithoutAConfig) {
  InspectOptions o;
  o.device = "cpu";
  o.attention = "{kind: local, stride: 3, causal: false}";
  o.heads = 2;
  o.pattern = "0,1";
  o.length = 4;
  o.keys = 6;
  o.position = 3;
  o.grid = {2, 3};
  const std::string text = output(o);
  EXPECT_TRUE(text.starts_with("head 1: local(stride 3, bidirectional), 4 positions, 6 keys\n"))
      << text;
  for (const char* part : {"\n  1      local(stride 3, bidirectional)            17 ", "  70.83% ",
                           "\nwhat position 3 sees, positions in rows of 3\n.##\n###\n",
                           "\nwhat position 3 sees, on an image of 2 x 3\n.##\n###\n",
                           "\nrows: queries, columns: keys\n###...\n####..\n#####.\n.#####\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
}

TEST_F(Inspect, MistakesWithoutAConfigAreNamed) {
  InspectOptions o;
  EXPECT_TRUE(error(o).starts_with("inspect looks at --config FILE, or at a pattern alone"))
      << error(o);
  o.attention = "{kind: local, stride: 3}";
  EXPECT_EQ(error(o), "--attention needs --length, the number of positions");
  o.length = 10;
  o.keys = 0;
  EXPECT_EQ(error(o), "--keys must be between 1 and 1073741824, got 0");
  o.keys.reset();
  o.columns = 0;
  EXPECT_EQ(error(o), "--columns must be at least 1, got 0");
  o.columns.reset();
  o.grid = {3, 3};
  EXPECT_EQ(error(o),
            "--grid has 9 places for 10 positions: H * W * C must be at least that, and at most "
            "1073741824");
  o.grid = {10};
  EXPECT_EQ(error(o), "--grid takes H,W or H,W,C with sizes of at least 1, for example 32,32,3");
  o.grid.clear();
  o.heads = 0;
  EXPECT_EQ(error(o), "--heads must be between 1 and 65536, got 0");
  o.heads = 2;
  o.pattern = "0,2";
  EXPECT_EQ(
      error(o),
      "--pattern takes LAYER,HEAD with a layer from 0 to 0 and a head from 0 to 1, got '0,2'");
  o.attention = "{kind: lokal}";
  EXPECT_TRUE(error(o).starts_with("--attention:1: pattern.kind: expected")) << error(o);
  o.config = path("small.yaml");
  EXPECT_TRUE(error(o).starts_with("inspect looks at --config FILE, or at a pattern alone"))
      << error(o);
}

TEST_F(Inspect, MemoryIsThatOfAMicroBatch) {
  InspectOptions o = options();
  o.overrides = {"train.batch=6", "train.accumulation=3"};
  EXPECT_CONTAINS(output(o), "\nmemory for training, 2 x 64 tokens at a time, ");
}

// A config that no model could be trained with.
TEST_F(Inspect, ShowsPatternsThatAreNotCausal) {
  InspectOptions o = options();
  o.overrides = {"model.attention={kind: all, causal: false}"};
  EXPECT_NE(output(o).find("all(bidirectional)"), std::string::npos);
  o.pattern = "0,0";
  o.length = 2;
  EXPECT_NE(output(o).find("\n##\n##\n"), std::string::npos);
}

TEST_F(Inspect, MistakesAreNamed) {
  InspectOptions o = options();
  for (const char* wrong :
       {"3,0", "0,2", "-1,0", "0", "a,b", "0,0,0", "0,0x", "99999999999999999999,0"}) {
    o.pattern = wrong;
    EXPECT_EQ(
        error(o),
        str("--pattern takes LAYER,HEAD with a layer from 0 to 2 and a head from 0 to 1, got '",
            wrong, "'"));
  }
  o = options();
  o.png = path("p.png");
  EXPECT_EQ(error(o),
            "--png, --mask-out, --position, --columns and --grid draw one head: add --pattern "
            "LAYER,HEAD");
  o = options();
  o.pattern = "0,0";
  o.position = 64;
  EXPECT_EQ(error(o), "--position must be between 0 and 63 (the length is 64), got 64");
  o = options();
  o.length = 0;
  EXPECT_EQ(error(o), "--length must be between 1 and 1073741824, got 0");
  o.length = kMaxPositions + 1;
  EXPECT_EQ(error(o), "--length must be between 1 and 1073741824, got 1073741825");
  o = options();
  o.pattern = "0,0";
  o.length = 32769;
  o.mask_out = path("m.npy");
  EXPECT_TRUE(error(o).starts_with("a mask file holds one byte for each of length * length pairs"))
      << error(o);
  EXPECT_FALSE(fs::exists(path("m.npy")));
}

TEST_F(Inspect, TilesAndExplanationsOfAHead) {
  InspectOptions o = options();
  o.tiles = "2,1";
  o.edge = 16;
  EXPECT_TRUE(output(o).starts_with(
      "layer 2, head 1: fixed(stride 8, c 2, num_verts 2), 64 positions\n\n  tiles     4 of"))
      << output(o);
  EXPECT_CONTAINS(output(o), "of keys, each 16 x 16 pairs\n");
  o.edge = 64;
  EXPECT_CONTAINS(output(o), "of keys, each 64 x 64 pairs\n");
  o.png = path("tiles.png");
  EXPECT_TRUE(output(o).ends_with(str("\nwrote ", o.png, "\n"))) << output(o);
  EXPECT_GT(fs::file_size(o.png), 1000u);
  o = options();
  o.explain = "1,0";
  o.length = 20;
  o.query = 11;
  EXPECT_CONTAINS(output(o), "layer 1, head 0: local(stride 8), 20 positions, query 11\n");
  EXPECT_CONTAINS(output(o), "\n  4-11: 8 keys\n");
  o = {};
  o.device = "cpu";
  o.attention = "{kind: strided, stride: 3}";
  o.tiles = "0,0";
  o.length = 30;
  o.keys = 40;
  EXPECT_CONTAINS(output(o), "head 0: strided(stride 3), 30 positions, 40 keys\n");
}

TEST_F(Inspect, KernelsOfAGpuThatIsNotThere) {
  InspectOptions o = options();
  o.arch = "sm_80";
  o.overrides = {"precision=bf16"};
  EXPECT_EQ(output(o),
            "kernels of attention on sm_80: 2 x 64 positions, 2 heads of 16, bf16\n"
            "\nlayers 0, 2: fixed(stride 8, c 2, num_verts 2)\n" +
                by_edge("  pass  heads  band  forward              backward             edge\n"
                        "  1     0, 1   -     general/small_tiles  general/small_tiles    16\n",
                        "  pass  heads  band  forward  backward  edge\n"
                        "  1     0, 1   -     general  general     64\n") +
                "\nlayer 1: local(stride 8)\n" +
                by_edge("  pass  heads  band               forward              backward           "
                        "  edge\n  1     0, 1   stride 1, reach 8  general/small_tiles  "
                        "general/small_tiles    16\n",
                        "  pass  heads  band               forward  backward  edge\n"
                        "  1     0, 1   stride 1, reach 8  general  general     64\n"));
  o.batch = 3;
  EXPECT_CONTAINS(output(o), ": 3 x 64 positions, ");
  o = {};
  o.attention = "{kind: all}";
  o.length = 500;
  o.arch = "sm_80";
  EXPECT_CONTAINS(output(o), ": 1 x 500 positions, 1 head of 64, bf16\n\nall\n");
  o.attention = "{kind: merged, of: [{kind: local, stride: 64}, {kind: strided, stride: 50}]}";
  EXPECT_CONTAINS(output(o), "\n  pass 1: local(stride 64)\n  pass 2: strided(stride 50) ");
}

TEST_F(Inspect, NothingIsPrintedBeforeAnError) {
  InspectOptions o = options();
  o.tiles = "0,0";
  o.png = path("nowhere/tiles.png");
  std::ostringstream out;
  EXPECT_THROW(inspect(o, out), Error);
  EXPECT_EQ(out.str(), "");
}

TEST_F(Inspect, MistakesOfOutputsAreNamed) {
  const auto error_of = [&](const auto& set) {
    InspectOptions o = options();
    set(o);
    return error(o);
  };
  EXPECT_EQ(error_of([](auto& o) { o.tiles = "0,9"; }),
            "--tiles takes LAYER,HEAD with a layer from 0 to 2 and a head from 0 to 1, got '0,9'");
  EXPECT_EQ(error_of([](auto& o) { o.explain = "x"; }),
            "--explain takes LAYER,HEAD with a layer from 0 to 2 and a head from 0 to 1, got 'x'");
  EXPECT_EQ(error_of([](auto& o) { o.pattern = o.explain = "0,0"; }),
            "--pattern and --explain are two outputs: give one");
  EXPECT_EQ(error_of([](auto& o) { o.tiles = "0,0", o.arch = "sm_80"; }),
            "--tiles and --arch are two outputs: give one");
  EXPECT_EQ(error_of([](auto& o) { o.query = 1; }), "--query goes with --explain LAYER,HEAD");
  EXPECT_EQ(error_of([](auto& o) { o.edge = 16; }),
            "--edge goes with --tiles or --explain LAYER,HEAD");
  EXPECT_EQ(error_of([](auto& o) { o.tiles = "0,0", o.edge = 32; }),
            "--edge must be 64 or 16, got 32");
  EXPECT_EQ(error_of([](auto& o) { o.tiles = "0,0", o.position = 3; }),
            "--mask-out, --position, --columns and --grid go with --pattern LAYER,HEAD");
  EXPECT_EQ(error_of([this](auto& o) { o.explain = "0,0", o.png = path("x.png"); }),
            "--png goes with --tiles or --pattern LAYER,HEAD");
  EXPECT_EQ(error_of([](auto& o) { o.batch = 3; }), "--batch goes with --arch");
  EXPECT_EQ(error_of([](auto& o) { o.arch = "sm_80", o.batch = 0; }),
            "--batch must be between 1 and 1048576, got 0");
  EXPECT_CONTAINS(error_of([](auto& o) { o.explain = "0,0", o.length = 513; }),
                  "of at most 512 positions, got 513");
}

// To count the pairs of so many positions takes minutes and more.
TEST_F(Inspect, MistakesAreNamedBeforePairsAreCounted) {
  const auto began = std::chrono::steady_clock::now();
  InspectOptions o;
  o.device = "cpu";
  o.attention = "{kind: strided, stride: 1000}";
  o.length = int64_t{1} << 26;
  o.mask_out = path("m.npy");
  EXPECT_CONTAINS(error(o), "length must be between 1 and 32768, got 67108864");
  o.mask_out.clear();
  o.position = *o.length;
  EXPECT_CONTAINS(error(o), "--position must be between 0 and 67108863");
  o.position.reset();
  o.grid = {10};
  EXPECT_CONTAINS(error(o), "--grid takes H,W or H,W,C");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

// What the program prints, both streams, and its exit code.
std::pair<std::string, int> called(const std::string& arguments) {
  FILE* pipe = ::popen(str(WEFT_TEST_BIN, "/inspect ", arguments, " 2>&1").c_str(), "r");
  std::string text;
  char buffer[4096];
  for (std::size_t count; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    text.append(buffer, count);
  const int status = ::pclose(pipe);
  return {text, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

TEST_F(Inspect, ProgramLeavesWithOneLineOnErrors) {
  const auto [drawn, good] =
      called(str("--config ", path("small.yaml"), " --set model.context=32 --pattern 1,0"));
  EXPECT_EQ(good, 0) << drawn;
  EXPECT_TRUE(drawn.starts_with("layer 1, head 0: local(stride 8), 32 positions\n")) << drawn;
  EXPECT_NE(drawn.find("\n  0      local(stride 8)           228  " +
                       by_edge("     768  3.368", "   4,096  17.965") + "   22.27%"),
            std::string::npos)
      << drawn;
  for (const std::string& arguments :
       {std::string(), std::string("--config nowhere.yaml"),
        std::string("--attention '{kind: strided}'"), std::string("--confg x"),
        str("--config ", path("small.yaml"), " --pattern 9,9")}) {
    const auto [text, code] = called(arguments);
    EXPECT_EQ(code, 1) << arguments;
    EXPECT_TRUE(text.starts_with("error: ")) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  }
  EXPECT_EQ(called("--help").second, 0);
}

TEST(InspectText, ShowsWhatTheModelIsTold) {
  if (const std::string absent = absent_part_text("augment"); !absent.empty())
    GTEST_SKIP() << absent;
  const auto report = [](const std::vector<std::string>& overrides) {
    std::ostringstream out;
    InspectOptions options;
    options.config = "c10_2m.yaml";
    options.overrides = overrides;
    options.device = "cpu";
    inspect(options, out);
    return out.str();
  };
  const std::string told = report({"augment.rotation=true", "augment.jigsaw=2"});
  EXPECT_CONTAINS(told, "the start vector is the sum of one row for each kind");
  EXPECT_CONTAINS(told, "jigsaw        24           4-27");
  EXPECT_CONTAINS(told, "28 x 64");
  EXPECT_CONTAINS(report({"augment.rotation=true", "augment.conditional=false"}),
                  "not conditioned on its augmentations");
  EXPECT_EQ(report({}).find("conditions"), std::string::npos);
}

// --length alone: as many keys, whatever the pattern is made for.
TEST(InspectText, PartOfAPatternOfOneSize) {
  if (const std::string absent = absent_part_text("convolution"); !absent.empty())
    GTEST_SKIP() << absent;
  const auto output = [](const InspectOptions& options) {
    std::ostringstream out;
    inspect(options, out);
    return out.str();
  };
  InspectOptions o;
  o.device = "cpu";
  o.attention = "{kind: convolution, grid: [4, 4], filter: [3, 3]}";
  EXPECT_CONTAINS(output(o),
                  "head 0: convolution(grid [4, 4], filter [3, 3], step 1), 16 positions\n");
  o.length = 8;
  EXPECT_CONTAINS(output(o),
                  "head 0: convolution(grid [4, 4], filter [3, 3], step 1), 8 positions\n");
}

using InspectProgram = ShellTest;

TEST_F(InspectProgram, NIsTheLength) {
  EXPECT_EQ(shell("inspect --attention '{kind: local, stride: 4}' --tiles 0,0 --n 20"), 0) << err_;
  EXPECT_CONTAINS(out_, "head 0: local(stride 4), 20 positions\n");
}

TEST_F(InspectProgram, AMaskGoesIntoAPipe) {
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(shell("inspect --attention '{kind: local, stride: 4}' --length 8 --device cpu "
                  "--mask-out pipe > /dev/null & timeout 20 cat pipe | wc -c"),
            0)
      << err_;
  EXPECT_EQ(out_, "192\n") << "128 of the header, 64 of the mask";
}

TEST_F(InspectProgram, KeepsWhatItReads) {
  const std::string inspect = "inspect --config small.yaml --device cpu --pattern 0,0 ";
  expect_kept(inspect + "--mask-out small.yaml", "small.yaml");
  expect_kept(inspect + "--mask-out m --png m", "small.yaml", "--png and --mask-out name one file");
}

// A second and a half here, of which the model takes a tenth; minutes while adding one looked at
// all names.
TEST_F(InspectProgram, ManyLayersAreSeenAtOnce) {
  EXPECT_EQ(shell("timeout 20 inspect --config small.yaml --device cpu --set model.layers=10000"),
            0)
      << err_;
  EXPECT_CONTAINS(out_, "blocks.0-9999.attention.");
}
}  // namespace
}  // namespace weft
