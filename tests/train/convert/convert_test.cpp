// SPDX-License-Identifier: MIT
// convert, and train --init of what it wrote, as people run them.
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
  EXPECT_CONTAINS(refused("convert", {dir / "a.safetensors", from}),
                  "latest.h5: is a file of the run, which would be lost; choose another TO");
  EXPECT_CONTAINS(refused("convert", {dir / "a.safetensors", dir / "no.h5", "--dtype", "bf16"}),
                  "--weights and --dtype");
  std::string bytes = read_file(dir / "a.safetensors");
  bytes.replace(bytes.find("final_norm.bias"), 15, "final_norm.bia_");
  write_file(dir / "renamed.safetensors", bytes);
  EXPECT_CONTAINS(refused("convert", {dir / "renamed.safetensors", dir / "no.h5"}),
                  "final_norm.bias is missing");
  EXPECT_FALSE(std::filesystem::exists(dir / "no.h5"));
}

TEST_F(ConvertTest, KeepsTheCheckpointThatItReads) {
  const std::string from = dir / "run/latest.h5", before = read_file(from);
  std::filesystem::create_symlink(from, dir / "a.safetensors");
  EXPECT_CONTAINS(refused("convert", {from, dir / "a.safetensors"}), "is both read and written");
  EXPECT_TRUE(read_file(from) == before);
}

TEST_F(ConvertTest, TrainStartsFromThemAsFromTheCheckpoint) {
  output("convert", {dir / "run/latest.h5", dir / "a.safetensors"});
  const auto first_bits = [&](const std::string& init) {
    train(small_config(dir.path()),
          {.init = dir / init, .out = dir / ("of_" + init), .device = "cpu", .max_steps = 1});
    return metric(dir / ("of_" + init + "/metrics.jsonl"), "bits").at(0);
  };
  std::filesystem::copy_file(dir / "run/latest.h5", dir / "a.h5");
  EXPECT_EQ(first_bits("a.safetensors"), first_bits("a.h5"));
}
}  // namespace
}  // namespace weft
