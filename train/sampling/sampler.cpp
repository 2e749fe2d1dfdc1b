// SPDX-License-Identifier: MIT
#include "train/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "src/graph.h"
#include "src/memory.h"
#include "src/patterns/pattern.h"
#include "train/program/counts.h"
#include "train/program/progress.h"

namespace weft {
namespace {

// Tokens stay on the device for about this long before they are read.
constexpr double kLateSeconds = 0.04;

[[noreturn]] void fail_on_logits() {
  fail("the model's logits are not finite: its weights are damaged or training diverged");
}

// Batches of samples, one after the other, with equal numbers of rows: one cache and one graph serve them
// all. Rows beyond the last sample are computed and dropped.
class BatchSampler {
 public:
  BatchSampler(Device& device, Model& model, const SampleOptions& options, SampleStats& stats)
      : device_(device), model_(model), options_(options), stats_(stats), graph_(device, options.graph) {
    ctx_.queue = &device.queue;
    ctx_.pool = device.pool.get();
    ctx_.batch_invariant = true;
    batches_ = (options.count + options.batch - 1) / options.batch;
    rows_ = (options.count + batches_ - 1) / batches_;
    length_ = options.given() + options.length;
    const auto kinds = static_cast<std::int64_t>(options.conditions.size());
    sequences_.tokens = integers({rows_, length_});
    drawn_ = integers({length_, rows_});
    first_sample_ = integers({1});
    if (!options.positions.empty()) sequences_.positions = repeated(options.positions, {rows_, length_});
    if (kinds > 0) sequences_.conditions = repeated(options.conditions, {rows_, kinds});
    if (!options.cached) return;
    cache_ = model.make_cache(device, rows_, length_);
    stats.cache_bytes = cache_->bytes();
    stats.cache = cache_->use();
  }

  void run(const OnToken& on_token, const OnPositions& on_positions) {
    for (std::int64_t batch = 0; batch < batches_; ++batch) {
      begin(batch * rows_);
      cache_ ? run_cached(on_token, on_positions) : run_plain(on_token);
    }
  }

 private:
  Tensor integers(const Shape& shape) { return Tensor(*device_.pool, shape, DType::i32, "sampling"); }
  Tensor repeated(const std::vector<std::int32_t>& row, const Shape& shape) {
    std::vector<std::int32_t> all;
    for (std::int64_t b = 0; b < rows_; ++b) all.insert(all.end(), row.begin(), row.end());
    const Tensor t = integers(shape);
    device_.upload(t, all.data());
    return t;
  }

  // Prompts of the samples from `first` on.
  void begin(std::int64_t first) {
    first_ = first;
    std::vector<std::int32_t> start(static_cast<std::size_t>(rows_ * length_), 0);
    for (std::int64_t b = 0; b < rows_; ++b) {
      const auto sample = static_cast<std::size_t>(std::min(first + b, options_.count - 1));
      const auto& prompt = options_.prompts.empty() ? options_.prompt : options_.prompts[sample];
      std::copy(prompt.begin(), prompt.end(), start.begin() + b * length_);
    }
    device_.upload(sequences_.tokens, start.data());
    const auto number = static_cast<std::int32_t>(options_.first + first);
    device_.upload(first_sample_, &number);
  }

  // What the GPU does at a position, which it reads from memory: a graph replays it.
  void step() {
    const Tensor logits = model_.decode_step(ctx_, *cache_, sequences_);
    ctx_.launch(ChooseToken{.tokens = sequences_.tokens,
                            .drawn = drawn_,
                            .logits = logits,
                            .position = cache_->position(),
                            .first_sample = first_sample_.view().as<std::int32_t>(),
                            .given = options_.given(),
                            .choice = options_.choice(),
                            .seed = options_.seed});
  }

  // Reads after blocks of positions: as many as take about kLateSeconds.
  void run_cached(const OnToken& on_token, const OnPositions& on_positions) {
    std::int64_t read = 0, block = 1;
    Stopwatch clock;
    clock.start();
    for (std::int64_t position = 0; position < length_; ++position) {
      cache_->seek(position);
      graph_.run([this] { step(); });
      if (stats_.positions++ == 0) stats_.launches = ctx_.launches;
      if (position + 1 - read < block && position + 1 < length_) continue;
      deliver(read, position + 1, on_token);
      if (on_positions) on_positions(stats_.positions, batches_ * length_);
      const double seconds = clock.seconds();
      if (seconds < kLateSeconds / 2) block *= 2;
      if (seconds > kLateSeconds) block = std::max<std::int64_t>(1, block / 2);
      read = position + 1;
      clock.start();
    }
  }

  // Waits for the positions first .. last - 1 and hands out what was drawn there.
  void deliver(std::int64_t first, std::int64_t last, const OnToken& on_token) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>((last - first) * rows_));
    device_.download(tokens.data(), drawn_.slice(first * rows_, {last - first, rows_}));
    for (std::int64_t position = std::max(first, options_.given()); position < last; ++position)
      for (std::int64_t b = 0; b < rows_; ++b) {
        const std::int32_t token = tokens[static_cast<std::size_t>((position - first) * rows_ + b)];
        if (token < 0) fail_on_logits();
        if (first_ + b < options_.count) on_token(first_ + b, position, token);
      }
  }

  // The reference: whole forward passes, tokens chosen on the host.
  void run_plain(const OnToken& on_token) {
    for (std::int64_t position = options_.given(); position < length_; ++position) {
      const Tensor logits = model_.logits(ctx_, sequences_);
      const std::int64_t vocab = logits.view().cols();
      for (std::int64_t b = 0; b < rows_ && first_ + b < options_.count; ++b) {
        const std::int64_t row = b * length_ + position;
        const std::int32_t token =
            choose_token(to_host(device_, logits.slice(row * vocab, {vocab})), options_.choice(),
                         sample_uniform(options_.seed, options_.first + first_ + b, position));
        if (token < 0) fail_on_logits();
        device_.upload_async(sequences_.tokens.view().as<std::int32_t>() + row, &token, sizeof token);
        on_token(first_ + b, position, token);
      }
      ++stats_.positions;
    }
  }

  Device& device_;
  Model& model_;
  const SampleOptions& options_;
  SampleStats& stats_;
  GraphedStep graph_;
  Ctx ctx_;
  std::int64_t batches_ = 0, rows_ = 0, length_ = 0, first_ = 0;
  Sequences sequences_{Tensor{}};
  Tensor drawn_, first_sample_;
  std::unique_ptr<DecodeCache> cache_;
};

void check_prompts(const SampleOptions& options, std::int64_t vocab) {
  if (!options.prompts.empty() && !options.prompt.empty())
    fail("either one prompt for all samples or one for each, not both");
  if (!options.prompts.empty() && static_cast<std::int64_t>(options.prompts.size()) != options.count)
    fail(str(options.prompts.size(), " prompts for ", options.count, " samples"));
  std::vector<std::vector<std::int32_t>> all = options.prompts;
  all.push_back(options.prompts.empty() ? options.prompt : options.prompts[0]);
  for (const auto& prompt : all) {
    if (static_cast<std::int64_t>(prompt.size()) != options.given())
      fail(str("prompts must be of one length, got ", options.given(), " and ", prompt.size(), " tokens"));
    for (const std::int32_t token : prompt)
      if (token < 0 || token >= vocab)
        fail(str("prompt: a token is ", token, ", the model knows 0 to ", vocab - 1));
  }
}

void check_positions(const SampleOptions& options, std::int64_t context) {
  if (options.positions.empty()) return;
  const std::int64_t length = options.given() + options.length;
  if (static_cast<std::int64_t>(options.positions.size()) != length)
    fail(str(options.positions.size(), " places for texts of ", length, " tokens, prompt included"));
  for (const std::int32_t place : options.positions)
    if (place < 0 || place >= context)
      fail(str("a token's place is ", place, ", the model knows 0 to ", context - 1));
}

// The samples of one rank, in one piece; the first ranks have one more where the number does not divide.
SampleOptions part_of(const SampleOptions& all, std::int64_t rank, std::int64_t ranks) {
  SampleOptions part = all;
  const std::int64_t each = all.count / ranks, more = all.count % ranks;
  const std::int64_t first = rank * each + std::min(rank, more);
  part.first += first;
  part.count = each + (rank < more ? 1 : 0);
  if (!all.prompts.empty())
    part.prompts.assign(all.prompts.begin() + first, all.prompts.begin() + first + part.count);
  return part;
}

// Draws this rank's samples; rank 0 then hands out those of all ranks.
void sample_part(Device& device, Model& model, const SampleOptions& options, SampleStats& stats,
                 const OnToken& on_token, const OnPositions& on_positions) {
  ProcessGroup& group = *options.group;
  const SampleOptions part = part_of(options, group.rank(), group.size());
  std::vector<std::int32_t> drawn(static_cast<std::size_t>(part.count * part.length));
  const auto keep = [&](std::int64_t sample, std::int64_t position, std::int32_t token) {
    drawn[static_cast<std::size_t>(sample * part.length + position - options.given())] = token;
  };
  const auto report = [&](std::int64_t done, std::int64_t all) {
    group.report_step(done);
    if (on_positions) on_positions(done, all);
  };
  if (part.count > 0) BatchSampler(device, model, part, stats).run(keep, report);
  std::string all;
  for (const std::string& of_rank :
       group.gather({reinterpret_cast<const char*>(drawn.data()), drawn.size() * sizeof(std::int32_t)}))
    all += of_rank;
  if (group.rank() != 0) return;
  group.take_time();  // it writes
  for (std::int64_t t = 0; t < options.length; ++t)
    for (std::int64_t sample = 0; sample < options.count; ++sample) {
      std::int32_t token = 0;
      std::memcpy(&token, all.data() + static_cast<std::size_t>(sample * options.length + t) * sizeof token,
                  sizeof token);
      on_token(sample, options.given() + t, token);
    }
}

}  // namespace

void check_sample_options(const SampleOptions& options, const ModelConfig& model) {
  const std::int64_t prompt = options.given();
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
  if (options.count < 1 || options.batch < 1 || options.first + options.count > kMaxPositions)
    fail(str("count and batch must be at least 1, got ", options.count, " and ", options.batch));
  check_prompts(options, model.vocab);
  check_positions(options, model.context);
}

SampleStats sample(Device& device, Model& model, const ModelConfig& config, const SampleOptions& options,
                   const OnToken& on_token, const OnPositions& on_positions) {
  check_sample_options(options, config);
  SampleStats stats;
  Stopwatch clock;
  clock.start();
  if (options.group && options.group->size() > 1) {
    sample_part(device, model, options, stats, on_token, on_positions);
  } else {
    BatchSampler(device, model, options, stats).run(on_token, on_positions);
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
  const double seconds = std::max(stats.seconds, 1e-9);
  std::string text = str(
      stats.tokens, " tokens in ", fixed_text(stats.seconds, 2),
      " s: ", fixed_text(static_cast<double>(stats.tokens) / seconds, 1), " tokens/s, ",
      fixed_text(1e3 * stats.seconds / static_cast<double>(std::max<std::int64_t>(1, stats.positions)), 3),
      " ms a position");
  if (stats.launches > 0) text += str(", ", stats.launches, " kernels each");
  text += '\n';
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
