// SPDX-License-Identifier: MIT
// train --init, as people run it.
#include "tests/train/training.h"

#include <filesystem>
#include <string>
#include <vector>

namespace weft {
namespace {
TEST(Init, TrainStartsFromWeights) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  train(small_config(dir.path()), {.out = dir / "run", .device = "cpu"});
  const std::string weights = dir / "run/latest.h5";
  const auto first_bits = [&](const std::string& init, const std::vector<std::string>& overrides,
                              std::string* text = nullptr) {
    const std::string out = dir / str("init", init.size(), overrides.size(), text != nullptr);
    const std::string said = train(small_config(dir.path(), overrides),
                                   {.init = init, .out = out, .device = "cpu", .max_steps = 1});
    if (text) *text = said;
    return metric(out + "/metrics.jsonl", "bits").at(0);
  };
  std::string same, longer;
  const double fresh = first_bits("", {}), tuned = first_bits(weights, {}, &same);
  EXPECT_LT(tuned, fresh - 0.2);
  EXPECT_CONTAINS(
      same,
      "run/latest.h5, the moving average of the weights of step 20: 31 of 31 parameters taken");
  first_bits(weights,
             {"model.context=128", "model.position_axes=[16, 8]", "model.layers=3",
              "model.attention={kind: all}"},
             &longer);
  EXPECT_CONTAINS(longer, "extended: position.0, the first 8 rows taken, the others drawn anew");
  EXPECT_CONTAINS(longer, "drawn anew: blocks.2.attention_norm.weight, ");
  EXPECT_CONTAINS(longer, "model.context: 64 there, 128 here");
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  const auto refused = [&](const std::vector<std::string>& arguments) {
    Process process(dir, "train", arguments);
    return error_line_of(process);
  };
  const auto error = [&](const std::string& setting) {
    return refused({"--config", dir / "small.yaml", "--device", "cpu", "--out", dir / "no",
                    "--init", weights, "--set", setting});
  };
  EXPECT_CONTAINS(error("model.heads=4"), "its model has 2 heads, this one 4");
  EXPECT_CONTAINS(error("model.position_axes=[4, 16]"),
                  "position.0 is (8, 32) there and (4, 32) here");
  EXPECT_FALSE(std::filesystem::exists(dir / "no"));
  EXPECT_CONTAINS(refused({"--config", dir / "small.yaml", "--init", weights, "--resume"}),
                  "--init");
}
}  // namespace
}  // namespace weft
