// SPDX-License-Identifier: MIT
// Trainer: from a config to a trained model in a run folder. step.h has the step, report.h the
// texts.
#pragma once

#include "train/program/progress.h"
#include "train/trainer/options.h"
#include "train/trainer/step.h"
#include "train/trainer/update_watch.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weft {
class Trainer {
 public:
  // `group`: the processes that train together, a Trainer each. All read; rank 0 writes the folder.
  Trainer(const Config&, const TrainOptions&, Progress&, Processes& group);
  // Trains to train.steps, a limit or a signal; saves. Throws Error, and keeps earlier checkpoints.
  void run();

  const TrainState& state() const { return state_; }

  // For tests, which make this device fail.
  Device& device() { return *device_; }

  const ParameterStore& parameters() const { return store_; }

 private:
  void prepare();
  void step();
  void after_step();
  void collect();
  void log_step(bool evaluation);
  void show_step(const StepMetrics&);
  void warn_of_long_run(const StepMetrics&);
  void evaluate_into(StepMetrics&);
  void catch_up_on_evaluation();
  void show_evaluation();
  void say(const std::string& line);
  void save(bool numbered);
  void note_kept();
  template <class Write>
  void write_checkpoint(Write write);
  void finish(const std::string& why);
  void say_best();

  bool due(int64_t every) const { return every > 0 && state_.step % every == 0; }

  bool evaluates() const { return valid_data_.size() > 0; }

  bool several() const { return group_.size() > 1; }  // processes

  bool writes() const { return group_.rank() == 0; }

  const char* unit() const;  // of bits

  std::string reason_to_stop();
  void stop_if_overdue(DataParallel::Work, int64_t position);
  [[noreturn]] void fail_non_finite(int64_t step);

  Laps start_;  // until the first step is done
  Laps time_;   // from the start to the end, by what was done: the clock of all lines
  std::unique_ptr<Device> device_;
  std::unique_ptr<UpdateWatch> watch_;  // null: not watched by itself
  Processes& group_;                    // the processes, or the watch of one alone
  std::unique_ptr<DataParallel> parallel_;
  std::string batch_text_;  // what --batch chose
  std::vector<std::string> init_text_;
  std::shared_ptr<const Config> own_config_;
  const Config& config_;
  TrainOptions options_;
  Progress& progress_;
  RunFolder folder_;
  std::string lock_warning_;
  DType dtype_;
  TokenDataset train_data_, valid_data_;
  std::optional<TokenDataset> mixed_data_;
  BatchSource source_;
  std::unique_ptr<ItemView> valid_items_;  // null: a stream
  ParameterStore store_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SharedStep> shared_step_;
  std::unique_ptr<TrainStep> train_step_;
  std::vector<RunUpdate> run_update_;
  std::unique_ptr<MetricsLog> metrics_;  // of rank 0
  std::vector<std::function<void(const StepMetrics&)>> also_log_;
  int64_t evaluated_batches_ = 0, evaluations_ = 0;
  std::string given_up_;  // the signal for which a step or an evaluation was given up
  TrainState state_;      // of the steps launched; counts of f16 as of the last collect()
  std::string memory_text_, about_;
  std::optional<double> peak_flops_;  // what MFU is a share of; nothing: there is no MFU
  StepResults last_;                  // of the last step that was collected
  double loss_of_rank_ = 0;           // its loss on this rank's share of the batch
  Stopwatch clock_;
  double logged_s_ = 0;  // clock_ at the line before
  int64_t logged_step_ = 0, saved_step_ = -1, first_step_ = 0;
  bool warned_ = false;
};
}  // namespace weft
