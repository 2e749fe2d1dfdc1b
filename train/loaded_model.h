// SPDX-License-Identifier: MIT
// A model as `evaluate` and `sample` need it: config and weights from a checkpoint, nothing for training.
#pragma once

#include <memory>
#include <string>

#include "models/model.h"
#include "src/checkpoint.h"
#include "src/config.h"

namespace weft {

// The compute type on this device: a CPU computes in f32 whatever the config says.
DType dtype_on(const Device&, const Config&);

struct LoadedModel {
  Config config;
  std::unique_ptr<Device> device;
  ParameterStore store;
  std::unique_ptr<Model> model;
  TrainState state;

  Ctx inference();  // on this device, without a tape
};

// `device`: as for make_device. `use_ema`: the moving average of the weights instead of the weights.
std::unique_ptr<LoadedModel> load_model(const std::string& checkpoint, const std::string& device,
                                        bool use_ema);

}  // namespace weft
