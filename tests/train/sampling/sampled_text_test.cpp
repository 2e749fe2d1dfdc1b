// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "train/sampling/sampler.h"

namespace weft {
namespace {

TEST(SampledText, IsBytesUpToAVocabularyOf256) {
  EXPECT_EQ(token_to_text(65, 256), "A");
  EXPECT_EQ(token_to_text(65, 257), "65 ");
  EXPECT_EQ(text_to_tokens("A", 256), (std::vector<std::int32_t>{65}));
  EXPECT_EQ(text_to_tokens("65", 257), (std::vector<std::int32_t>{65}));
}

}  // namespace
}  // namespace weft
