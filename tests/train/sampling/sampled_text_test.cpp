// SPDX-License-Identifier: MIT
#include "kernels/view.h"
#include "tests/temp_dir.h"
#include "train/program/json.h"
#include "train/sampling/sampler.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace weft {
namespace {
TEST(SampledText, IsBytesUpToAVocabularyOf256) {
  EXPECT_EQ(token_to_text(65, 256), "A");
  EXPECT_EQ(token_to_text(65, 257), "65 ");
  EXPECT_EQ(text_to_tokens("A", 256), (std::vector<int32_t>{65}));
  EXPECT_EQ(text_to_tokens("65", 257), (std::vector<int32_t>{65}));
  EXPECT_EQ(token_to_text(65, {256, true}), "65 ");
  EXPECT_EQ(text_to_tokens("65 255", {256, true}), (std::vector<int32_t>{65, 255}));
  EXPECT_CONTAINS(error_of([] { text_to_tokens("256", {256, true}); }), "the model knows 0 to 255");
  EXPECT_CONTAINS(error_of([] {
                    text_to_tokens("hello", {256, true});
                  }),
                  "prompt: expected numbers from 0 to 255, separated");
  for (const char* beyond : {"99999999999", "1 99999999999"})
    EXPECT_CONTAINS(error_of([&] {
                      text_to_tokens(beyond, {256, true}, "--stop");
                    }),
                    "is 99999999999, the model knows 0 to 255");
  EXPECT_CONTAINS(error_of([] { text_to_tokens("x", {256, true}, "--stop"); }), "--stop: expected");
}

// Characters come whole, however their bytes come; what is none is U+FFFD.
TEST(SampledText, IsWholeCharactersOnATerminal) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff\xc3(\xed\xa0z\x1b\xe2\x82",
                    two = str(kReplacement, kReplacement),
                    want = str("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", two, "(", two, "z",
                               kReplacement);
  std::string bytes, out;
  for (const char c : text) {
    bytes += c;
    const std::string part = take_characters(bytes, false);
    EXPECT_TRUE(part.empty() || static_cast<unsigned char>(part[0]) < 0x80 ||
                static_cast<unsigned char>(part[0]) >= 0xc2);
    out += part;
  }
  EXPECT_EQ(out, want);
  EXPECT_EQ(bytes, "\xe2\x82");  // may yet be one
  EXPECT_EQ(take_characters(bytes, true), two);
  EXPECT_EQ(bytes, "");
}
}  // namespace
}  // namespace weft
