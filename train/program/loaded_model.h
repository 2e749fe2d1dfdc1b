// SPDX-License-Identifier: MIT
// A model as `evaluate` and `sample` need it: config and weights from a checkpoint, nothing for
// training.
#pragma once

#include "models/model.h"
#include "src/files/checkpoint.h"
#include "train/program/launcher.h"
#include "train/program/run_argument.h"

#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <unistd.h>

namespace weft {
struct Config;

// The compute type on this device: a CPU computes in f32 whatever the config says.
DType dtype_on(const Device&, const Config&);

// best: the moving average where one was kept, else the last weights.
enum class Weights : uint8_t { best, ema, last };
Weights weights_from(const std::string& name);  // "" (best), "ema" or "last"

struct LoadedModel {
  explicit LoadedModel(const Config&);
  LoadedModel& operator=(LoadedModel&&) = delete;  // nor copied: `config` is a reference

  std::shared_ptr<const Config> own_config;
  const Config& config;
  std::unique_ptr<Device> device;
  ParameterStore store;
  std::unique_ptr<Model> model;
  TrainState state;
  bool ema = false;  // the weights are the moving average

  std::string weights_text() const;  // for people: which weights, of which step
  Ctx inference();                   // on this device, without a tape
};

// Loads a checkpoint onto a device. `device`: a name as for make_device, or a function that opens
// one, called after the checkpoint has been recognised. Throws Error.
std::unique_ptr<LoadedModel> load_model(const std::string& checkpoint, const std::string& device,
                                        Weights = Weights::best);
using OpenDevice = std::function<std::unique_ptr<Device>()>;
std::unique_ptr<LoadedModel> load_model(const std::string& checkpoint, const OpenDevice&, Weights);

// Runs a program on a checkpoint or run folder, in every process; output goes to the first one's
// stdout, progress to its stderr.
template <class Arguments, class Work>
void work_on_checkpoint(Arguments a, const Work& work) {
  std::string which;
  const auto config = [&] {
    const ChosenCheckpoint chosen = choose_checkpoint(a.checkpoint);
    a.checkpoint = chosen.path, which = chosen.text;
    return checkpoint_config(a.checkpoint);
  };
  launcher().run(a.device, config, [&](Processes& group) {
    Progress progress = first_progress(group, std::cerr, STDERR_FILENO);
    if (!which.empty()) progress.line(which);
    work(a, group, first_output(group, std::cout), progress);
  });
}
}  // namespace weft
