// SPDX-License-Identifier: MIT
// What parts add to training: options of the program `train`, and hooks that the Trainer calls.
#pragma once

#include "data/batch_source.h"
#include "models/model.h"
#include "src/processes.h"
#include "train/trainer/run_folder.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weft {
class DataParallel;
class Progress;
class TrainStep;

// An update that the Trainer is about to run.
struct Update {
  TrainStep& train_step;
  const BatchSource& source;
  int64_t step;                          // from 0
  const std::function<void()>& between;  // as TrainStep::run() takes it
  int64_t saved_step;                    // of the last checkpoint of this run; -1: none
  DataParallel& parallel;
};

// A step that was logged.
struct Logged {
  const StepMetrics& metrics;
  double loss_here;  // of this process's share of the batch
  Device& device;
  Processes& processes;
  Progress& progress;
};

using RunUpdate = std::function<bool(const Update&)>;

// What is there behind an evaluation. The model has the moving average as weights, where one is
// kept.
struct Evaluated {
  // of the run; what training said before its first step, and of its memory
  std::string folder, about;
  const Config& config;
  int64_t step;
  Device& device;
  Model& model;
};

// One addition to a run. The Trainer calls the hooks that are set.
struct TrainHooks {
  std::string name;  // one word for people: "replay", "report"
  // Bytes that it takes on the device besides the plan of training.
  std::function<std::size_t(const MemoryPlan&)> memory = {};
  // Called once, when all weights are in place; returns what is called before each update. True:
  // it has run the update itself. It throws Error to end the run.
  std::function<RunUpdate(TrainStep&)> updates = {};
  // Called once on rank 0, with the run folder; returns what is called for each logged step.
  std::function<std::function<void(const StepMetrics&)>(const std::string& folder)> log_to = {};
  // Called in every process behind each log line.
  std::function<void(const Logged&)> logged = {};
  // Called on rank 0 behind each evaluation. An Error is shown, and training goes on.
  std::function<void(const Evaluated&)> evaluated = {};
};

// Called when the command line has been read: the hooks that it asks for, or nothing.
using HooksAsked = std::function<std::optional<TrainHooks>()>;
// Adds options to the command line of `train`.
using AddTrainOptions = std::function<HooksAsked(CLI::App&)>;

// The table: a part adds a row (src/parts/parts.h).
void add_train_options(AddTrainOptions);
const std::vector<AddTrainOptions>& train_options();
}  // namespace weft
