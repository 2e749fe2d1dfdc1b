// SPDX-License-Identifier: MIT
// weft_attention/sparse_transformer.py, the model in stock PyTorch: weights that travel give the
// same logits.
#include "models/model.h"
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "src/files/checkpoint.h"
#include "src/parts/parts.h"
#include "tests/run_python.h"
#include "tests/src/engine_testing.h"
#include "tests/train/training.h"

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr int kNothingToRun = 77;

template <class T>
void write_numbers(const std::string& path, const std::vector<T>& values) {
  write_file(path, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

// Random weights: some start at zero, which would hide what is behind them.
void draw_weights(Device& device, const ParameterStore& store, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.3f);
  for (const ParamInfo& p : store.params()) {
    std::vector<float> values(static_cast<std::size_t>(p.size));
    for (float& x : values) x = normal(random) + (p.name.ends_with("norm.weight") ? 1.0f : 0.0f);
    device.upload(store.master().slice(p.offset, p.shape), values.data());
  }
}

void compare_with_twin(const std::string& name, std::vector<std::string> overrides) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a Python without sanitizers cannot load a library with them";
#endif
  if (const std::string absent = absent_part_text("convert"); !absent.empty())
    GTEST_SKIP() << absent;
  overrides.insert(overrides.begin(),
                   {"model.vocab=40", "model.width=64", "model.heads=4", "model.layers=3"});
  const Config config = load_config(WEFT_TEST_SOURCE "/configs/" + name, overrides);
  Engine engine("cpu");
  ParameterStore store;
  const auto model = make_model(config, store, *engine.device);
  store.allocate(*engine.device, DType::f32, 1, false, false);
  std::mt19937 random(5);
  draw_weights(*engine.device, store, random);
  std::vector<int32_t> values(
      static_cast<std::size_t>(2 * config.model.context - 6));  // not the whole context
  for (int32_t& token : values) token = static_cast<int32_t>(random() % 40);
  const Tensor tokens(*engine.device->pool, {2, config.model.context - 3}, DType::i32);
  engine.device->upload(tokens, values.data());
  Ctx ctx = engine.ctx();
  const std::vector<double> logits = engine.host(model->logits(ctx, tokens));
  const TempDir dir;
  save_checkpoint(dir / "model.h5", *engine.device, store, {}, to_yaml(config));
  Process convert(dir, "convert", {dir / "model.h5", dir / "model.safetensors"});
  ASSERT_EQ(convert.wait(), 0) << convert.err();
  write_numbers(dir / "tokens", values);
  write_numbers(dir / "logits", std::vector<float>(logits.begin(), logits.end()));
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
  const std::vector<std::string> modern = {
      "model.positions=rotary", "model.rotary_base=100",
      "model.qk_norm=rms",      "model.activation=relu2",
      "model.context=64",       "model.attention={kind: fixed, stride: 16, c: 4}"};
  for (const char* axes : {"model.position_axes=[64]", "model.position_axes=[4, 16]",
                           "model.position_axes=[6, 4, 3]"}) {
    std::vector<std::string> overrides = modern;
    overrides.emplace_back(axes);
    compare_with_twin("paper/enwik8.yaml", overrides);
  }
}
}  // namespace
}  // namespace weft
