// SPDX-License-Identifier: MIT
#include "train/sampling/sampler.h"

#include "src/config/config.h"
#include "src/config/names.h"
#include "src/patterns/pattern.h"
#include "train/program/counts.h"
#include "train/program/progress.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {
// Tokens stay on the device for about this long before they are read.
constexpr double kLateSeconds = 0.04;

// Prompts are read in so many positions or a multiple, so that few lengths need tile tables of
// their own.
constexpr int64_t kPromptUnit = 128;
// Samples of texts that are longer than the context.
constexpr int64_t kSamplesOfWindow = 1 << 20, kMostTexts = 4096;

// Batches of samples, one after the other, with equal numbers of rows: one cache and one graph
// serve them all. Rows beyond the last sample are computed and dropped.
class BatchSampler {
 public:
  BatchSampler(Device& device, Model& model, int64_t context, const SampleOptions& options,
               SampleStats& stats)
      : device_(device),
        model_(model),
        options_(options),
        stats_(stats),
        context_(context),
        graph_(device, options.graph) {
    ctx_.queue = &device.queue;
    ctx_.pool = device.pool.get();
    ctx_.batch_invariant = true;
    batches_ = (options.count + options.batch - 1) / options.batch;
    rows_ = (options.count + batches_ - 1) / batches_;
    window_ = options.next ? context : std::min(context, options.given() + options.length);
    texts_.resize(rows_);
    sequences_ = sequences(rows_, window_);
    drawn_ = integers({window_, rows_});
    first_sample_ = integers({1});
    if (!options.cached) return;
    cache_ = model.make_cache(device, rows_, window_,
                              options.texts ? options.texts : options.first + options.count);
    stats.cache_bytes = cache_->bytes();
    stats.prepared_bytes = cache_->prepared_bytes();
    stats.cache = cache_->use();
  }

  void run(const OnToken& on_token, const OnPositions& on_positions) {
    for (first_ = 0; first_ < batches_ * rows_; first_ += rows_) {
      for (int64_t b = 0; b < rows_; ++b) {
        const int64_t sample = std::min(first_ + b, options_.count - 1);
        texts_[b] = options_.prompts.empty() ? options_.prompt : options_.prompts[sample];
      }
      windows_ = 0;
      open_window();
      do cache_ ? draw(size() + options_.length, on_token, on_positions) : draw_plain(on_token);
      while (options_.next && options_.next(texts_[0]));
    }
  }

 private:
  int64_t size() const { return std::ssize(texts_[0]); }  // of a text by now

  Tensor integers(const Shape& shape) {
    return Tensor(*device_.pool, shape, DType::i32, "sampling");
  }

  // What `count` texts are told, in windows of `length` tokens.
  Sequences sequences(int64_t count, int64_t length) {
    const auto repeated = [&](std::vector<int32_t> row, int64_t columns) {
      if (row.empty()) return Tensor{};
      row.resize(columns);
      std::vector<int32_t> all;
      for (int64_t b = 0; b < count; ++b) all.insert(all.end(), row.begin(), row.end());
      const Tensor t = integers({count, columns});
      device_.upload(t, all.data());
      return t;
    };
    return {integers({count, length}),
            {},
            repeated(options_.positions, length),
            repeated(options_.conditions, std::ssize(options_.conditions))};
  }

  // The texts so far, or of texts that fill the window the last half of it, are read in one pass
  // each; equal neighbours share it. A later window draws as another sample would: its positions
  // were there before.
  void open_window() {
    base_ = size() < window_ ? 0 : size() - window_ / 2;
    next_ = size();
    const int64_t known = next_ - base_;
    std::vector<int32_t> all(rows_ * window_, 0);
    for (int64_t b = 0; b < rows_; ++b)
      std::copy(texts_[b].begin() + base_, texts_[b].end(), all.begin() + b * window_);
    device_.upload(sequences_.tokens, all.data());
    const auto number = static_cast<int32_t>(
        (options_.first + first_ + windows_++ * kSamplesOfWindow) % kMaxPositions);
    device_.upload(first_sample_, &number);
    if (cache_ && known > 0)
      read_prompts(device_, ctx_, model_, *cache_, all, rows_, known, context_,
                   [this](int64_t length) { return sequences(1, length); });
  }

  // What the GPU does at a position, which it reads from memory: a graph replays it.
  void step() {
    const Tensor logits = model_.decode_step(ctx_, *cache_, sequences_);
    ctx_.launch(ChooseToken{
        .tokens = sequences_.tokens,
        .drawn = drawn_,
        .logits = logits,
        .position = cache_->position(),
        .first_sample = first_sample_.view().as<int32_t>(),
        .choice = options_.choice(),
        .seed = options_.seed,
    });
  }

  // Until texts have `length` tokens, or no more is wanted of them. Reads after blocks of
  // positions: as many as take about kLateSeconds; of a text that a person goes on with each, so
  // that none is drawn in vain.
  void draw(int64_t length, const OnToken& on_token, const OnPositions& on_positions) {
    int64_t block = 1;
    while (next_ < length && !(options_.ended && options_.ended(first_, rows_))) {
      if (next_ == base_ + window_ || size() - next_ > kPromptUnit) open_window();
      Stopwatch clock(true);
      const int64_t begin = next_, end = std::min({begin + block, base_ + window_, length});
      for (; next_ < end; ++next_) {
        cache_->seek(next_ - base_);
        graph_.run([this] { step(); });
        if (stats_.positions++ == 0) stats_.launches = ctx_.launches;
        if (next_ < size())  // given in between
          device_.upload_async(sequences_.tokens.view().as<int32_t>() + next_ - base_,
                               &texts_[0][next_], sizeof(int32_t));
      }
      deliver(begin, end, on_token);
      const double seconds = clock.seconds();
      stats_.step_seconds += seconds;
      if (on_positions) on_positions(stats_.positions, batches_ * options_.length);
      if (seconds < kLateSeconds / 2 && !options_.next) block = std::min(2 * block, window_);
      if (seconds > kLateSeconds) block = std::max<int64_t>(1, block / 2);
    }
  }

  // Waits for the positions first .. last - 1 and hands out what was drawn there.
  void deliver(int64_t first, int64_t last, const OnToken& on_token) {
    std::vector<int32_t> tokens((last - first) * rows_);
    device_.download(tokens.data(), drawn_.slice((first - base_) * rows_, {last - first, rows_}));
    for (int64_t position = std::max(first, size()); position < last; ++position)
      for (int64_t b = 0; b < rows_; ++b)
        hand_out(b, position, tokens[(position - first) * rows_ + b], on_token);
  }

  void hand_out(int64_t b, int64_t position, int32_t token, const OnToken& on_token) {
    if (token < 0)
      fail("the model's logits are not finite: its weights are damaged or training diverged");
    texts_[b].push_back(token);
    if (first_ + b >= options_.count) return;
    if (stats_.tokens++ == 0) stats_.first_seconds = since_.seconds();
    on_token(first_ + b, position, token);
  }

  // The reference: whole forward passes, tokens chosen on the host.
  void draw_plain(const OnToken& on_token) {
    for (int64_t position = options_.given(); position < window_; ++position) {
      const Tensor logits = model_.logits(ctx_, sequences_);
      const int64_t vocab = logits.view().cols();
      for (int64_t b = 0; b < rows_ && first_ + b < options_.count; ++b) {
        const int64_t row = b * window_ + position;
        const int32_t token =
            choose_token(to_host(device_, logits.slice(row * vocab, {vocab})), options_.choice(),
                         sample_uniform(options_.seed, options_.first + first_ + b, position));
        hand_out(b, position, token, on_token);
        device_.upload_async(sequences_.tokens.view().as<int32_t>() + row, &token, sizeof token);
      }
      ++stats_.positions;
    }
  }

  Device& device_;
  Model& model_;
  const SampleOptions& options_;
  SampleStats& stats_;
  int64_t context_;
  Stopwatch since_{true};
  GraphedStep graph_;
  Ctx ctx_;
  int64_t batches_ = 0, rows_ = 0, first_ = 0;
  int64_t window_ = 0;   // positions that the cache has
  int64_t windows_ = 0;  // that this batch has opened
  int64_t base_ = 0;     // the token of a text where its window begins
  int64_t next_ = 0;     // the first token that the model has not gone through
  std::vector<std::vector<int32_t>> texts_;
  Sequences sequences_{Tensor{}};
  Tensor drawn_, first_sample_;
  std::unique_ptr<DecodeCache> cache_;
};

void check_prompts(const SampleOptions& options, int64_t vocab) {
  if (!options.prompts.empty() && !options.prompt.empty())
    fail("either one prompt for all samples or one for each, not both");
  if (!options.prompts.empty() && std::ssize(options.prompts) != options.count)
    fail(options.prompts.size(), " prompts for ", options.count, " samples");
  std::vector<std::vector<int32_t>> all = options.prompts;
  all.push_back(options.prompts.empty() ? options.prompt : options.prompts[0]);
  for (const auto& prompt : all) {
    if (std::ssize(prompt) != options.given())
      fail("prompts must be of one length, got ", options.given(), " and ", prompt.size(),
           " tokens");
    for (const int32_t token : prompt)
      if (token < 0 || token >= vocab)
        fail("prompt: a token is ", token, ", the model knows 0 to ", vocab - 1);
  }
}

void check_positions(const SampleOptions& options, int64_t context) {
  if (options.positions.empty()) return;
  const int64_t length = options.given() + options.length;
  if (std::ssize(options.positions) != length)
    fail(options.positions.size(), " places for texts of ", length, " tokens, prompt included");
  for (const int32_t place : options.positions)
    if (place < 0 || place >= context)
      fail("a token's place is ", place, ", the model knows 0 to ", context - 1);
}

// The samples of one rank, in one piece; the first ranks have one more where the number does not
// divide.
SampleOptions part_of(const SampleOptions& all, int64_t rank, int64_t ranks) {
  SampleOptions part = all;
  const int64_t each = all.count / ranks, more = all.count % ranks;
  const int64_t first = rank * each + std::min(rank, more);
  part.first += first;
  part.texts = all.first + all.count;
  part.count = each + (rank < more ? 1 : 0);
  if (!all.prompts.empty())
    part.prompts.assign(all.prompts.begin() + first, all.prompts.begin() + first + part.count);
  return part;
}

// Draws this rank's samples; rank 0 then hands out those of all ranks.
void sample_part(Device& device, Model& model, int64_t context, const SampleOptions& options,
                 SampleStats& stats, const OnToken& on_token, const OnPositions& on_positions) {
  Processes& group = *options.group;
  const SampleOptions part = part_of(options, group.rank(), group.size());
  std::vector<int32_t> drawn(part.count * part.length);
  const auto keep = [&](int64_t sample, int64_t position, int32_t token) {
    drawn[sample * part.length + position - options.given()] = token;
  };
  const auto report = [&](int64_t done, int64_t all) {
    group.report_step(done);
    if (on_positions) on_positions(done, all);
  };
  if (part.count > 0) BatchSampler(device, model, context, part, stats).run(keep, report);
  std::vector<int32_t> all;
  for (const std::string& of_rank : group.gather(message_of(drawn))) append_numbers(all, of_rank);
  stats.tokens = options.count * options.length;
  if (group.rank() != 0) return;
  group.take_time();  // it writes
  for (int64_t t = 0; t < options.length; ++t)
    for (int64_t sample = 0; sample < options.count; ++sample)
      on_token(sample, options.given() + t, all[sample * options.length + t]);
}
}  // namespace

void check_sample_options(const SampleOptions& options, const ModelConfig& model) {
  const int64_t prompt = options.given();
  if (options.length < 1) fail("the length must be at least 1, got ", options.length);
  const bool fits = prompt + options.length <= model.context;
  if (!fits && (!options.cached || !options.positions.empty()))
    fail("the prompt of ", prompt, " tokens and ", options.length,
         " more do not fit into the context of ", model.context, ": ask for at most ",
         std::max<int64_t>(0, model.context - prompt));
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    fail("the temperature must be 0 or more, got ", options.temperature);
  if (options.top_k < 0) fail("top-k must be 0 (all tokens) or more, got ", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1))
    fail("top-p must be above 0 and at most 1, got ", options.top_p);
  const int64_t most = fits && !options.next ? int64_t{kMaxPositions} : kSamplesOfWindow;
  if (options.count < 1 || options.batch < 1 || options.first + options.count > most)
    fail("count and batch must be at least 1, and samples at most ", most, ", got ", options.count,
         " and ", options.batch);
  check_prompts(options, model.vocab);
  check_positions(options, model.context);
}

void read_prompts(Device& device, Ctx& ctx, Model& model, DecodeCache& cache,
                  const std::vector<int32_t>& tokens, int64_t rows, int64_t count, int64_t context,
                  const std::function<Sequences(int64_t length)>& sequences) {
  const Sequences text =
      sequences(std::min(context, (count + kPromptUnit - 1) / kPromptUnit * kPromptUnit));
  const int64_t columns = std::ssize(tokens) / rows;
  const auto begin_of = [&](int64_t row) { return tokens.begin() + row * columns; };
  std::vector<int32_t> padded(text.tokens.size(), 0);
  for (int64_t b = 0, same = 1; b < rows; b += same, same = 1) {
    while (b + same < rows && std::equal(begin_of(b), begin_of(b) + count, begin_of(b + same)))
      ++same;
    std::copy_n(begin_of(b), count, padded.begin());
    device.upload(text.tokens, padded.data());
    model.read_prompt(ctx, cache, text, count, b, same);
  }
}

int64_t batch_that_fits(Device& device, Model& model, const ModelConfig& config,
                        const SampleOptions& options) {
  if (options.count == 1) return 1;
  const int64_t window = std::min(config.context, options.given() + options.length);
  const std::size_t each = model.make_cache(device, 1, window)->bytes() +
                           static_cast<std::size_t>(16 * (config.vocab + config.width + window));
  return std::clamp<int64_t>(static_cast<int64_t>(device.memory_free() * 4 / 5 / each), 1,
                             std::min(options.count, kMostTexts));
}

SampleStats sample(Device& device, Model& model, const ModelConfig& config,
                   const SampleOptions& options, const OnToken& on_token,
                   const OnPositions& on_positions) {
  check_sample_options(options, config);
  SampleStats stats;
  const Stopwatch clock(true);
  if (options.group && options.group->size() > 1) {
    sample_part(device, model, config.context, options, stats, on_token, on_positions);
  } else {
    BatchSampler(device, model, config.context, options, stats).run(on_token, on_positions);
  }
  stats.seconds = clock.seconds();
  return stats;
}

KeysRead keys_read(const AttentionPattern& pattern, int heads, int64_t first, int64_t last) {
  std::vector<int64_t> of_group(pattern.groups(heads), -1);
  int64_t sum = 0;
  std::vector<KeyRun> runs;
  for (int head = 0; head < heads; ++head) {
    int64_t& keys = of_group.at(pattern.group(head));
    if (keys < 0) {
      keys = 0;
      for (int64_t i = first; i < last; ++i) {
        runs.clear();
        pattern.key_runs(head, i, runs);
        const int64_t most = pattern.most_keys(head), all = keys_in(runs, i + 1);
        keys += most ? std::min(most, all) : all;
      }
    }
    sum += keys;
  }
  return {static_cast<double>(sum) / static_cast<double>(heads * (last - first)),
          static_cast<double>(first + last + 1) / 2};
}

std::string stats_text(const SampleStats& stats, int64_t given, int64_t length, int64_t context) {
  // a prompt that fills the context is followed in a window that begins with its last half
  const int64_t first = given < context ? given : context / 2;
  const int64_t last = std::min(first + length, context);
  const double seconds = std::max(stats.seconds, 1e-9);
  std::string text =
      str(stats.tokens, " tokens in ", fixed_text(stats.seconds, 2),
          " s: ", fixed_text(static_cast<double>(stats.tokens) / seconds, 1), " tokens/s, ",
          fixed_text(1e3 * stats.first_seconds, 1), " ms to the first, ",
          fixed_text(stats.position_ms(), 3), " ms a position");
  if (stats.launches > 0) text += str(", ", stats.launches, " kernels each");
  text += '\n';
  if (stats.cache.empty()) return text;
  std::vector<std::vector<std::string>> rows = {{"layers", "pattern", "keys read", "of dense",
                                                 "cache rows", "of dense", "cache", "of dense"}};
  std::size_t dense_bytes = 0;
  for (const CacheUse& use : stats.cache) {
    const auto heads = static_cast<int>(use.rows.size());
    const KeysRead keys = keys_read(*use.pattern, heads, first, last);
    const auto [least, most] = std::minmax_element(use.rows.begin(), use.rows.end());
    rows.push_back({numbers_text(use.layers), use.pattern->name(), fixed_text(keys.pattern, 1),
                    fixed_text(keys.dense, 1),
                    *least == *most ? grouped_digits(*most)
                                    : str(grouped_digits(*least), "-", grouped_digits(*most)),
                    grouped_digits(use.dense_rows), bytes_text(use.bytes),
                    bytes_text(use.dense_bytes)});
    dense_bytes += use.dense_bytes;
  }
  text += "keys that a head reads for a token, rows that a head keeps, and memory of a batch:\n";
  return text + text_table(rows, 2) +
         str("cache ", bytes_text(stats.cache_bytes), ", with dense attention ",
             bytes_text(dense_bytes));
}

std::vector<int32_t> text_to_tokens(const std::string& text, TextForm form,
                                    const std::string& what) {
  std::vector<int64_t> read;
  if (form.numbers) {
    std::istringstream in(text);
    for (std::string word; in >> word;) {
      const auto token = number_in<int64_t>(word);
      if (!token)
        fail(what, ": expected numbers from 0 to ", form.vocab - 1, ", separated by spaces; got \"",
             text.substr(0, 40), text.size() > 40 ? "...\"" : "\"");
      read.push_back(*token);
    }
  } else {
    for (const char c : text) read.push_back(static_cast<unsigned char>(c));
  }
  for (std::size_t i = 0; i < read.size(); ++i)
    if (read[i] < 0 || read[i] >= form.vocab)
      fail(what, ": token ", i, " is ", read[i], ", the model knows 0 to ", form.vocab - 1);
  return {read.begin(), read.end()};
}

std::string token_to_text(int32_t token, TextForm form) {
  return form.numbers ? str(token, ' ') : std::string(1, static_cast<char>(token));
}
}  // namespace weft
