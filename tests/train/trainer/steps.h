// SPDX-License-Identifier: MIT
// Training steps without a Trainer.
#pragma once

#include "src/config/config.h"
#include "tests/train/training.h"
#include "train/program/loaded_model.h"
#include "train/trainer/step.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace weft {
// What a step needs to run by itself, on a corpus in `folder`.
struct Steps {
  Config config;
  std::unique_ptr<Device> device;
  ParameterStore store;
  std::unique_ptr<Model> model;
  TokenDataset data;
  BatchSource source;
  std::optional<TrainStep> step;
  int64_t next = 0;

  // prepare: what is done to the device before it gets any tensor.
  Steps(const Config& c, const std::string& on, std::optional<DType> dtype = {},
        const std::function<void(Device&)>& prepare = {})
      : config(c),
        device(make_device(on)),
        model(make_model(config, store, *device)),
        data(config.data.path, "train", config.model.vocab),
        source(config, data, nullptr) {
    if (prepare) prepare(*device);
    store.allocate(*device, dtype.value_or(dtype_on(*device, config)), config.seed, true, true);
    step.emplace(*device, *model, store, config);
  }

  void run(int64_t count) {
    for (const int64_t end = next + count; next < end; ++next) step->run(source, next);
  }
};
}  // namespace weft
