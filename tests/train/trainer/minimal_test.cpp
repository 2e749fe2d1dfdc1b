// SPDX-License-Identifier: MIT
// train/minimal.cpp against `train` with configs/minimal.yaml: the same bits of losses and weights.
#include "data/prepare/prepare.h"
#include "models/model.h"
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/files/checkpoint.h"
#include "tests/train/training.h"

#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr const char* kText = WEFT_TEST_SOURCE "/data/doyle.txt";

// The weights of a checkpoint in the order of the flat block: matrices, then vectors.
std::vector<float> weights_of(const std::string& checkpoint, const Config& config) {
  const auto device = make_device("cpu");
  ParameterStore store;
  make_model(config, store, *device);
  const WeightsFile file = checkpoint_weights(checkpoint, true);
  std::vector<float> flat;
  for (const bool decay : {true, false})
    for (const ParamInfo& p : store.params()) {
      if (p.decay != decay) continue;
      const std::vector<float> values = file.values(p.name);
      flat.insert(flat.end(), values.begin(), values.end());
    }
  return flat;
}

class MinimalPair {
 public:
  MinimalPair() {
    PrepareText prepare;
    prepare.files = {kText};
    prepare.out = dir_ / "minimal.h5";
    prepare_text(prepare);
  }

  // Runs both for `steps` steps.
  void expect_equal(const std::string& device, int steps, const std::string& attention) {
    std::vector<std::string> overrides{"data.path=" + dir_ / "minimal.h5",
                                       str("train.steps=", steps), "train.log_every=1",
                                       "train.eval_every=0", "train.eval_tokens=256"};
    if (attention == "strided") overrides.push_back("model.attention={kind: strided, stride: 32}");
    const Config config = load_config(WEFT_TEST_SOURCE "/configs/minimal.yaml", overrides);
    train(config, {.out = dir_ / attention, .device = device});
    const std::vector<double> losses = metric(dir_ / (attention + "/metrics.jsonl"), "loss");

    Process minimal(dir_, "minimal",
                    {kText, "--steps", std::to_string(steps), "--device", device, "--attention",
                     attention, "--save", dir_ / "weights"});
    ASSERT_EQ(minimal.wait(), 0) << minimal.err();
    std::istringstream lines(minimal.out());
    std::string line;
    ASSERT_EQ(losses.size(), static_cast<std::size_t>(steps));
    for (int step = 0; step < steps && std::getline(lines, line); ++step)
      EXPECT_EQ(line, step_line(step + 1, losses[static_cast<std::size_t>(step)]));
    EXPECT_TRUE(std::getline(lines, line)) << "a sampled line";

    const std::vector<float> expected = weights_of(dir_ / (attention + "/latest.h5"), config);
    const std::string saved = read_file(dir_ / "weights");
    ASSERT_EQ(saved.size(), expected.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(saved.data(), expected.data(), saved.size()), 0) << "weights differ";
  }

 private:
  // Nine digits tell every float from its neighbours.
  static std::string step_line(int step, double loss) {
    char text[64];
    std::snprintf(text, sizeof text, "step %d  loss %.9g", step, loss);
    return text;
  }

  TempDir dir_;
};

TEST(SlowMinimal, FiftyStepsAreThoseOfTrain) { MinimalPair().expect_equal("cpu", 50, "fixed"); }

TEST(SlowMinimal, StridedStepsAreThoseOfTrain) { MinimalPair().expect_equal("cpu", 10, "strided"); }

TEST(Minimal, ErrorsAreOneLine) {
  const TempDir dir;
  write_file(dir / "short.txt", "too short");
  const auto error = [&](const std::vector<std::string>& arguments) {
    Process process(dir, "minimal", arguments);
    return error_line_of(process);
  };
  EXPECT_NE(error({}).find("minimal FILE"), std::string::npos);
  EXPECT_NE(error({dir / "none.txt"}).find("none.txt"), std::string::npos);
  EXPECT_NE(error({dir / "short.txt"}).find("short.txt"), std::string::npos);
  for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{
           {"--steps", "0"}, {"--steps", "3x"}, {"--attention", "all"}, {"--device", "tpu"}})
    EXPECT_NE(error({kText, option, value}).find(option.substr(2)), std::string::npos);
  EXPECT_NE(error({kText, "--stesp", "3"}).find("minimal FILE"), std::string::npos);
  Process help(dir, "minimal", {"--help"});
  EXPECT_EQ(help.wait(), 0);
  EXPECT_NE(help.out().find("--steps"), std::string::npos);
}

#ifdef WEFT_CUDA
TEST(CudaMinimal, FiftyStepsAreThoseOfTrain) { MinimalPair().expect_equal("cuda", 50, "fixed"); }

TEST(CudaMinimal, StridedStepsAreThoseOfTrain) {
  MinimalPair().expect_equal("cuda", 50, "strided");
}
#endif
}  // namespace
}  // namespace weft
