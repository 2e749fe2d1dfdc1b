// SPDX-License-Identifier: MIT
// A store with matrices for an optimizer of matrices, and updates of it.
#pragma once

#include "src/config/config.h"
#include "src/optimizer/optimizer.h"
#include "tests/testing.h"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace weft {
// Three blocks of two matrices of odd sizes between parameters that AdamW updates.
inline void add_parameters(ParameterStore& store, ParamKind matrices) {
  store.add("embedding", {7, 5}, Init::normal(1));
  for (int block = 0; block < 3; ++block) {
    store.add(str("norm", block), {5}, Init::normal(1), ParamKind::wide);
    store.add(str("up", block), {9, 5}, Init::normal(1), matrices);
    store.add(str("down", block), {5, 9}, Init::normal(1), matrices);
  }
  store.add("output", {3, 5}, Init::normal(1));
}

// What a run trains with that names this optimizer, and else says nothing.
inline TrainConfig train_with(Optimizer optimizer) {
  TrainConfig train;
  train.optimizer = optimizer;
  return train;
}

// Two updates, those of a process alone where `update` is not given, with gradients that depend on
// nothing but the parameter.
inline void update_twice(Device& device, ParameterStore& store, const TrainConfig& train,
                         const std::function<void(Ctx&)>& update = {}) {
  for (std::size_t i = 0; i < store.params().size(); ++i) {
    const ParamInfo& p = store.params()[i];
    const std::vector<float> gradient =
        converted<float>(normals(p.size, static_cast<unsigned>(i) + 1));
    device.upload(store.gradients().slice(p.offset, p.shape), gradient.data());
  }
  StepScalars step{
      .learning_rate = 0.25f,
      .matrix_learning_rate = 0.5f,
      .ema_decay = 0.5f,
      .momentum = 0.75f,
  };
  step.beta1_correction = step.beta2_correction = 0.1f;
  StepResults results;
  Ctx ctx{.queue = &device.queue, .pool = device.pool.get(), .step = &step, .results = &results};
  for (int i = 0; i < 2; ++i) update ? update(ctx) : update_parameters(ctx, store, train);
}

inline std::vector<double> values_of(Device& device, const ParameterStore& store,
                                     const Tensor& block, std::size_t i) {
  std::vector<double> values;
  store.visit_whole(block, [&](const ParamInfo& p, const TensorView& view) {
    if (p.name == store.params()[i].name) values = to_host(device, view);
  });
  return values;
}
}  // namespace weft
