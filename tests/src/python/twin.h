// SPDX-License-Identifier: MIT
// A small model with random weights and its logits, as files for a Python that compares.
#pragma once

#include "models/model.h"
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "src/files/checkpoint.h"
#include "tests/run_python.h"
#include "tests/src/engine_testing.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace weft {
inline constexpr int kNothingToRun = 77;

template <class T>
void write_numbers(const std::string& path, const std::vector<T>& values) {
  write_file(path, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

// Random weights: some start at zero, which would hide what is behind them.
inline void draw_weights(Device& device, const ParameterStore& store, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.3f);
  for (const ParamInfo& p : store.params()) {
    std::vector<float> values(static_cast<std::size_t>(p.size));
    for (float& x : values) x = normal(random) + (p.name.ends_with("norm.weight") ? 1.0f : 0.0f);
    device.upload(store.master().slice(p.offset, p.shape), values.data());
  }
}

// Writes model.h5, tokens (i32, two rows) and logits (f32) of a
// config with these overrides.
inline void write_twin(const TempDir& dir, const std::string& name,
                       std::vector<std::string> overrides) {
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
  save_checkpoint(dir / "model.h5", *engine.device, store, {}, to_yaml(config));
  write_numbers(dir / "tokens", values);
  write_numbers(dir / "logits", std::vector<float>(logits.begin(), logits.end()));
}
}  // namespace weft
