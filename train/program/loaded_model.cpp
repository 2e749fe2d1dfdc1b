// SPDX-License-Identifier: MIT
#include "train/program/loaded_model.h"

#include "src/config/config.h"
#include "src/config/read_config.h"

#include <memory>
#include <string>

namespace weft {
DType dtype_on(const Device& device, const Config& config) {
  return device.is_cuda() ? config.precision : DType::f32;
}

LoadedModel::LoadedModel(const Config& c)
    : own_config(std::make_shared<const Config>(c)),
      config(*own_config) {}

std::string LoadedModel::weights_text() const {
  return str(ema ? "moving average of the weights" : "last weights", " of step ", state.step);
}

Ctx LoadedModel::inference() { return {.queue = &device->queue, .pool = device->pool.get()}; }

Weights weights_from(const std::string& name) {
  if (name.empty()) return Weights::best;
  if (name == "ema") return Weights::ema;
  if (name == "last") return Weights::last;
  fail("--weights: expected ema or last, found ", name);
}

std::unique_ptr<LoadedModel> load_model(const std::string& checkpoint, const std::string& device,
                                        Weights weights) {
  return load_model(
      checkpoint, [&] { return make_device(device); }, weights);
}

std::unique_ptr<LoadedModel> load_model(const std::string& checkpoint, const OpenDevice& open,
                                        Weights weights) {
  auto loaded =
      std::make_unique<LoadedModel>(parse_config(checkpoint_config(checkpoint), checkpoint));
  loaded->device = open();
  loaded->model = make_model(loaded->config, loaded->store, *loaded->device);
  loaded->store.allocate(*loaded->device, dtype_on(*loaded->device, loaded->config),
                         loaded->config.seed, false, false);
  loaded->ema =
      weights == Weights::ema || (weights == Weights::best && checkpoint_has_ema(checkpoint));
  loaded->state = load_checkpoint(checkpoint, *loaded->device, loaded->store, loaded->ema);
  Ctx ctx = loaded->inference();
  loaded->store.refresh_compute(ctx);
  return loaded;
}
}  // namespace weft
