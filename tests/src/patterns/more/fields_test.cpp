// SPDX-License-Identifier: MIT
// Fields without a default are asked for; a pattern of one size passes it on.
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/patterns/pattern.h"
#include "tests/temp_dir.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>

namespace weft {
namespace {
TEST(MorePatterns, FieldsWithoutADefaultAreAskedFor) {
  const auto error = [](const std::string& yaml) {
    return error_of([&] { parse_config(yaml, "a.yaml"); });
  };
  EXPECT_EQ(error("model:\n  attention:\n  - {kind: local}\n  - {kind: longformer}\n"),
            "a.yaml:4: model.attention: window is required in a pattern of kind longformer "
            "(longformer, bigbird: "
            "width of the sliding window; routing, lsh: keys seen)");
  EXPECT_CONTAINS(error("model: {attention: {kind: bigbird, window: 3}}\n"), "block is required");
  EXPECT_CONTAINS(error("model: {attention: {kind: merged, of: [{kind: layout, block: 8}]}}\n"),
                  "file is required");
}

TEST(MorePatterns, ACompositeIsAsShortAsItsShortestPart) {
  const auto lengths = [](const std::string& yaml, int heads) {
    return make_pattern(parse_pattern(yaml, "here"), heads)->lengths();
  };
  const std::string image = "{kind: convolution, grid: [30], filter: [5]}",
                    any = "{kind: local, stride: 4}";
  const Lengths n = lengths(image, 1);
  EXPECT_GT(n.keys, 0);
  for (const char* kind : {"merged", "heads"})
    for (const std::string& of : {image + ", " + any, any + ", " + image})
      EXPECT_EQ(lengths(str("{kind: ", kind, ", of: [", of, "]}"), 2), n) << kind << of;
}
}  // namespace
}  // namespace weft
