// SPDX-License-Identifier: MIT
// weft_attention/sparse_transformer.py, the model in stock PyTorch: weights that travel give the
// same logits.
#include "tests/src/python/twin.h"

#include "src/parts/parts.h"
#include "tests/train/training.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace weft {
namespace {
void compare_with_twin(const std::string& name, const std::vector<std::string>& overrides) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a Python without sanitizers cannot load a library with them";
#endif
  if (const std::string absent = absent_part_text("convert"); !absent.empty())
    GTEST_SKIP() << absent;
  const TempDir dir;
  write_twin(dir, name, overrides);
  Process convert(dir, "convert", {dir / "model.h5", dir / "model.safetensors"});
  ASSERT_EQ(convert.wait(), 0) << convert.err();
  const auto [status, text] = python("tests/src/python/compare_logits.py " + dir.path());
  if (status == kNothingToRun) GTEST_SKIP() << text;
  EXPECT_EQ(status, 0) << text;
}

TEST(PyTorchTwin, PaperText) {
  compare_with_twin("paper/enwik8.yaml",
                    {"model.context=64", "model.position_axes=[4, 16]",
                     "model.attention={kind: fixed, stride: 16, c: 4, num_verts: 2}"});
}

TEST(PyTorchTwin, PaperImages) {
  compare_with_twin("paper/cifar10.yaml",
                    {"model.context=48", "model.position_axes=[4, 4, 3]", "model.tied_output=true",
                     "model.attention=[{kind: strided, stride: 12}, {kind: merged, of: [{kind: "
                     "local, stride: 12}, "
                     "{kind: strided, stride: 12}]}]"});
}

TEST(PyTorchTwin, ModernRecipe) {
  const std::vector<std::string> modern = {"model.positions=rotary",
                                           "model.rotary_base=100",
                                           "model.qk_norm=rms",
                                           "model.previous_token=true",
                                           "model.activation=relu2",
                                           "model.context=64",
                                           "model.attention={kind: fixed, stride: 16, c: 4}"};
  for (const char* axes : {"model.position_axes=[64]", "model.position_axes=[4, 16]",
                           "model.position_axes=[6, 4, 3]"}) {
    std::vector<std::string> overrides = modern;
    overrides.emplace_back(axes);
    compare_with_twin("paper/enwik8.yaml", overrides);
  }
}
}  // namespace
}  // namespace weft
