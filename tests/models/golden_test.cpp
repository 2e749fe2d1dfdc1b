// SPDX-License-Identifier: MIT
// The model against PyTorch: the same weights and tokens give the same logits, loss and gradients
// (tests/golden/make_golden.py).
#include "models/model.h"
#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "src/ops.h"
#include "tests/src/engine_testing.h"

#include <cstddef>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr double kRelative = 1e-4;

std::vector<float> stored(const Hdf5File& file, const std::string& name, const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(elements(shape)));
  file.read(name, StoredType::f32, shape, values.data());
  return values;
}

std::vector<double> stored_doubles(const Hdf5File& file, const std::string& name,
                                   const Shape& shape) {
  const std::vector<float> values = stored(file, name, shape);
  return {values.begin(), values.end()};
}

void check_against_pytorch(const std::string& device, const PatternSpec& pattern) {
  const Hdf5File file = Hdf5File::open(WEFT_TEST_SOURCE "/tests/golden/model.h5");
  Config config;
  config.model.vocab = 17;
  config.model.context = 48;
  config.model.layers = 2;
  config.model.width = 32;
  config.model.heads = 2;
  config.model.mlp_ratio = 2;
  config.model.position_axes = {6, 8};
  config.model.attention = {pattern};
  Engine engine(device);
  ParameterStore store;
  const auto model = make_model(config, store, *engine.device);
  store.allocate(*engine.device, DType::f32, 1, true, false);
  ASSERT_EQ(file.list("/weights").size(), store.params().size());
  for (const ParamInfo& p : store.params()) {
    engine.device->upload(store.master().slice(p.offset, p.shape),
                          stored(file, "/weights/" + p.name, p.shape).data());
  }

  const Shape token_shape = file.shape_of("/tokens");
  const Tensor tokens(*engine.device->pool, token_shape, DType::i32);
  std::vector<int32_t> token_values(static_cast<std::size_t>(tokens.size()));
  file.read("/tokens", StoredType::i32, token_shape, token_values.data());
  engine.device->upload(tokens, token_values.data());

  const std::string group = "/" + pattern.kind;
  Ctx inference = engine.ctx();
  const Tensor logits = model->logits(inference, tokens);
  expect_near(engine.host(logits), stored_doubles(file, group + "/logits", logits.shape()),
              kRelative, "logits");
  Tape tape;
  Ctx ctx = engine.ctx(&tape);
  store.begin_step();
  const Var loss = mean(ctx, model->token_losses(ctx, tokens));
  expect_near(engine.host(loss.value), stored_doubles(file, group + "/loss", {1}), kRelative,
              "loss");
  backward(ctx, loss);
  for (const ParamInfo& p : store.params()) {
    expect_near(engine.host(store.gradients().slice(p.offset, p.shape)),
                stored_doubles(file, group + "/gradients/" + p.name, p.shape), kRelative,
                "gradient of " + p.name);
  }
}

void check_every_pattern(const std::string& device) {
  for (const PatternSpec& pattern :
       {PatternSpec{"all", 8, 2, 2}, PatternSpec{"local", 8, 2, 2}, PatternSpec{"strided", 8, 2, 2},
        PatternSpec{"fixed", 8, 2, 2}}) {
    SCOPED_TRACE(pattern.kind);
    check_against_pytorch(device, pattern);
  }
}

TEST(Golden, LogitsLossAndGradientsArePyTorchs) { check_every_pattern("cpu"); }

#ifdef WEFT_CUDA
TEST(CudaGolden, LogitsLossAndGradientsArePyTorchs) { check_every_pattern("cuda"); }
#endif
}  // namespace
}  // namespace weft
