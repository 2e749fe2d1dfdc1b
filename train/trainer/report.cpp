// SPDX-License-Identifier: MIT
#include "train/trainer/report.h"

#include "data/prepare/raw_file.h"
#include "src/config/config.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/optimizer/optimizer.h"
#include "src/patterns/pattern.h"
#include "train/program/counts.h"
#include "train/trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <omp.h>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
std::size_t memory_of(const TrainHooks& hooks, const MemoryPlan& plan) {
  return hooks.memory ? hooks.memory(plan) : 0;
}

std::size_t total_memory(const MemoryPlan& plan, const std::vector<TrainHooks>& hooks) {
  std::size_t total = plan.total();
  for (const TrainHooks& h : hooks) total += memory_of(h, plan);
  return total;
}

std::string plan_text(const MemoryPlan& plan, const std::vector<TrainHooks>& hooks) {
  std::string text = str(bytes_text(total_memory(plan, hooks)), " (weights ",
                         bytes_text(plan.weights), ", gradients ", bytes_text(plan.gradients),
                         ", optimizer ", bytes_text(plan.optimizer), ", activations ",
                         bytes_text(plan.activations), ", workspace ", bytes_text(plan.workspace));
  for (const TrainHooks& h : hooks)
    if (const std::size_t bytes = memory_of(h, plan); bytes > 0)
      text += str(", ", h.name, " ", bytes_text(bytes));
  return text + ")";
}

// A CPU computes in f32 whatever the config says.
Config as_computed(Config config, const Device& device) {
  if (!device.is_cuda()) config.precision = DType::f32;
  return config;
}

// A line for each group of heads of the layers with one pattern.
std::vector<std::string> pattern_lines(const Config& config, const Device& device, DType dtype,
                                       const Model& model) {
  std::vector<std::string> lines;
  const auto n = static_cast<double>(config.model.context);
  const AttentionShape shape = attention_shape(config.model);
  for (const LayerGroup& layers : layer_groups(model.patterns())) {
    const std::vector<AttentionCounts> groups =
        count_attention(*layers.pattern, static_cast<int>(config.model.heads), config.model.context,
                        {shape.qk_size, shape.v_size, dtype, device.compute_capability,
                         config.data.separator >= 0});
    for (const AttentionCounts& counts : groups) {
      const double causal = static_cast<double>(counts.heads.size()) * n * (n + 1) / 2;
      const std::string heads =
          groups.size() > 1 ? str(", heads ", numbers_text(counts.heads)) : "";
      lines.push_back(
          str("attention   layers ", numbers_text(layers.members), heads, ": ", counts.pattern,
              ", ", count_text(static_cast<double>(counts.pairs.needed)), " pairs needed (",
              fixed_text(100 * static_cast<double>(counts.pairs.needed) / causal, 2),
              "% of dense causal), ", count_text(static_cast<double>(counts.pairs.executed)),
              " executed; form ", counts.form_text(), ", tiles of ", counts.edges_text(),
              ", tables ", bytes_text(counts.table_bytes)));
    }
  }
  return lines;
}

std::string data_line(const TokenDataset& train, const TokenDataset& valid) {
  const double bytes = train.bytes_per_token();
  const auto to_validate = [&](const std::string& count) {
    return valid.size() > 0 ? count + " to validate"
                            : "none to validate: no evaluation, no best.h5";
  };
  if (!train.image())
    return str("data        ", train.path(), ", ", count_text(static_cast<double>(train.size())),
               " tokens to train, ", to_validate(count_text(static_cast<double>(valid.size()))),
               bytes == 1  ? ""
               : bytes > 0 ? str("; bits are per token (", fixed_text(bytes, 3), " bytes)")
                           : "; bits are per token");
  const ImageShape& s = train.image();
  return str("data        ", train.path(), ", images of ", s.height, " x ", s.width, " x ",
             s.channels, ": ", grouped_digits(train.images()), " to train, ",
             to_validate(grouped_digits(valid.images())),
             "; bits are per dimension (one channel of a pixel)");
}

// The optimizer's share of the memory plan is this state and this work; master weights are weights
// there.
std::string optimizer_line(const Config& config, const Device& device,
                           const ParameterStore& store) {
  std::string text = "optimizer   " + store.state_text();
  if (store.master().dtype() != store.compute_dtype())
    text += str("; here ", bytes_text(store.master().view().bytes()),
                " are master weights, which the plan counts as weights");
  if (config.train.optimizer == Optimizer::adamw) return text;
  const Config here = as_computed(config, device);
  const int64_t work = matrix_optimizer(here.train).bytes(here, store.params());
  return text + str("; an update takes ", bytes_text(static_cast<std::size_t>(work)), " besides");
}

std::string step_line(const Config& config) {
  const StepShape full = step_shape(config, config.train.steps);
  std::string text = str("step        ", full.tokens(),
                         " tokens: ", full.ranks > 1 ? str(full.ranks, " processes x ") : "",
                         full.accumulation, " x ", full.micro_batch, " x ", full.context);
  for (const auto& [step, context] : config.train.context_schedule)
    text += str(", context ", context, " from step ", step);
  if (const auto& t = config.train; t.warmup > t.steps)
    text += str("; the rate grows to the end: train.warmup ", t.warmup, " of ", t.steps, " steps");
  return text;
}

// As a shell reads it as one word.
std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("_-./:=,@%+", c) != nullptr;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  return shell_quoted(text);
}

double seconds_left(const StepMetrics& m, const Config& config) {
  const double tokens = static_cast<double>(config.train.batch * config.model.context);
  return static_cast<double>(config.train.steps - m.step) * tokens / m.tokens_per_s;
}

// Behind `step`: those of train.eval_every, and one at the end.
int64_t evaluations_left(int64_t step, const TrainConfig& train) {
  const int64_t every = train.eval_every > 0 ? train.eval_every : train.steps;
  const auto until = [&](int64_t n) { return n / every + (n == train.steps && n % every != 0); };
  return until(train.steps) - until(step);
}

// Of the free memory: tables of attention, CUDA graphs, and free blocks of a size that nothing asks
// for.
constexpr std::size_t kSpareShare = 16;

// Every context of the schedule must be cut into as many equal micro-batches.
bool divides(const Config& config, int64_t accumulation) {
  const int64_t tokens = config.train.batch * config.model.context,
                parts = accumulation * config.ranks;
  if (config.train.batch % parts != 0) return false;
  for (const auto& [step, context] : config.train.context_schedule)
    if (tokens / context % parts != 0) return false;
  return true;
}

int64_t sequences(const std::string& wish, const Config& config) {
  const int64_t count = number_in<int64_t>(wish).value_or(0);
  if (count < 1) fail("--batch ", wish, ": expected auto, or a number of sequences");
  const int64_t batch = config.train.batch / config.ranks;
  const auto works = [&](int64_t m) { return batch % m == 0 && divides(config, batch / m); };
  if (works(count)) return count;
  fail("--batch ", count, " does not divide the ", batch, " sequences of an update (train.batch",
       config.ranks > 1 ? " / processes" : "", ") into equal parts at every context; these do: ",
       joined(std::views::iota(int64_t{1}, batch + 1) | std::views::filter(works)));
}

std::string parts_text(int64_t batch, int64_t accumulation) {
  return str(batch / accumulation, batch == accumulation ? " sequence" : " sequences",
             " at a time, ", accumulation, accumulation == 1 ? " time" : " times",
             " an update (train.accumulation ", accumulation, ")");
}
}  // namespace

MemoryPlan planned_memory(const Config& config, const Device& device, bool training) {
  const Config here = as_computed(config, device);
  const StepShape full = step_shape(config, config.train.steps);
  return plan_memory(here, full.micro_batch, full.context, training);
}

std::string check_memory(const Config& config, const Device& device,
                         const std::vector<TrainHooks>& hooks) {
  const MemoryPlan plan = planned_memory(config, device, true);
  const std::size_t free = device.memory_free();
  const std::string planned = plan_text(plan, hooks);
  if (total_memory(plan, hooks) <= free)
    return str("planned ", planned, ", free ", bytes_text(free));
  fail("training does not fit: planned ", planned, ", but ", device.name, " has ", bytes_text(free),
       " free: --batch auto finds what does; or raise train.accumulation (",
       config.train.accumulation,
       " now), lower train.batch, set train.recompute: block, or shorten model.context");
}

std::vector<std::string> summary(const Config& config, const Device& device, DType dtype,
                                 const ParameterStore& store, const Model& model,
                                 const TokenDataset& train, const TokenDataset& valid) {
  const bool changed = dtype != config.precision;
  std::vector<std::string> lines{
      str("config      ", config.name, " (", config.source, ")"),
      str("device      ", device.description(), ", ", name_of(dtype),
          changed ? str(" (precision: ", name_of(config.precision), " is for GPUs)") : ""),
      str("model       ", config.model.kind, ", ", config.model.layers, " layers, width ",
          config.model.width, ", ", config.model.heads, " heads, context ", config.model.context,
          ", ", count_text(static_cast<double>(store.size())), " parameters")};
  for (std::string& line : pattern_lines(config, device, dtype, model))
    lines.push_back(std::move(line));
  lines.push_back(data_line(train, valid));
  if (train.image())
    for (const std::string& line : item_summaries(config)) lines.push_back(line);
  lines.push_back(step_line(config));
  lines.push_back(optimizer_line(config, device, store));
  return lines;
}

std::optional<double> measured_peak(Device& device, DType dtype) {
  // Beside one other program two threads have two thirds of two cores. Alone they lose a few
  // percent, and many threads more, to what one of them does: filling the operands.
  constexpr double kOwnCores = 0.75;
  const Stopwatch clock(true);
  const std::clock_t before = std::clock();  // of all threads together
  const double peak = device.peak_flops(dtype);
  const double worked = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  const int threads = std::min(omp_get_max_threads(), 16);  // as many as a matmul uses
  const bool alone = worked >= kOwnCores * threads * clock.seconds();
  return alone || device.is_cuda() ? std::optional(peak) : std::nullopt;
}

double flops_utilization(const StepMetrics& m, const Config& config, std::optional<double>& peak) {
  const double of_rank = m.tokens_per_s / static_cast<double>(config.ranks);
  if (peak && flops_per_token(config.model, m.context) * of_rank > *peak) peak.reset();
  return peak ? flops_per_token(config.model, m.context) * of_rank / *peak : NAN;
}

std::string legend(const char* unit, std::optional<double> peak) {
  std::string text = str("lines       time since the start; bits: of the batch, ", unit,
                         "; lr: learning rate; norm: of the gradient, before clipping; ");
  if (peak) {
    std::string rate = count_text(*peak);
    rate.insert(rate.size() - 1, " ");
    text += str("MFU (model FLOP utilization): FLOP/s that the model needs, of the ", rate,
                "FLOP/s of a large matmul here; ");
  } else {
    text += "no MFU: other programs used the CPU while the rate of a matmul was measured; ";
  }
  return text + "ETA: time left, with evaluations";
}

std::string progress_line(const StepMetrics& m, const Config& config, const char* unit,
                          const RunClock& pace) {
  char lr[32];
  std::snprintf(lr, sizeof lr, "%.2e", m.lr);
  std::string text =
      str("step ", m.step, "/", config.train.steps, "  ", duration_text(pace.elapsed), "  ", unit,
          " ", fixed_text(m.bits(), 4), "  lr ", lr, "  norm ", fixed_text(m.grad_norm, 3), "  ",
          count_text(m.tokens_per_s), " tok/s");
  if (std::isfinite(m.mfu)) text += str("  MFU ", fixed_text(100 * m.mfu, 1), " %");
  const double pauses = pace.pause * static_cast<double>(evaluations_left(m.step, config.train));
  text += str("  context ", m.context, "  ETA ", duration_text(seconds_left(m, config) + pauses));
  if (m.loss_scale) text += str("  loss scale ", *m.loss_scale);
  if (m.skipped.value_or(0) > 0) text += str("  skipped ", *m.skipped);
  return text + evaluation_text(m);
}

std::string evaluation_text(const StepMetrics& m) {
  std::string text;
  if (m.valid_bits) text += str("  valid ", fixed_text(*m.valid_bits, 4));
  if (m.valid_bits_ema) text += str("  valid ema ", fixed_text(*m.valid_bits_ema, 4));
  return text;
}

std::string nothing_saved(int64_t saved_step) {
  return str("Nothing was saved since step ", std::max<int64_t>(saved_step, 0),
             "; go on from there");
}

std::string go_on_line(const TrainOptions& options, const std::string& folder, int64_t step,
                       const std::string& started_by) {
  std::string line = started_by.empty() ? "go on with:" : str("go on, by ", started_by, ", with:");
  const auto add = [&](bool given, const auto&... words) {
    if (given) ((line += " " + shell_word(words)), ...);
  };
  const std::string here = folder.starts_with("-") ? "./" : "";
  const bool slash = folder.size() > 1 && folder.ends_with('/');
  add(true, options.program, "--resume", here + folder.substr(0, folder.size() - (slash ? 1 : 0)));
  add(options.allow_changes, "--allow-changes");
  add(options.max_steps > step, "--max-steps", str(options.max_steps));
  add(options.max_minutes > 0, "--max-minutes", str(options.max_minutes));
  return line;
}

std::string long_run_warning(const StepMetrics& m, const Config& config, bool on_gpu) {
  constexpr double kDay = 24 * 3600;
  const double days = seconds_left(m, config) / kDay;
  if (!(days > 1)) return "";
  return str("warning: ", fixed_text(days, 1), " days left at this rate; ",
             on_gpu ? "novels_12l_minute.yaml trains in a minute on a large GPU"
                    : "tiny.yaml is for a CPU, novels_12l.yaml and larger ones are for a GPU",
             ". Ctrl-C saves and stops");
}

MicroBatch choose_micro_batch(const Config& config, const std::string& wish, const Device& device,
                              const std::vector<TrainHooks>& hooks) {
  const int64_t batch = config.train.batch / config.ranks;
  if (wish != "auto") {
    const int64_t accumulation = batch / sequences(wish, config);
    return {accumulation, parts_text(batch, accumulation)};
  }
  const std::size_t free = device.memory_free(), usable = free - free / kSpareShare;
  std::size_t needed = 0;
  for (int64_t accumulation = 1; accumulation <= batch; ++accumulation) {
    if (!divides(config, accumulation)) continue;
    Config here = config;
    here.train.accumulation = accumulation;
    needed = total_memory(planned_memory(here, device, true), hooks) +
             planned_memory(here, device, false).activations;
    if (needed <= usable)
      return {accumulation, str("auto: ", parts_text(batch, accumulation), ", planned ",
                                bytes_text(needed), " of ", bytes_text(free), " free")};
  }
  fail("--batch auto: one sequence at a time needs ", bytes_text(needed), ", but ", device.name,
       " has ", bytes_text(free), " free (a ", kSpareShare,
       "th of it is kept for tables and graphs): set train.recompute: block, or shorten "
       "model.context");
}

std::optional<MicroBatch> micro_batch_of(const std::string& checkpoint, const Config& config) {
  const TrainConfig there = parse_config(checkpoint_config(checkpoint), checkpoint).train;
  if (!divides(config, there.accumulation)) return std::nullopt;
  return MicroBatch{
      there.accumulation,
      str(parts_text(there.batch / config.ranks, there.accumulation), ", as in ", checkpoint)};
}
}  // namespace weft
