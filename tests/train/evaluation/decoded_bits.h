// SPDX-License-Identifier: MIT
// What sampling sees is what a whole pass sees, in a batch that is not full, too.
#pragma once

#include "tests/train/training.h"
#include "train/evaluation/evaluator.h"

#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <string>

namespace weft {
// Of a model with this pattern in all layers.
inline void expect_decoded_bits(const std::string& pattern) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 2010, 32);
  const TokenDataset data(dir / "corpus.h5", "valid", 32);
  const auto device = make_device("cpu");
  const Config config = small_config(
      dir.path(), {"model.attention=" + pattern, "model.context=192", "model.tied_output=true",
                   "model.init.token_std=0.5", "model.position_axes=[192]"});
  ParameterStore store;
  const auto model = make_model(config, store, *device);
  store.allocate(*device, DType::f32, 1, false, true);
  EvalOptions options{.context = 192, .min_context = 100, .batch = 3, .max_tokens = 400};
  const EvalResult whole = evaluate(*device, *model, data, options);
  options.decode = true;
  const EvalResult decoded = evaluate(*device, *model, data, options);
  EXPECT_EQ(decoded.tokens, whole.tokens);
  EXPECT_NEAR(decoded.bits, whole.bits, 1e-5) << pattern;
  EXPECT_GT(std::abs(whole.bits - 5), 0.1) << "all tokens are equally likely";
}
}  // namespace weft
