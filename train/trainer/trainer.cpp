// SPDX-License-Identifier: MIT
#include "train/trainer/trainer.h"

#include "kernels/interruption.h"
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "train/evaluation/evaluator.h"
#include "train/program/loaded_model.h"
#include "train/program/program.h"
#include "train/program/stop_signal.h"
#include "train/trainer/validation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weft {
namespace {
// What the time of a run goes to, besides evaluations and what is drawn behind them.
constexpr const char *kStart = "start", *kTraining = "training", *kSaving = "saving";

Config for_ranks(Config config, const Processes& group) {
  config.ranks = group.size();
  check_config(config);
  return config;
}

// Resolves data paths. Options were checked before.
Config with_data(Config config) {
  const auto resolve = [&](std::string& path, const char* key) {
    path = find_data(path, config.source, str("--set ", key, "=F.h5"));
  };
  resolve(config.data.path, "data.path");
  if (!config.data.mix.empty()) resolve(config.data.mix, "data.mix");
  return config;
}

// Sets train.accumulation by --batch, and `text` to say so. Every rank takes the smallest choice.
Config with_micro_batch(Config config, const TrainOptions& options, const Device& device,
                        DataParallel& parallel, std::string& text) {
  const std::string from = RunFolder::checkpoint_to_resume(config, options.out, options.resume);
  if (options.batch.empty()) return config;
  std::optional<MicroBatch> before;
  if (options.batch == "auto" && !from.empty()) before = micro_batch_of(from, config);
  const MicroBatch chosen = parallel.smallest(
      before ? *before : choose_micro_batch(config, options.batch, device, options.hooks));
  config.train.accumulation = chosen.accumulation;
  text = chosen.text;
  return config;
}

// A run that has done more steps than are asked for would end at once, and keep the smaller number.
void check_steps(const Config& config, int64_t done, const std::string& checkpoint) {
  if (config.train.steps >= done) return;
  fail("train.steps: ", config.train.steps, ", but the run is at step ", done, " (", checkpoint,
       "): set ", done, " or more, or resume an earlier checkpoint with a new --out");
}

// --init: takes the weights of a checkpoint, or of that of a run folder. Returns lines for people.
std::vector<std::string> take_weights_of(const std::string& init, const Config& config,
                                         Device& device, ParameterStore& store) {
  const ChosenCheckpoint chosen = choose_checkpoint(init);
  std::vector<std::string> lines = take_initial_weights(chosen.path, config, device, store);
  if (!chosen.text.empty()) lines.insert(lines.begin(), chosen.text);
  return lines;
}

std::optional<TokenDataset> mixed_data(const Config& config) {
  if (config.data.mix.empty()) return std::nullopt;
  return TokenDataset(config.data.mix, "train", config.model.vocab);
}
}  // namespace

Trainer::Trainer(const Config& config, const TrainOptions& options, Progress& progress,
                 Processes& group)
    : device_(start_.lap("device", make_device(group.device(options.device)))),
      watch_(watch_for(group, *device_, StopSignal::kept)),
      group_(watch_ ? *watch_ : group),
      parallel_(make_data_parallel(*device_, group_)),
      own_config_(std::make_shared<const Config>(with_data(with_micro_batch(
          for_ranks(config, group_), options, *device_, *parallel_, batch_text_)))),
      config_(*own_config_),
      options_(options),
      progress_(progress),
      folder_(config_, options.out, options.resume,
              options.allow_changes   ? "*"
              : options.batch.empty() ? ""
                                      : "train.accumulation"),
      dtype_(options.dtype.value_or(dtype_on(*device_, config_))),
      train_data_(config_.data.path, "train", config_.model.vocab),
      valid_data_(config_.data.path, "valid", config_.model.vocab,
                  TokenDataset::WithoutTokens::taken),
      mixed_data_(mixed_data(config_)),
      source_(config_, train_data_, mixed_data_ ? &*mixed_data_ : nullptr),
      valid_items_(item_view(config_, evaluates() ? valid_data_ : train_data_)) {
  start_.lap("data");
  if (writes()) lock_warning_ = folder_.lock();  // before a checkpoint there is read
  model_ = make_model(config_, store_, *device_);
  memory_text_ = check_memory(config_, *device_, options_.hooks);
  store_.allocate(*device_, dtype_, config_.seed, true, config_.train.ema_decay > 0,
                  parallel_->sharing(config_.train, dtype_));
  if (!options_.init.empty())
    init_text_ = take_weights_of(options_.init, config_, *device_, store_);
  state_.seed = config_.seed;
  if (dtype_ == DType::f16) state_.loss_scale = config_.train.loss_scale;
  if (!folder_.resumed_from().empty()) {
    state_ = load_checkpoint(folder_.resumed_from(), *device_, store_);
    check_steps(config_, state_.step, folder_.resumed_from());
    if (folder_.resumed_from() == folder_.path("latest.h5")) saved_step_ = state_.step;
  }
  shared_step_ = parallel_->share_step(store_, config_.train);
  train_step_ = std::make_unique<TrainStep>(*device_, *model_, store_, config_, shared_step_.get());
  if (dtype_ == DType::f16)
    train_step_->set_loss_scale({
        .scale = state_.loss_scale,
        .good_steps = state_.good_steps,
        .skipped = state_.step - state_.updates,
    });
  for (const TrainHooks& hooks : options_.hooks)
    if (hooks.updates) run_update_.push_back(hooks.updates(*train_step_));
  start_.lap("weights");
}

// A line for people, kept for the report.
void Trainer::say(const std::string& line) {
  about_ += line + "\n";
  progress_.line(line);
}

void Trainer::prepare() {
  group_.barrier();  // all have looked at the folder as it was
  if (writes()) {
    lock_warning_ += folder_.create(config_, options_.kept);
    metrics_ =
        std::make_unique<MetricsLog>(folder_.path("metrics.jsonl"), folder_.history(), state_.step);
    for (const TrainHooks& hooks : options_.hooks)
      if (hooks.log_to) also_log_.push_back(hooks.log_to(folder_.path("")));
    clock_.set(metrics_->elapsed_s(state_.step, config_.train.batch * config_.model.context));
  }
  for (const std::string& line :
       summary(config_, *device_, dtype_, store_, *model_, train_data_, valid_data_))
    say(line);
  if (const std::string text = parallel_->text(); !text.empty()) say("processes   " + text);
  if (!batch_text_.empty()) say("batch       " + batch_text_);
  say("memory      " + memory_text_);
  say("run         " + folder_.path("") +
      (state_.step > 0 ? str(", resumed at step ", state_.step, " from ", folder_.resumed_from())
                       : ""));
  for (const std::string& note : options_.notes) say(note);
  if (!lock_warning_.empty()) say(lock_warning_);
  for (const std::string& line : init_text_) say("init        " + line);
  for (const std::string& change : folder_.changes()) say("changed     " + change);
  start_.lap("summary");
  peak_flops_ = measured_peak(*device_, dtype_);  // measured before the clock runs
  start_.lap("matmul rate");
  say(legend(unit(), peak_flops_));
  device_->pool->reset_peak();
  first_step_ = logged_step_ = state_.step;
  logged_s_ = clock_.seconds();
}

void Trainer::run() {
  prepare();
  time_.lap(kStart);
  const StopSignal signal(!several(), writes());
  note_kept();
  std::string why;
  if (state_.step > 0) group_.report_step(state_.step);
  try {
    catch_up_on_evaluation();
    clock_.start();
    while (state_.step < config_.train.steps) {
      why = reason_to_stop();
      if (!why.empty()) break;
      step();
      after_step();
    }
  } catch (const Interrupted&) {
    why = given_up_.empty() ? StopSignal::received() : given_up_;
  }
  finish(why);
}

std::string Trainer::reason_to_stop() {
  if (options_.max_steps > 0 && state_.step >= options_.max_steps) return "--max-steps";
  const bool late = options_.max_minutes > 0 && time_.seconds() >= 60 * options_.max_minutes;
  const char* signal = StopSignal::received();
  const char* why = signal                    ? signal
                    : late                    ? "--max-minutes"
                    : train_step_->diverged() ? "divergence"
                                              : "";
  return parallel_->agree(DataParallel::Work::training, state_.step * config_.train.accumulation,
                          why);
}

// Gives up a step or an evaluation when a signal is overdue; all ranks do at the same call.
void Trainer::stop_if_overdue(DataParallel::Work work, int64_t position) {
  const char* signal = StopSignal::overdue();
  given_up_ = parallel_->agree(work, position, signal ? signal : "");
  if (!given_up_.empty()) throw_interrupted();
}

// What is left when the process ends at once.
void Trainer::note_kept() {
  StopSignal::set_kept(saved_step_ < 0
                           ? ""
                           : str(folder_.path("latest.h5"), " of step ", saved_step_,
                                 state_.best_valid_bits > 0 ? ", " + folder_.path("best.h5") : ""));
}

void Trainer::step() {
  StopSignal::at(StopSignal::Work::step, state_.step + 1);
  int64_t position = state_.step * config_.train.accumulation;
  const auto between = [&] {
    stop_if_overdue(DataParallel::Work::training, ++position);
    group_.report_progress();
  };
  const Update update{*train_step_, source_, state_.step, between, saved_step_, *parallel_};
  const auto runs = [&](const RunUpdate& run) { return run(update); };
  if (std::ranges::none_of(run_update_, runs)) train_step_->run(source_, state_.step, between);
  ++state_.step;
  group_.report_step(state_.step);
}

void Trainer::after_step() {
  const bool first = state_.step == 1, last = state_.step == config_.train.steps;
  const bool evaluation = last || due(config_.train.eval_every);
  const bool log = first || last || evaluation || due(config_.train.log_every);
  const bool numbered = due(config_.train.save_every), first_here = state_.step == first_step_ + 1;
  if (!log && !numbered && !first_here) {
    progress_.passing(str("step ", state_.step, "/", config_.train.steps));
    return;
  }
  collect();
  clock_.stop();
  time_.lap(kTraining);
  if (first_here) start_.lap("first step");
  if (log) log_step(evaluation);
  if (first_here) {
    say(device_->pool->table());
    progress_.line(str("first step done ", fixed_text(start_.last(), 2),
                       " s after the start: ", start_.text()));
  }
  if (numbered) save(true);
  clock_.start();
}

// Waits for all steps up to this one, and reads what they reported since the last call.
void Trainer::collect() {
  std::vector<StepResults> steps = train_step_->results();
  if (!steps.empty()) loss_of_rank_ = steps.back().loss;
  parallel_->average_losses(steps);
  const int64_t first = state_.step - std::ssize(steps);
  const bool scaled = dtype_ == DType::f16;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    last_ = steps[i];
    if (has_diverged(last_, scaled)) fail_non_finite(first + static_cast<int64_t>(i));
  }
  state_.updates += std::ssize(steps);
  if (!scaled) return;
  const LossScale scale = train_step_->loss_scale();
  state_.loss_scale = scale.scale;
  state_.good_steps = scale.good_steps;
  state_.updates = state_.step - scale.skipped;
}

void Trainer::log_step(bool evaluation) {
  const int64_t done = state_.step - 1;  // the step that these results are of, from 0
  StepMetrics m;
  m.step = state_.step;
  m.loss = last_.loss;
  m.lr = learning_rate(config_.train, done);
  m.grad_norm = last_.gradient_norm;
  m.context = context_at(config_.train, config_.model.context, done);
  m.elapsed_s = clock_.seconds();
  const double tokens = static_cast<double>((state_.step - logged_step_) * config_.train.batch *
                                            config_.model.context);
  m.tokens_per_s = tokens / std::max(m.elapsed_s - logged_s_, 1e-9);
  const bool has_peak = peak_flops_.has_value();
  m.mfu = flops_utilization(m, config_, peak_flops_);
  if (has_peak && !peak_flops_)
    progress_.line("no MFU from here on: a step was faster than the large matmul of the start");
  if (dtype_ == DType::f16) {
    m.loss_scale = state_.loss_scale;
    m.skipped = state_.step - state_.updates;
  }
  try {
    if (evaluation) evaluate_into(m);
  } catch (const Interrupted&) {
    m.valid_bits = NAN;
    if (metrics_) metrics_->append(m);
    throw;
  }
  if (metrics_) metrics_->append(m);
  for (const auto& log : also_log_) log(m);
  if (evaluation) show_evaluation();
  show_step(m);
  warn_of_long_run(m);
  for (const TrainHooks& hooks : options_.hooks)
    if (hooks.logged) hooks.logged({m, loss_of_rank_, *device_, group_, progress_});
  logged_step_ = state_.step;
  logged_s_ = m.elapsed_s;
}

void Trainer::show_step(const StepMetrics& m) {
  const double pauses = time_.last() - time_.of(kStart) - time_.of(kTraining),
               count = static_cast<double>(std::max<int64_t>(evaluations_, 1));
  progress_.line(progress_line(m, config_, valid_items_ ? "bits/dim" : "bits",
                               {.elapsed = time_.seconds(), .pause = pauses / count}));
}

// The first step on a GPU says nothing of the rate: machine code is loaded in it.
void Trainer::warn_of_long_run(const StepMetrics& m) {
  if (warned_ || (device_->is_cuda() && state_.step <= first_step_ + 1)) return;
  const std::string warning = long_run_warning(m, config_, device_->is_cuda());
  warned_ = !warning.empty();
  if (warned_) progress_.line(warning);
}

// A run that was stopped in an evaluation evaluates first when it goes on.
void Trainer::catch_up_on_evaluation() {
  const bool mine = metrics_ && metrics_->lacks_evaluation();
  if (group_.all_gather(mine ? "yes" : "")[0].empty()) return;
  StepMetrics m;
  m.step = state_.step;
  try {
    evaluate_into(m);
  } catch (const Interrupted&) {
    if (metrics_) metrics_->append_evaluation({.valid_bits = NAN});
    throw;
  }
  if (metrics_) metrics_->append_evaluation(m);
  show_evaluation();
  progress_.line(str("step ", m.step, "/", config_.train.steps, evaluation_text(m)));
  saved_step_ = -1;  // the best validation is part of a checkpoint
  if (due(config_.train.save_every)) save(true);
}

void Trainer::evaluate_into(StepMetrics& m) {
  if (!evaluates()) return;
  StopSignal::at(StopSignal::Work::validation, state_.step);
  const TrainConfig& train = config_.train;
  const EvalOptions options{
      .context = config_.model.context,
      .batch = std::max<int64_t>(1, train.batch / (train.accumulation * config_.ranks)),
      .max_tokens = train.eval_tokens,
      .items = valid_items_.get(),
      .group = several() ? &group_ : nullptr,
  };
  const auto say = [&](int64_t done, int64_t all) {
    progress_.passing(str("validation: ", done, " of ", all, " tokens"));
    group_.report_progress();
    stop_if_overdue(DataParallel::Work::evaluation, ++evaluated_batches_);
  };
  const EvalResult result = evaluate(*device_, *model_, valid_data_, options, say);
  m.valid_bits = result.bits;
  m.valid_tokens = result.tokens;
  if (train.ema_decay > 0)
    with_ema_weights(*device_, store_, [&] {
      m.valid_bits_ema = evaluate(*device_, *model_, valid_data_, options, say).bits;
    });
  ++evaluations_;
  time_.lap("evaluation");
  // of the weights that evaluate and sample use
  const double bits = m.valid_bits_ema.value_or(result.bits);
  if (!std::isfinite(bits)) return;
  if (state_.best_valid_bits != 0 && !(bits < state_.best_valid_bits)) return;
  state_.best_valid_bits = bits;
  write_checkpoint([&] {
    save_checkpoint(folder_.path("best.h5"), *device_, store_, state_, to_yaml(config_));
  });
  time_.lap(kSaving);
}

void Trainer::show_evaluation() {
  const auto shows = [](const TrainHooks& hooks) { return hooks.evaluated != nullptr; };
  if (std::ranges::none_of(options_.hooks, shows)) return;
  group_.take_time();
  const auto show = [&] {
    for (const TrainHooks& hooks : options_.hooks) {
      if (!writes() || !hooks.evaluated) continue;
      try {
        hooks.evaluated({folder_.path(""), about_, config_, state_.step, *device_, *model_});
      } catch (const Error& e) {
        progress_.line(str("no ", hooks.name, ": ", e.what()));
      }
    }
  };
  config_.train.ema_decay > 0 ? with_ema_weights(*device_, store_, show) : show();
  group_.barrier();
  time_.lap("samples and pages");
}

// `write` on rank 0, when all have the same weights; the others wait.
template <class Write>
void Trainer::write_checkpoint(Write write) {
  group_.take_time();
  parallel_->check_equal_weights(store_, state_.step);
  writes() ? write() : join_save_checkpoint(store_);
  group_.barrier();
}

void Trainer::save(bool numbered) {
  StopSignal::at(StopSignal::Work::saving, state_.step);
  progress_.passing(str("saving step ", state_.step));
  write_checkpoint([&] {
    if (!numbered)
      return save_checkpoint(folder_.path("latest.h5"), *device_, store_, state_, to_yaml(config_));
    folder_.save_numbered(*device_, store_, state_, to_yaml(config_), config_.train.keep);
  });
  saved_step_ = state_.step;
  time_.lap(kSaving);
  note_kept();
}

void Trainer::finish(const std::string& why) {
  collect();
  clock_.stop();
  time_.lap(kTraining);
  if (state_.step == 0 && why.starts_with("SIG"))
    return progress_.line(
        str(why, ": stopped before the first step was done; there is nothing to save"));
  const bool is_new = saved_step_ != state_.step;  // a branch has no file of its own yet
  if (is_new) save(false);
  const std::string latest = folder_.path("latest.h5");
  if (!why.empty()) {
    progress_.line(str(why, ": stopped after step ", state_.step, " of ", config_.train.steps,
                       ", saved ", latest));
    return progress_.line(
        go_on_line(options_, folder_.path(""), state_.step, parallel_->started_by()));
  }
  const int64_t steps_here = state_.step - first_step_;
  const std::string now = first_step_ > 0 ? str(", ", steps_here, " of them now") : "",
                    time = str(" in ", duration_text(time_.last()), " (", time_.durations(), ")");
  progress_.line(steps_here == 0
                     ? str("this run was finished already, at step ", state_.step,
                           is_new ? ", saved " + latest : "", "; more: --set train.steps=N")
                     : str("finished ", state_.step, " steps", now, time, ", saved ", latest));
  if (writes()) say_best();
}

const char* Trainer::unit() const {
  return bits_unit(valid_items_ != nullptr, valid_data_.bytes_per_token());
}

void Trainer::say_best() {
  const auto found =
      validation_of(metrics_lines(read_text(folder_.path("metrics.jsonl"), int64_t{1} << 40)));
  if (!found) return;
  const std::string best = folder_.path("best.h5");  // a branch may have none of its own
  progress_.line(str("best validation: ", fixed_text(found->best, 4), " ", unit(),
                     config_.train.ema_decay > 0 ? " (moving average of the weights)" : "",
                     " at step ", found->best_step,
                     std::filesystem::exists(best) ? ", " + best : ""));
  if (found->rises_while_training_falls()) progress_.line(overfitting_text(*found, unit()));
}

void Trainer::fail_non_finite(int64_t step) {
  // An overflow has halved the scale of its own step.
  const double scale =
      std::isfinite(last_.gradient_norm) ? last_.loss_scale : 2.0 * last_.loss_scale;
  std::string first;
  try {
    first = train_step_->find_non_finite(source_, step, scale);
  } catch (const Interrupted&) {}
  first = parallel_->first_message(first);
  if (first.empty()) first = "none when the step was run again with the weights of now";
  fail("step ", step + 1, ": the loss or the gradient is not finite; first tensor: ", first, ". ",
       nothing_saved(saved_step_), " with a lower train.learning_rate or a longer train.warmup");
}
}  // namespace weft
