// SPDX-License-Identifier: MIT
// convert --to hf: transformers loads the folder and computes the logits of the model; what PyTorch
// can't express is refused, and nothing is left of it.
#include "src/parts/parts.h"
#include "tests/src/python/twin.h"
#include "tests/train/training.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
const std::vector<std::string> kImages = {
    "model.context=48", "model.position_axes=[4, 4, 3]", "model.tied_output=true",
    "model.attention=[{kind: strided, stride: 12}, {kind: merged, of: [{kind: local, stride: 5}, "
    "{kind: summary, stride: 12, c: 2, num_verts: 2}]}]"};
const std::vector<std::string> kModern = {
    "model.positions=rotary",
    "model.qk_norm=rms",
    "model.previous_token=true",
    "model.activation=relu2",
    "model.context=160",
    "model.position_axes=[160]",
    "model.attention=[{kind: heads, of: [{kind: fixed, stride: 16, block: 4, vertsize: 2, "
    "num_verts: 2}, {kind: block, stride: 24}]}, {kind: all, length: 150, documents: [40, 90]}]"};

std::string refused(const TempDir& dir, const std::vector<std::string>& arguments) {
  Process process(dir, "convert", arguments);
  return error_line_of(process);
}

std::string converted(const TempDir& dir, const std::string& config,
                      const std::vector<std::string>& overrides) {
  write_twin(dir, config, overrides);
  Process process(dir, "convert", {dir / "model.h5", dir / "hf", "--to", "hf"});
  EXPECT_EQ(process.wait(), 0) << process.err();
  return process.out();
}

TEST(PyTorchTwin, TransformersLoadsWhatConvertWrites) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a Python without sanitizers cannot load a library with them";
#endif
  for (const auto& [config, overrides] :
       {std::pair{"paper/cifar10.yaml", kImages}, {"paper/enwik8.yaml", kModern}})
    for (const bool library : {false, true}) {
      const TempDir dir;
      converted(dir, config, overrides);
      const auto [status, text] =
          python("tests/src/python/compare_hf.py " + dir.path() + (library ? " library" : ""),
                 library ? "" : "PYTHONPATH=");
      if (status == kNothingToRun) GTEST_SKIP() << text;
      EXPECT_EQ(status, 0) << text;
    }
}

TEST(ConvertToTransformers, WritesAFolderOrNothing) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "hf");  // an empty one will do
  converted(dir, "paper/enwik8.yaml", kModern);
  EXPECT_EQ(std::filesystem::is_directory(dir / "hf"), true);
  for (const char* file : {"config.json", "model.safetensors", "modeling_weft.py"})
    EXPECT_TRUE(std::filesystem::exists(dir / "hf/" + std::string(file))) << file;
  EXPECT_EQ(read_file(dir / "hf/sparse_transformer.py"),
            read_file(WEFT_TEST_SOURCE "/src/python/weft_attention/sparse_transformer.py"));
  Process back(dir, "convert", {dir / "hf/model.safetensors", dir / "back.h5"});
  EXPECT_EQ(back.wait(), 0) << back.err();

  const std::string from = dir / "model.h5";
  refused(dir, {from, dir / "hf", "--to", "hf"});  // its output lies in dir
  const std::vector<std::string> names = dir.names();
  EXPECT_NE(refused(dir, {from, dir / "hf", "--to", "hf"}).find("a new or an empty folder"),
            std::string::npos);
  EXPECT_NE(refused(dir, {from, "/proc/hf", "--to", "hf"}).find("/proc/hf"), std::string::npos);
  EXPECT_NE(refused(dir, {from, dir / "x", "--to", "onnx"}).find("onnx not in {hf}"),
            std::string::npos);
  EXPECT_EQ(dir.names(), names);
  const TempDir outputs;
  Process full(outputs, "convert", {from, dir / "y", "--to", "hf"}, {.limit_bytes = 5000});
  EXPECT_NE(error_line_of(full).find("could not be written"), std::string::npos);
  EXPECT_EQ(dir.names(), names);
}

TEST(ConvertToTransformers, RefusesWhatPyTorchCannotExpress) {
  const auto error = [](const std::string& override) {
    const TempDir dir;
    std::vector<std::string> overrides = kModern;
    overrides.push_back(override);
    overrides.emplace_back("model.previous_token=false");  // refused with data.separator
    write_twin(dir, "paper/enwik8.yaml", overrides);
    const std::string text = refused(dir, {dir / "model.h5", dir / "hf", "--to", "hf"});
    EXPECT_FALSE(std::filesystem::exists(dir / "hf"));
    EXPECT_NE(text.find("convert to NAME.safetensors instead"), std::string::npos) << text;
    return text;
  };
  EXPECT_NE(error("data.separator=10").find("data.separator = 10 keeps documents apart"),
            std::string::npos);
  if (absent_part_text("routing").empty()) {
    const std::string text = error(
        "model.attention={kind: heads, of: [{kind: routing, window: 16, clusters: 4}, {kind: "
        "all}]}");
    EXPECT_NE(text.find("the kind routing, whose keys depend on the text"), std::string::npos)
        << text;
  }
}
}  // namespace
}  // namespace weft
