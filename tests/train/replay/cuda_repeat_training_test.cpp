// SPDX-License-Identifier: MIT
// The same updates again and again while the GPU has other work: one bit pattern. What the test
// counts is part of the GPU record.
#ifdef WEFT_CUDA
#include "tests/kernels/attention/attention_gpu.h"
#include "tests/train/trainer/repeat.h"
#include "tests/train/trainer/steps.h"
#include "train/replay/replay.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
using attention_test::Load;

// Updates as CUDA graphs, each run twice from one state.
TEST(CudaRepeat, TrainingStepsHaveOneBitPattern) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  const Load load;
  std::vector<std::unique_ptr<Steps>> all;
  std::vector<std::unique_ptr<Replay>> replays;
  for (const char* precision : {"bf16", "f16"}) {
    all.push_back(std::make_unique<Steps>(
        small_config(dir.path(), {str("precision=", precision), "model.context=256",
                                  "model.position_axes=[16, 16]", "train.accumulation=2"}),
        "cuda"));
    replays.push_back(std::make_unique<Replay>(*all.back()->step));
  }
  int64_t updates = 0, differences = 0;
  repeat([&] {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string difference =
          replays[i]->run_twice(all[i]->source, all[i]->next++).difference;
      differences += !difference.empty();
      ++updates;
      EXPECT_EQ(difference, "");
    }
  });
  for (const auto& steps : all) EXPECT_FALSE(steps->step->results().empty());
  report("updates", updates, differences);
}
}  // namespace
}  // namespace weft
#endif
