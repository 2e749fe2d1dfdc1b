// SPDX-License-Identifier: MIT
// `bench decode`: checks a model with random weights, then times it as `sample` runs it.
#include "src/config/conditions.h"
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "train/bench/bench.h"
#include "train/program/json.h"
#include "train/program/loaded_model.h"
#include "train/sampling/sampler.h"
#include "train/trainer/report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kCheckedTexts = 2, kCheckedPositions = 200;

// The output layer starts at zero, and would hide all others.
void fill_output(Device& device, ParameterStore& store) {
  std::mt19937 random;
  for (const ParamInfo& p : store.params()) {
    if (p.name != "output.weight") continue;
    std::vector<float> values(static_cast<std::size_t>(p.size));
    const float size = std::sqrt(3.0f / static_cast<float>(p.shape.back()));
    for (float& v : values) v = size * (static_cast<float>(random()) * 0x1p-31f - 1);
    device.upload(store.master().slice(p.offset, p.shape), values.data());
  }
  Ctx ctx{.queue = &device.queue, .pool = device.pool.get()};
  store.refresh_compute(ctx);
}

// The conditions of value 0.
std::vector<int32_t> no_conditions(const Config& config) {
  std::vector<int32_t> rows;
  for (const Condition& c : conditions(config)) rows.push_back(static_cast<int32_t>(c.first_row));
  return rows;
}

// Largest |got - want| over the largest |want|; infinite where a number is not finite.
double difference(const std::vector<double>& got, const std::vector<double>& want) {
  double worst = 0, top = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double gap = std::abs(got[i] - want[i]);
    worst = std::isfinite(gap) ? std::max(worst, gap) : INFINITY;
    top = std::max(top, std::abs(want[i]));
  }
  return worst > 0 ? worst / top : 0;
}

// Largest difference between cached logits and those of a forward pass, of their size. The kernels
// are those of a run of `texts`.
double check_cache(Device& device, Model& model, const Config& config, DType dtype, int64_t texts) {
  const int64_t length = std::min(kCheckedPositions, config.model.context),
                vocab = config.model.vocab;
  const auto integers = [&](const Shape& shape, const std::vector<int32_t>& values) {
    const Tensor t(*device.pool, shape, DType::i32, "sampling");
    device.upload(t, values.data());
    return t;
  };
  std::mt19937 random;
  std::vector<int32_t> values(static_cast<std::size_t>(kCheckedTexts * length)), given;
  for (int32_t& v : values) v = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  const std::vector<int32_t> rows = no_conditions(config);
  const Tensor told =
      rows.empty() ? Tensor{} : integers({1, static_cast<int64_t>(rows.size())}, rows);
  for (int64_t b = 0; b < kCheckedTexts; ++b) given.insert(given.end(), rows.begin(), rows.end());
  Sequences sequences(integers({kCheckedTexts, length}, values));
  if (!rows.empty())
    sequences.conditions = integers({kCheckedTexts, static_cast<int64_t>(rows.size())}, given);

  Ctx ctx{.queue = &device.queue, .pool = device.pool.get()};
  const Tensor whole = model.logits(ctx, sequences);
  const auto cache = model.make_cache(device, kCheckedTexts, length, texts);
  double largest = 0;
  const int64_t prompt = length / 2;
  for (int64_t step = 0; step < length + length - prompt; ++step) {
    const int64_t position = step < length ? step : step - length + prompt;
    for (int64_t b = 0; step == length && prompt > 0 && b < kCheckedTexts; ++b)
      model.read_prompt(ctx, *cache,
                        {sequences.tokens.slice(b * length, {1, length}), {}, {}, told}, prompt, b,
                        1);
    const Tensor logits = model.decode(ctx, *cache, sequences, position);
    if (position % 16 != 0 && position + 1 < length) continue;
    for (int64_t b = 0; b < kCheckedTexts; ++b)
      largest = std::max(
          largest,
          difference(to_host(device, logits.slice(b * vocab, {vocab})),
                     to_host(device, whole.slice((b * length + position) * vocab, {vocab}))));
  }
  const double allowed = dtype == DType::f32 ? 1e-3 : 0.1;
  if (!(largest <= allowed))
    fail("bench decode: cached logits are off by ", largest, " of their size, at most ", allowed,
         " is right");
  return largest;
}

// Bytes that a position of `batch` texts reads: weights but rows of tables, and listed keys and
// values.
double bytes_of_position(const ParameterStore& store, const Config& config, DType dtype,
                         const SampleStats& stats, const SampleOptions& o) {
  double bytes = 0;
  for (const ParamInfo& p : store.params()) {
    const bool table = p.name == "start" || p.name.starts_with("position.") ||
                       (p.name == "token_embedding" && !config.model.tied_output);
    if (!table)
      bytes +=
          static_cast<double>(p.size * size_of(p.kind == ParamKind::wide ? wide(dtype) : dtype));
  }
  const AttentionShape shape = attention_shape(config.model);
  for (const CacheUse& use : stats.cache)
    bytes += keys_read(*use.pattern, static_cast<int>(shape.heads), o.given(), o.given() + o.length)
                 .pattern *
             static_cast<double>(use.layers.size()) *
             static_cast<double>(o.batch * shape.heads * (shape.qk_size + shape.v_size) *
                                 size_of(dtype));
  return bytes;
}

// Milliseconds to the first token of one text, once tile tables are there; by the length of its
// prompt.
JsonMembers first_tokens(Device& device, Model& model, const Config& config, SampleOptions o) {
  JsonMembers members;
  o.count = o.batch = o.length = 1;
  for (const int64_t prompt : {128, 2048, 12000}) {
    if (prompt >= config.model.context) continue;
    o.prompt.assign(static_cast<std::size_t>(prompt), 1);
    double ms = 0;
    for (int run = 0; run < 2; ++run)
      ms = 1e3 * sample(device, model, config.model, o, [](auto...) {}).first_seconds;
    members.emplace_back(str(prompt), ms);
  }
  return members;
}

std::string weights_text(const SampleStats& stats) {
  if (stats.prepared_bytes == 0) return "as they are stored";
  return bytes_text(stats.prepared_bytes) + " in the order of the kernel for few texts";
}

SampleOptions sampling_of(const BenchDecodeOptions& options, const Config& config) {
  const ModelConfig& model = config.model;
  SampleOptions sampling;
  sampling.length = (options.positions > 0 ? options.positions : model.context) - options.prompt;
  sampling.prompt.assign(static_cast<std::size_t>(options.prompt), 1);
  sampling.count = sampling.batch = options.batch;
  sampling.conditions = no_conditions(config);
  check_sample_options(sampling, model);
  if (options.positions > model.context)
    fail("bench decode: --positions must be at most the context of ", model.context, ", got ",
         options.positions);
  return sampling;
}
}  // namespace

void bench_decode(const BenchDecodeOptions& options, std::ostream& out) {
  const Config config = load_config(options.config, options.overrides);
  const auto device = make_device(options.device);
  const DType dtype = dtype_on(*device, config);
  ParameterStore store;
  const auto model = make_model(config, store, *device);
  store.allocate(*device, dtype, config.seed, false, false);
  fill_output(*device, store);
  const SampleOptions sampling = sampling_of(options, config);
  const double difference =
      check_cache(*device, *model, config, dtype, std::max(kCheckedTexts, options.batch));
  const SampleStats stats = sample(*device, *model, config.model, sampling, [](auto...) {});
  const double ms = stats.position_ms();
  const double tokens_per_s = static_cast<double>(stats.tokens) / stats.seconds;
  const double bytes = bytes_of_position(store, config, dtype, stats, sampling),
               floor_ms = 1e3 * bytes / device->copy_bandwidth();
  // A block is norm and QKV, attention, projection, up, down; then embedding, output and choice.
  const int64_t steps = 5 * config.model.layers + 3;
  const JsonMembers first = first_tokens(*device, *model, config, sampling);
  if (options.json) {
    out << json_object({{"config", config.name},
                        {"device", device->name},
                        {"dtype", name_of(dtype)},
                        {"batch", options.batch},
                        {"positions", stats.positions},
                        {"seconds", stats.seconds},
                        {"ms", ms},
                        {"us_layer", 1e3 * ms / static_cast<double>(config.model.layers)},
                        {"tok_s", tokens_per_s},
                        {"bytes", bytes},
                        {"floor_ms", floor_ms},
                        {"bandwidth_share", floor_ms / ms},
                        {"steps", steps},
                        {"prompt", options.prompt},
                        {"first_ms", JsonMember::Raw{json_object(first)}},
                        {"kernels", stats.launches},
                        {"cache_bytes", stats.cache_bytes},
                        {"prepared_bytes", stats.prepared_bytes},
                        {"difference", difference}})
        << std::endl;
    return;
  }
  out << config.name << " on " << device->description() << ", " << name_of(dtype) << "\n"
      << "texts       " << options.batch << " of " << sampling.length << " tokens in "
      << fixed_text(stats.seconds, 2) << " s\n"
      << "position    " << fixed_text(ms, 3) << " ms, "
      << fixed_text(1e3 * ms / static_cast<double>(config.model.layers), 2) << " us a layer, "
      << stats.launches << " kernels\n"
      << "floor       " << fixed_text(floor_ms, 3) << " ms for "
      << bytes_text(static_cast<std::size_t>(bytes)) << ", " << fixed_text(100 * floor_ms / ms, 1)
      << " % of the copy bandwidth; " << steps << " steps that depend on each other\n"
      << "first token " << json_members(first) << " (prompt: ms)\n"
      << "tokens/s    " << count_text(tokens_per_s) << "\n"
      << "cache       " << bytes_text(stats.cache_bytes) << "\n"
      << "weights     " << weights_text(stats) << "\n"
      << "checked     cached logits are within " << difference << " of those of forward passes"
      << std::endl;
}
}  // namespace weft
