// SPDX-License-Identifier: MIT
// Every rung of the ladder on a GPU against the definition of attention.
#include "kernels/attention/ladder/ladder.h"
#include "tests/kernels/attention/attention_gpu.h"
#include "tests/kernels/attention/ladder/cases/ladder_problem.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft::ladder {
namespace {
using attention_test::Data;
using attention_test::gpu;
using attention_test::Sizes;

// bf16: probabilities, score gradients and results are rounded.
constexpr double kTolerance = 2e-2;

class CudaLadderRung : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (GetParam() >= rungs_of(gpu().compute_capability).size())
      GTEST_SKIP() << "this GPU lacks what the rung needs";
  }

  const Rung& rung() const { return cuda_rungs()[GetParam()]; }

  double error(std::unique_ptr<AttentionPattern> of, const Sizes& size) const {
    const LadderPattern pattern(gpu(), std::move(of), static_cast<int>(size.heads), size.lengths());
    return error_of(gpu(), rung(), pattern, size);
  }
};

INSTANTIATE_TEST_SUITE_P(Cuda, CudaLadderRung, testing::Range<std::size_t>(0, cuda_rungs().size()),
                         [](const auto& info) {
                           return std::string(cuda_rungs()[info.param].name);
                         });

TEST_P(CudaLadderRung, IsTheDefinitionForTheFourPatterns) {
  for (const std::string& kind : kPatterns)
    for (const int64_t n : {1, 15, 63, 64, 65, 130, 201}) {
      SCOPED_TRACE(str(kind, ", n ", n));
      EXPECT_LT(error(ladder_test_pattern(kind, 2, 16, 4), {2, n, 2, 64, 64}), kTolerance);
    }
}

// With c 8 slots of fixed come in runs of 8, which are boxes for TMA; 320 is a band's length.
TEST_P(CudaLadderRung, TakesSlotsInRuns) {
  for (const std::string& kind : kPatterns)
    for (const int64_t n : {201, 320}) {
      SCOPED_TRACE(str(kind, ", n ", n));
      EXPECT_LT(error(ladder_test_pattern(kind, 2, 32, 8), {1, n, 2, 64, 64}), kTolerance);
    }
}

TEST_P(CudaLadderRung, TakesOtherNumbersOfKeysAndHeads) {
  for (const Sizes& size :
       {Sizes{2, 40, 2, 64, 64, 150}, Sizes{1, 150, 2, 64, 64, 40}, Sizes{3, 129, 4, 64, 64}}) {
    SCOPED_TRACE(str("n ", size.time, ", keys ", size.lengths().keys));
    EXPECT_LT(error(ladder_test_pattern("fixed", static_cast<int>(size.heads), 16, 4), size),
              kTolerance);
  }
}

// Empty rows, keys that nobody sees, slots with gaps, random pairs, groups of heads.
TEST_P(CudaLadderRung, TakesPatternsOfAllSorts) {
  int taken = 0;
  for (const Lengths n : {Lengths(67), Lengths(100, 130)})
    for (auto& [name, sample] : attention_test::sample_patterns(n, 2)) {
      SCOPED_TRACE(str(name, ", ", n.queries, " queries, ", n.keys, " keys"));
      const LadderPattern pattern(gpu(), std::move(sample), 2, n);
      if (pattern.maps(Slots::of_pattern).passes != 1) continue;
      ++taken;
      EXPECT_LT(error_of(gpu(), rung(), pattern, {1, n.queries, 2, 64, 64, n.keys}), kTolerance);
    }
  EXPECT_GE(taken, 2 * 10);
}

TEST_P(CudaLadderRung, GivesTheSameBitsInEveryRun) {
  if (!rung().same_bits) GTEST_SKIP() << "float atomics have no order";
  for (const std::string& kind : kPatterns) {
    SCOPED_TRACE(kind);
    const LadderPattern pattern(gpu(), ladder_test_pattern(kind, 4, 32, 8), 4, 1500);
    const auto results = [&] {
      Data<bf16> x({2, 1500, 4, 64, 64});
      run_rung(gpu(), rung(), pattern, x);
      return x;
    };
    const Data<bf16> first = results();
    for (int repeat = 0; repeat < 3; ++repeat) EXPECT_TRUE(same_results(first, results()));
  }
}

TEST(CudaLadder, OneRungAloneHasNoOrderOfSums) {
  EXPECT_EQ(std::ranges::count(cuda_rungs(), false, &Rung::same_bits), 1);
  EXPECT_EQ(std::ranges::count(cpu_rungs(), false, &Rung::same_bits), 0);
}
}  // namespace
}  // namespace weft::ladder
