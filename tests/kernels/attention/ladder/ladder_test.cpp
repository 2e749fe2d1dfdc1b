// SPDX-License-Identifier: MIT
// Every rung of the ladder on the CPU against the definition of attention.
#include "kernels/attention/ladder/ladder.h"

#include "tests/kernels/attention/attention_case.h"
#include "tests/kernels/attention/ladder/cases/ladder_problem.h"

#include <gtest/gtest.h>
#include <memory>
#include <omp.h>
#include <string>
#include <utility>
#include <vector>

namespace weft::ladder {
namespace {
using attention_test::Data;
using attention_test::Sizes;

Device& cpu() {
  static const std::unique_ptr<Device> device = make_device("cpu");
  return *device;
}

std::unique_ptr<AttentionPattern> pattern_of(const std::string& kind, int heads) {
  return ladder_test_pattern(kind, heads, 16, 4);
}

class LadderRung : public testing::TestWithParam<std::size_t> {
 protected:
  const Rung& rung() const { return cpu_rungs()[GetParam()]; }
};

INSTANTIATE_TEST_SUITE_P(Cpu, LadderRung, testing::Range<std::size_t>(0, cpu_rungs().size()),
                         [](const auto& info) {
                           return std::string(cpu_rungs()[info.param].name);
                         });

TEST_P(LadderRung, IsTheDefinitionForTheFourPatterns) {
  for (const std::string& kind : kPatterns)
    for (const int64_t n : {1, 15, 63, 64, 65, 130, 201}) {
      SCOPED_TRACE(str(kind, ", n ", n));
      const LadderPattern pattern(cpu(), pattern_of(kind, 2), 2, n);
      EXPECT_LT(error_of(cpu(), rung(), pattern, {2, n, 2, 24, 40}), 5e-6);
    }
}

TEST_P(LadderRung, TakesHeadsOfAnySizeAndOtherNumbersOfKeys) {
  for (const Sizes& size :
       {Sizes{1, 70, 4, 5, 7}, Sizes{2, 129, 2, 64, 64}, Sizes{1, 100, 2, 1, 17},
        Sizes{2, 40, 2, 16, 8, 150}, Sizes{1, 150, 2, 8, 16, 40}}) {
    SCOPED_TRACE(
        str("n ", size.time, ", keys ", size.lengths().keys, ", sizes ", size.qk, ", ", size.v));
    const LadderPattern pattern(cpu(), pattern_of("fixed", static_cast<int>(size.heads)),
                                static_cast<int>(size.heads), size.lengths());
    EXPECT_LT(error_of(cpu(), rung(), pattern, size), 5e-6);
  }
}

// Empty rows, keys that nobody sees, slots with gaps, random pairs, groups of heads.
TEST_P(LadderRung, TakesPatternsOfAllSorts) {
  int taken = 0;
  for (const Lengths n : {Lengths(67), Lengths(100, 130)})
    for (auto& [name, sample] : attention_test::sample_patterns(n, 2)) {
      SCOPED_TRACE(str(name, ", ", n.queries, " queries, ", n.keys, " keys"));
      const LadderPattern pattern(cpu(), std::move(sample), 2, n);
      if (pattern.maps(Slots::of_pattern).passes != 1) continue;
      ++taken;
      EXPECT_LT(error_of(cpu(), rung(), pattern, {1, n.queries, 2, 12, 20, n.keys}), 5e-6);
    }
  EXPECT_GE(taken, 2 * 10);
}

TEST_P(LadderRung, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = omp_get_max_threads();
  for (const std::string& kind : kPatterns) {
    SCOPED_TRACE(kind);
    const LadderPattern pattern(cpu(), pattern_of(kind, 2), 2, 450);
    const auto results = [&](int of_threads) {
      omp_set_num_threads(of_threads);
      Data<float> x({1, 450, 2, 32, 16});
      run_rung(cpu(), rung(), pattern, x);
      return x;
    };
    const Data<float> one = results(1);
    for (const int more : {2, 3, 2}) {
      const Data<float> x = results(more);
      EXPECT_TRUE(same_bits(x.y, one.y)) << "y, threads " << more;
      EXPECT_TRUE(same_bits(x.lse, one.lse)) << "lse, threads " << more;
      EXPECT_TRUE(same_bits(x.dq, one.dq)) << "dq, threads " << more;
      EXPECT_TRUE(same_bits(x.dk, one.dk)) << "dk, threads " << more;
      EXPECT_TRUE(same_bits(x.dv, one.dv)) << "dv, threads " << more;
    }
  }
  omp_set_num_threads(threads);
}

// The tables say the same as the pattern, in the same order.
TEST(Ladder, SkippedTilesChangeNoBit) {
  ASSERT_EQ(std::string(cpu_rungs()[1].name), "tables");
  for (const std::string& kind : kPatterns) {
    SCOPED_TRACE(kind);
    const LadderPattern pattern(cpu(), pattern_of(kind, 2), 2, 201);
    Data<float> pairs({1, 201, 2, 24, 16}), tables({1, 201, 2, 24, 16});
    run_rung(cpu(), cpu_rungs()[0], pattern, pairs);
    run_rung(cpu(), cpu_rungs()[1], pattern, tables);
    EXPECT_TRUE(same_bits(pairs.y, tables.y) && same_bits(pairs.lse, tables.lse));
    EXPECT_TRUE(same_bits(pairs.dq, tables.dq));
    EXPECT_TRUE(same_bits(pairs.dk, tables.dk) && same_bits(pairs.dv, tables.dv));
  }
}

TEST(Ladder, WhatNoRungTakesIsRefused) {
  const LadderPattern pattern(cpu(), pattern_of("fixed", 2), 2, 40);
  const auto refusal = [](const AttentionForward& f) -> std::string {
    try {
      check_problem(f, false);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  Data<float> x({1, 40, 2, 8, 8});
  EXPECT_EQ(refusal(x.forward(pattern.maps(Slots::in_order))), "");
  Data<double> wide({1, 40, 2, 8, 8});
  EXPECT_NE(refusal(wide.forward(pattern.maps(Slots::in_order))).find("got f64, 1 passes"),
            std::string::npos);
  const attention_test::HostMaps small(pattern.pattern(), 2, 40, 8, kSmallTile);
  EXPECT_NE(refusal(x.forward(small.maps)).find("got f32, 1 passes over tiles of 16"),
            std::string::npos);
  x.pack_documents();
  EXPECT_NE(refusal(x.forward(pattern.maps(Slots::in_order))).find("and documents"),
            std::string::npos);
}
}  // namespace
}  // namespace weft::ladder
