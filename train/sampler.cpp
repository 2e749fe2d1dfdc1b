// SPDX-License-Identifier: MIT
// The sampling loop and the choice of a token.
#include "train/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "kernels/philox.h"
#include "src/memory.h"
#include "train/device_batch.h"
#include "train/inspect_counts.h"
#include "train/progress.h"

namespace weft {
namespace {

// Sets Philox apart from the counters of dropout and initial values under the same seed.
constexpr std::uint32_t kSampleStream = 0x53414d50;  // "SAMP"

std::vector<double> row_of(Device& device, const Tensor& block, std::int64_t row) {
  const std::int64_t columns = block.view().cols();
  return to_host(device, block.slice(row * columns, {columns}));
}

// One batch of samples from first_sample on, in lock step.
class BatchSampler {
 public:
  BatchSampler(Device& device, Model& model, const SampleOptions& options, std::int64_t first_sample,
               std::int64_t count)
      : device_(device),
        model_(model),
        options_(options),
        first_sample_(first_sample),
        count_(count),
        batch_(device, "sampling") {
    ctx_.queue = &device.queue;
    ctx_.pool = device.pool.get();
    ctx_.batch_invariant = true;
    length_ = options.given() + options.length;
    if (options.cached) cache_ = model.make_cache(device, count, length_);
    HostBatch batch;
    batch.tokens.resize(static_cast<std::size_t>(count * length_));
    for (std::int64_t b = 0; b < count; ++b) {
      const auto& prompt = options.prompts.empty()
                               ? options.prompt
                               : options.prompts[static_cast<std::size_t>(first_sample + b)];
      std::copy(prompt.begin(), prompt.end(), batch.tokens.begin() + b * length_);
      batch.positions.insert(batch.positions.end(), options.positions.begin(), options.positions.end());
      batch.conditions.insert(batch.conditions.end(), options.conditions.begin(), options.conditions.end());
    }
    batch_.upload(batch, count, length_);
  }

  void run(const OnToken& on_token, const OnPositions& on_positions) {
    const Sequences& sequences = batch_.sequences();
    const std::int64_t prompt = options_.given();
    for (std::int64_t position = options_.cached ? 0 : prompt; position < length_; ++position) {
      const Tensor logits =
          cache_ ? model_.decode(ctx_, *cache_, sequences, position) : model_.logits(ctx_, sequences);
      if (on_positions)
        on_positions(first_sample_ * length_ + (position + 1) * count_, options_.count * length_);
      if (position < prompt) continue;
      for (std::int64_t b = 0; b < count_; ++b)
        add_token(b, position, row_of(device_, logits, cache_ ? b : b * length_ + position), on_token);
    }
  }

  void describe_cache(SampleStats& stats) const {
    if (!cache_) return;
    stats.cache_bytes = cache_->bytes();
    stats.cache = cache_->use();
  }

 private:
  void add_token(std::int64_t b, std::int64_t position, const std::vector<double>& logits,
                 const OnToken& on_token) {
    const std::int64_t sample = first_sample_ + b;
    const std::int32_t token =
        choose_token(logits, options_, sample_uniform(options_.seed, sample, position));
    auto* row = static_cast<std::int32_t*>(batch_.sequences().tokens.view().data) + b * length_;
    device_.upload_async(row + position, &token, sizeof token);
    on_token(sample, position, token);
  }

  Device& device_;
  Model& model_;
  const SampleOptions& options_;
  std::int64_t first_sample_, count_, length_ = 0;
  Ctx ctx_;
  std::unique_ptr<DecodeCache> cache_;
  DeviceBatch batch_;
};

}  // namespace

void check_sample_options(const SampleOptions& options, const ModelConfig& model) {
  const std::int64_t prompt = options.given();
  for (const auto& one : options.prompts)
    WEFT_CHECK(static_cast<std::int64_t>(one.size()) == prompt, "prompts of ", prompt, " and ", one.size(),
               " tokens: all samples are given as many");
  WEFT_CHECK(options.prompts.empty() || static_cast<std::int64_t>(options.prompts.size()) == options.count,
             options.prompts.size(), " prompts for ", options.count, " samples");
  WEFT_CHECK(options.positions.empty() ||
                 static_cast<std::int64_t>(options.positions.size()) == prompt + options.length,
             options.positions.size(), " positions for ", prompt + options.length, " tokens");
  if (options.length < 1) fail(str("the length must be at least 1, got ", options.length));
  if (prompt + options.length > model.context)
    fail(str("the prompt of ", prompt, " tokens and ", options.length,
             " more do not fit into the context of ", model.context, ": ask for at most ",
             std::max<std::int64_t>(0, model.context - prompt)));
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    fail(str("the temperature must be 0 or more, got ", options.temperature));
  if (options.top_k < 0) fail(str("top-k must be 0 (all tokens) or more, got ", options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1))
    fail(str("top-p must be above 0 and at most 1, got ", options.top_p));
  if (options.count < 1 || options.batch < 1)
    fail(str("count and batch must be at least 1, got ", options.count, " and ", options.batch));
}

double sample_uniform(std::uint64_t seed, std::int64_t sample, std::int64_t position) {
  const auto s = static_cast<std::uint64_t>(sample);
  const Philox4 bits = philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(s),
                                   static_cast<std::uint32_t>(s >> 32), kSampleStream},
                                  seed);
  const std::uint64_t wide = (std::uint64_t{bits[0]} << 32 | bits[1]) >> 11;
  return static_cast<double>(wide) * 0x1p-53;
}

std::int32_t choose_token(std::span<const double> logits, const SampleOptions& options, double uniform) {
  for (const double logit : logits)
    if (!std::isfinite(logit))
      fail("the model's logits are not finite: its weights are damaged or training diverged");
  std::vector<std::int32_t> ranked(logits.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  const auto logit = [&](std::int32_t token) { return logits[static_cast<std::size_t>(token)]; };
  std::sort(ranked.begin(), ranked.end(), [&](std::int32_t a, std::int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  if (options.temperature == 0) return ranked[0];
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(ranked.size()))
    ranked.resize(static_cast<std::size_t>(options.top_k));
  std::vector<double> weight;
  for (const std::int32_t token : ranked)
    weight.push_back(std::exp((logit(token) - logit(ranked[0])) / options.temperature));
  const double kept = options.top_p * std::accumulate(weight.begin(), weight.end(), 0.0);
  double total = 0;
  std::size_t count = 0;
  do total += weight[count++];
  while (count < weight.size() && total < kept);
  double below = 0;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    below += weight[i];
    if (uniform * total < below) return ranked[i];
  }
  return ranked[count - 1];
}

SampleStats sample(Device& device, Model& model, const ModelConfig& config, const SampleOptions& options,
                   const OnToken& on_token, const OnPositions& on_positions) {
  check_sample_options(options, config);
  SampleStats stats;
  Stopwatch clock;
  clock.start();
  for (std::int64_t first = 0; first < options.count; first += options.batch) {
    BatchSampler batch(device, model, options, first, std::min(options.batch, options.count - first));
    if (first == 0) batch.describe_cache(stats);  // the first batch is the largest
    batch.run(on_token, on_positions);
  }
  stats.seconds = clock.seconds();
  stats.tokens = options.count * options.length;
  return stats;
}

KeysRead keys_read(const AttentionPattern& pattern, int heads, std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> of_group(static_cast<std::size_t>(pattern.groups(heads)), -1);
  std::int64_t sum = 0;
  std::vector<KeyRun> runs;
  for (int head = 0; head < heads; ++head) {
    std::int64_t& keys = of_group.at(static_cast<std::size_t>(pattern.group(head)));
    if (keys < 0) {
      keys = 0;
      for (std::int64_t i = first; i < last; ++i) {
        runs.clear();
        pattern.key_runs(head, i, runs);
        keys += keys_in(runs, i + 1);
      }
    }
    sum += keys;
  }
  return {static_cast<double>(sum) / static_cast<double>(heads * (last - first)),
          static_cast<double>(first + last + 1) / 2};
}

std::string stats_text(const SampleStats& stats, std::int64_t first, std::int64_t last) {
  std::string text =
      str(stats.tokens, " tokens in ", fixed_text(stats.seconds, 2),
          " s: ", fixed_text(static_cast<double>(stats.tokens) / std::max(stats.seconds, 1e-9), 1),
          " tokens/s\n");
  if (stats.cache.empty()) return text;
  std::vector<std::vector<std::string>> rows = {
      {"layers", "pattern", "keys read", "of dense", "cache rows", "of dense", "cache", "of dense"}};
  std::size_t dense_bytes = 0;
  for (const CacheUse& use : stats.cache) {
    const auto heads = static_cast<int>(use.rows.size());
    const KeysRead keys = keys_read(*use.pattern, heads, first, last);
    const auto [least, most] = std::minmax_element(use.rows.begin(), use.rows.end());
    rows.push_back(
        {numbers_text(use.layers), use.pattern->name(), fixed_text(keys.pattern, 1),
         fixed_text(keys.dense, 1),
         *least == *most ? grouped_digits(*most) : str(grouped_digits(*least), "-", grouped_digits(*most)),
         grouped_digits(use.dense_rows), bytes_text(use.bytes), bytes_text(use.dense_bytes)});
    dense_bytes += use.dense_bytes;
  }
  text += "keys that a head reads for a token, rows that a head keeps, and memory of a batch:\n";
  return text + text_table(rows, 2) +
         str("cache ", bytes_text(stats.cache_bytes), ", with dense attention ", bytes_text(dense_bytes));
}

std::vector<std::int32_t> text_to_tokens(const std::string& text, std::int64_t vocab) {
  std::vector<std::int32_t> tokens;
  if (vocab <= 256) {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  } else {
    std::istringstream in(text);
    for (std::int32_t token; in >> token;) tokens.push_back(token);
    if (!in.eof())
      fail(str("this model has ", vocab, " tokens: the prompt must be numbers separated by spaces"));
  }
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab)
      fail(str("prompt: token ", i, " is ", tokens[i], ", the model knows 0 to ", vocab - 1));
  return tokens;
}

std::string token_to_text(std::int32_t token, std::int64_t vocab) {
  return vocab <= 256 ? std::string(1, static_cast<char>(token)) : str(token, ' ');
}

}  // namespace weft
