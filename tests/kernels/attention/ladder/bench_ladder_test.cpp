// SPDX-License-Identifier: MIT
// bench ladder: its rows and its picture, and that a wrong rung is found before anything is timed.
#include "tests/kernels/attention/ladder/cases/bench_ladder.h"

#include "tests/kernels/attention/ladder/cases/staircase.h"
#include "tests/train/shell_test.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

namespace weft::ladder {
namespace {
const BenchLadderOptions kSmall{
    .device = "cpu", .length = 140, .heads = 2, .size = 24, .stride = 16, .c = 4, .rounds = 1};

std::string refusal_of(const std::vector<Rung>& rungs) {
  std::ostringstream out;
  try {
    bench_ladder(kSmall, rungs, out);
  } catch (const Error& e) {
    EXPECT_EQ(out.str(), "") << "nothing is timed before the check";
    return e.what();
  }
  return "";
}

TEST(BenchLadder, ARowForEachRungWithItsGain) {
  const TempDir dir;
  BenchLadderOptions options = kSmall;
  options.png = dir / "stairs.png";
  std::ostringstream text, json;
  bench_ladder(options, cpu_rungs(), text);
  EXPECT_CONTAINS(text.str(), "fixed, n 140, heads 2 of 24, stride 16, c 4, f32");
  EXPECT_CONTAINS(read_file(options.png), "PNG");
  options.json = true;
  const std::vector<TimedRung> timed = bench_ladder(options, cpu_rungs(), json);
  ASSERT_EQ(timed.size(), cpu_rungs().size());
  std::istringstream lines(json.str());
  double before = 0;
  for (std::size_t r = 0; r < timed.size(); ++r) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_CONTAINS(line, str("{\"rung\": \"", cpu_rungs()[r].name, "\""));
    const double ms = *json_number(line, "backward_ms");
    EXPECT_NEAR(*json_number(line, "backward_gain"), before / ms, 1e-3 * (1 + before / ms));
    EXPECT_GT(*json_number(line, "forward_of_roofline"), 0);
    EXPECT_EQ(*json_number(line, "tokens"), cpu_rungs()[r].tokens);
    before = ms;
  }
}

// GFLOP/s count the pairs of the pattern: 24 numbers, 4 and 10 operations each.
TEST(BenchLadder, CountsTheNeededPairs) {
  std::ostringstream out;
  BenchLadderOptions options = kSmall;
  options.pattern = "all", options.heads = 1, options.json = true;
  const TimedRung last = bench_ladder(options, cpu_rungs(), out).back();
  const double pairs = 140 * 141 / 2;
  EXPECT_NEAR(last.forward.gflops * last.forward.ms * 1e6, 4 * 24 * pairs, 1);
  EXPECT_NEAR(last.backward.gflops * last.backward.ms * 1e6, 10 * 24 * pairs, 1);
}

TEST(BenchLadder, AWrongRungIsNamed) {
  std::vector<Rung> rungs(cpu_rungs().begin(), cpu_rungs().end());
  rungs[1].forward = [](Queue& queue, const AttentionForward& f, const Pattern& pattern) {
    cpu_rungs()[1].forward(queue, f, pattern);
    f.y.row<float>(0, f.y.time - 1, 0)[0] += 0.1f;
  };
  EXPECT_CONTAINS(refusal_of(rungs), "bench ladder: tables differs from the definition by ");
  rungs[1] = cpu_rungs()[1];
  rungs[2].backward = [](Queue& queue, const AttentionBackward& g, const Pattern& pattern) {
    cpu_rungs()[2].backward(queue, g, pattern);
    for (int64_t h = 0; h < 2 && g.q.size == 24; ++h)  // the timed problem alone
      g.dv.row<float>(0, 0, h)[3] += 0.1f;
  };
  EXPECT_CONTAINS(refusal_of(rungs), "bench ladder: at n 140 vectors differs from the definition");
}

TEST(Staircase, ARungThatIsTwiceAsFastIsHigher) {
  const auto rung = [](const char* name, double gflops) {
    return TimedRung{name, {.ms = 1, .gflops = gflops}, {.ms = 1, .gflops = gflops}};
  };
  const Image image = staircase({rung("first", 1), rung("second", 2), rung("third", 4)}, 8, 8);
  // Coloured points in the middle of each step, of both panels.
  std::vector<int64_t> heights;
  for (int64_t step = 0; step < 3; ++step) {
    int64_t height = 0;
    for (int64_t y = 0; y < image.height; ++y) {
      const Rgb& at = image.pixels[y * image.width + 70 + 116 * step + 4];
      height += at.blue > at.red + 20;
    }
    heights.push_back(height);
  }
  EXPECT_GT(heights[0], 20);
  EXPECT_NEAR(heights[1] - heights[0], heights[2] - heights[1], 4) << "a logarithmic axis";
  EXPECT_GT(heights[1], heights[0] + 20);
}

// The line of the roof crosses no label: where one would stand, it is written inside the step.
TEST(Staircase, TheRoofCrossesNoLabel) {
  const auto rung = [](const char* name, double gflops) {
    return TimedRung{name, {.ms = 1, .gflops = gflops}, {.ms = 1, .gflops = gflops}};
  };
  const auto inks_beside_roof = [&](double gflops) {
    const Image image = staircase({rung("first", 1), rung("last", gflops)}, 10, 10);
    int64_t roof = 0;  // the first row that is red from the first step to the last
    const auto is_red = [&](int64_t y) {
      const Rgb& at = image.pixels[y * image.width + 300 - 1];
      return at.red == 200 && at.green == 60;
    };
    while (!is_red(roof)) ++roof;
    int64_t inks = 0;
    for (int64_t y = roof - 2; y < roof + 4; ++y)
      for (int64_t x = 70 + 116; x < image.width; ++x)
        inks += image.pixels[y * image.width + x].red == 40;
    return inks;
  };
  for (const double gflops : {3.0, 8.0, 8.5, 9.0, 9.5, 10.0})
    EXPECT_EQ(inks_beside_roof(gflops), 0);
}

TEST(Staircase, ARungOfOneDirectionHasAStepInOnePanel) {
  const TimedRung both{"both", {.ms = 1, .gflops = 4}, {.ms = 1, .gflops = 4}};
  const TimedRung backward{"back", {}, {.ms = 1, .gflops = 4}};
  const Image image = staircase({both, backward}, 8, 8);
  int64_t points[2] = {0, 0};
  for (int64_t y = 0; y < image.height; ++y) {
    const Rgb& at = image.pixels[y * image.width + 70 + 116 + 4];
    points[y >= image.height / 2] += at.blue > at.red + 20;
  }
  EXPECT_EQ(points[0], 0);
  EXPECT_GT(points[1], 20);
}

using LadderProgram = ShellTest;

TEST_F(LadderProgram, RefusesWhatItDoesNotKnow) {
  EXPECT_CONTAINS(refused("bench ladder --device cpu --rungs tables,stairs"),
                  "no rung of this device is named stairs; there are pairs, tables, vectors");
  EXPECT_CONTAINS(refused("bench lader"), "did you mean ladder?");
  EXPECT_CONTAINS(refused("bench ladder --n 0"), "--n: expected a number of at least 1");
}

TEST(CudaBenchLadder, ARowForEachRungAndTheAtomicsAreNamed) {
  BenchLadderOptions options = kSmall;
  options.device = "cuda", options.size = 64, options.length = 1024;
  std::ostringstream text, json;
  bench_ladder(options, {}, text);
  EXPECT_CONTAINS(text.str(), "atomics: two runs differ in the bits of ");
  EXPECT_CONTAINS(text.str(), "bf16");
  options.json = true;
  for (const TimedRung& rung : bench_ladder(options, {}, json)) {
    const bool backward = rung.name == "atomics" || rung.name == "fused",
               forward = rung.name == "online" || rung.name == "wgmma";
    EXPECT_EQ(rung.forward.ms > 0, !backward) << rung.name;
    EXPECT_EQ(rung.backward.ms > 0, !forward) << rung.name;
  }
}
}  // namespace
}  // namespace weft::ladder
