// SPDX-License-Identifier: MIT
// convert and train --init, as people run them.
#include "src/files/checkpoint.h"
#include "tests/train/training.h"
#include "train/program/loaded_model.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
class ConvertTest : public testing::Test {
 protected:
  ConvertTest() {
    write_corpus(dir / "corpus.h5", 6000, 32);
    train(small_config(dir.path()), {.out = dir / "run", .device = "cpu"});
  }

  std::string output(const std::string& program, const std::vector<std::string>& arguments) {
    Process process(dir, program, arguments);
    EXPECT_EQ(process.wait(), 0) << process.err();
    return process.out();
  }

  std::string refused(const std::string& program, const std::vector<std::string>& arguments) {
    Process process(dir, program, arguments);
    return error_line_of(process);
  }

  TempDir dir;
};

TEST_F(ConvertTest, ThereAndBackIsTheSameModelAndTheRestIsRefused) {
  const std::string from = dir / "run/latest.h5";
  for (const auto& [weights, text] :
       {std::pair{"ema", "moving average of the weights"}, {"last", "last weights"}}) {
    EXPECT_CONTAINS(output("convert", {from, dir / "a.safetensors", "--weights", weights}),
                    str(text, " of step 20"));
    output("convert", {dir / "a.safetensors", dir / "a.h5"});
    const WeightsFile before = open_weights(from, std::string(weights) == "last"),
                      after = open_weights(dir / "a.h5");
    EXPECT_EQ(before.config, after.config);
    EXPECT_EQ(before.shapes, after.shapes);
    for (const auto& [name, shape] : before.shapes)
      EXPECT_EQ(before.read(name), after.read(name)) << name;
    EXPECT_EQ(load_model(dir / "a.h5", "cpu")->state.step, 20);
    output("convert", {dir / "a.h5", dir / "b.safetensors"});
    if (std::string(weights) == "last") {
      EXPECT_EQ(read_file(dir / "a.safetensors"), read_file(dir / "b.safetensors"));
    }
  }
  output("convert", {from, dir / "half.safetensors", "--dtype", "bf16"});
  EXPECT_LT(read_file(dir / "half.safetensors").size(),
            read_file(dir / "a.safetensors").size() * 2 / 3);

  EXPECT_CONTAINS(refused("convert", {from, dir / "no.h5"}),
                  "expected a checkpoint and a name that ends in .safetensors");
  EXPECT_CONTAINS(refused("convert", {dir / "corpus.h5", dir / "a.safetensors"}),
                  "it looks like a data file");
  output("convert", {from, dir / "a.safetensors"});
  EXPECT_CONTAINS(refused("convert", {dir / "a.safetensors", dir / "no.h5", "--dtype", "bf16"}),
                  "--weights and --dtype");
  std::string bytes = read_file(dir / "a.safetensors");
  bytes.replace(bytes.find("final_norm.bias"), 15, "final_norm.bia_");
  write_file(dir / "renamed.safetensors", bytes);
  EXPECT_CONTAINS(refused("convert", {dir / "renamed.safetensors", dir / "no.h5"}),
                  "final_norm.bias is missing");
  EXPECT_FALSE(std::filesystem::exists(dir / "no.h5"));
}

TEST_F(ConvertTest, TrainStartsFromWeights) {
  output("convert", {dir / "run/latest.h5", dir / "a.safetensors"});
  const auto first_bits = [&](const std::string& init, const std::vector<std::string>& overrides,
                              std::string* text = nullptr) {
    const std::string out = dir / str("init", init.size(), overrides.size(), text != nullptr);
    const std::string said = train(small_config(dir.path(), overrides),
                                   {.init = init, .out = out, .device = "cpu", .max_steps = 1});
    if (text) *text = said;
    return metric(out + "/metrics.jsonl", "bits").at(0);
  };
  std::string same, longer;
  const double fresh = first_bits("", {}), tuned = first_bits(dir / "run/latest.h5", {}, &same);
  EXPECT_LT(tuned, fresh - 0.2);
  EXPECT_EQ(first_bits(dir / "a.safetensors", {}), tuned);
  EXPECT_CONTAINS(
      same,
      "run/latest.h5, the moving average of the weights of step 20: 31 of 31 parameters taken");
  first_bits(dir / "a.safetensors",
             {"model.context=128", "model.position_axes=[16, 8]", "model.layers=3",
              "model.attention={kind: all}"},
             &longer);
  EXPECT_CONTAINS(longer, "extended: position.0, the first 8 rows taken, the others drawn anew");
  EXPECT_CONTAINS(longer, "drawn anew: blocks.2.attention_norm.weight, ");
  EXPECT_CONTAINS(longer, "model.context: 64 there, 128 here");
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  const auto error = [&](const std::string& setting) {
    return refused("train", {"--config", dir / "small.yaml", "--device", "cpu", "--out", dir / "no",
                             "--init", dir / "a.safetensors", "--set", setting});
  };
  EXPECT_CONTAINS(error("model.heads=4"), "its model has 2 heads, this one 4");
  EXPECT_CONTAINS(error("model.position_axes=[4, 16]"),
                  "position.0 is (8, 32) there and (4, 32) here");
  EXPECT_FALSE(std::filesystem::exists(dir / "no"));
  EXPECT_CONTAINS(refused("train", {"--config", dir / "small.yaml", "--init", dir / "a.safetensors",
                                    "--resume"}),
                  "--init");
}
}  // namespace
}  // namespace weft
