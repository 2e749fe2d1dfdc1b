// SPDX-License-Identifier: MIT
// Runs in f16 whose loss scale overflows now and then, and what two of them have in common.
#pragma once

#include "src/files/hdf5.h"
#include "tests/train/runs.h"

#include <string>
#include <vector>

namespace weft {
// 2^24 over the 192 tokens of a step does not fit into f16, half of it does: each time the scale
// comes there, the gradient overflows. From 2^24 on that is at the first step, and then after every
// `window` steps.
inline std::vector<std::string> f16_run(int64_t window, const std::vector<std::string>& more) {
  std::vector<std::string> overrides{"precision=f16",
                                     "model.context=48",
                                     "model.position_axes=[6, 8]",
                                     "train.loss_scale=16777216",
                                     str("train.loss_scale_window=", window),
                                     "train.log_every=1000",
                                     "train.eval_every=0",
                                     "train.save_every=0"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

// Weights, optimizer, counts and scale of two checkpoints.
inline void expect_same_state(const std::string& got, const std::string& want) {
  expect_same_tensors(got, want);
  const Hdf5File left = Hdf5File::open(got), right = Hdf5File::open(want);
  for (const char* key : {"step", "updates", "good_steps"})
    EXPECT_EQ(left.int_attribute(key), right.int_attribute(key)) << key;
  EXPECT_EQ(left.real_attribute("loss_scale"), right.real_attribute("loss_scale"));
}
}  // namespace weft
