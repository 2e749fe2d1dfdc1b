// SPDX-License-Identifier: MIT
#include "train/evaluation/evaluator.h"

#include "data/batch_source.h"
#include "kernels/layers/pointwise.h"
#include "src/config/conditions.h"
#include "src/config/config.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
// Row `b` of a (count, size) matrix.
template <class T>
std::span<T> row(std::vector<T>& matrix, int64_t b, int64_t size) {
  return std::span(matrix).subspan(b * size, size);
}

HostBatch read_windows(const TokenDataset& data, const EvalOptions& options,
                       const EvalWindow* windows, int64_t count) {
  const int64_t length = windows[0].length;
  HostBatch batch;
  batch.tokens.resize(count * length);
  for (int64_t b = 0; b < count; ++b) data.read(windows[b].first, row(batch.tokens, b, length));
  const ItemView* items = options.items;
  if (!items) return batch;
  const int64_t conditions = items->conditions();
  batch.positions.resize(items->moves_positions() ? batch.tokens.size() : 0);
  batch.conditions.resize(count * conditions);
  for (int64_t b = 0; b < count; ++b)
    items->apply(windows[b].first / length, row(batch.tokens, b, length),
                 batch.positions.empty() ? std::span<int32_t>{} : row(batch.positions, b, length),
                 row(batch.conditions, b, conditions));
  return batch;
}

// A batch of windows as one rank has scored it.
struct Scored {
  std::vector<double> sums;     // nats of the scored tokens of each window
  std::vector<int32_t> tokens;  // (windows, length), as the model saw them
  std::vector<double> nats;     // of each of these tokens
};

// Nats of each of the tokens (B, T) by what sampling would draw them from.
std::vector<double> decoded_nats(Ctx& ctx, Device& device, Model& model, const Sequences& s,
                                 const std::vector<int32_t>& tokens, int64_t count, int64_t length,
                                 Processes* group) {
  const auto cache = model.make_cache(device, count, length);
  std::vector<double> nats(tokens.size());
  for (int64_t t = 0; t < length; ++t) {
    if (group) group->report_progress();  // a batch may take longer than a step is allowed to
    std::vector<double> logits = to_host(device, model.decode(ctx, *cache, s, t));
    for (int64_t b = 0; b < count; ++b) {
      const std::span<double> z = row(logits, b, std::ssize(logits) / count);
      const double top = *std::max_element(z.begin(), z.end());
      double sum = 0;
      for (const double logit : z) sum += std::exp(logit - top);
      const auto at = static_cast<std::size_t>(b * length + t);
      nats[at] = top + std::log(sum) - z[static_cast<std::size_t>(tokens[at])];
    }
  }
  return nats;
}

Scored score(Ctx& ctx, Device& device, Model& model, const TokenDataset& data,
             const EvalOptions& options, const EvalWindow* windows, int64_t count) {
  const int64_t length = windows[0].length;
  HostBatch host = read_windows(data, options, windows, count);
  DeviceBatch batch(device, "evaluation");
  batch.make(host, count, length);
  batch.upload(host);
  Scored scored;
  const Sequences s = batch.sequences();
  scored.nats = options.decode
                    ? decoded_nats(ctx, device, model, s, host.tokens, count, length, options.group)
                    : to_host(device, model.token_losses(ctx, s).value);
  scored.tokens = std::move(host.tokens);
  for (int64_t b = 0; b < count; ++b) {
    const std::span<double> nats = row(scored.nats, b, length);
    scored.sums.push_back(std::accumulate(nats.begin() + windows[b].scored, nats.end(), 0.0));
  }
  return scored;
}

// The values of all ranks one after the other, on every rank, or with `to_first` on rank 0 alone.
template <class T>
void gather(Processes& group, std::vector<T>& values, bool to_first) {
  const std::string mine = message_of(values);
  values.clear();
  for (const std::string& of_rank : to_first ? group.gather(mine) : group.all_gather(mine))
    append_numbers(values, of_rank);
}

// Windows first .. first + (ranks * batch) - 1, one batch a rank.
Scored score_round(Ctx& ctx, Device& device, Model& model, const TokenDataset& data,
                   const EvalOptions& options, const std::vector<EvalWindow>& windows,
                   int64_t first) {
  if (options.group) first += options.group->rank() * options.batch;
  const int64_t count = std::min(options.batch, std::ssize(windows) - first);
  Scored scored;
  if (count > 0) scored = score(ctx, device, model, data, options, &windows[first], count);
  if (!options.group || options.group->size() == 1) return scored;
  gather(*options.group, scored.sums, false);
  if (!options.on_losses) return scored;
  gather(*options.group, scored.tokens, true);
  gather(*options.group, scored.nats, true);
  return scored;
}

// Of the split, as many tokens as are scored.
int64_t tokens_to_score(const TokenDataset& data, const EvalOptions& options) {
  if (options.max_tokens <= 0 || options.max_tokens >= data.size()) return data.size();
  if (!data.image()) return options.max_tokens;
  const int64_t image = data.image().tokens();
  return (options.max_tokens + image - 1) / image * image;
}
}  // namespace

std::vector<EvalWindow> plan_windows(int64_t size, int64_t context, int64_t min_context) {
  if (min_context < 0 || min_context >= context)
    fail("the minimum context must be at least 0 and below the context of ", context, ", got ",
         min_context);
  if (size <= 0) fail("there is nothing to evaluate: the split is empty");
  std::vector<EvalWindow> windows{{0, std::min(size, context), 0}};
  for (int64_t done = windows[0].length; done < size;) {
    const int64_t end = std::min(size, done + context - min_context);
    windows.push_back({end - context, context, done - (end - context)});
    done = end;
  }
  return windows;
}

EvalResult evaluate(Device& device, Model& model, const TokenDataset& data,
                    const EvalOptions& options,
                    const std::function<void(int64_t, int64_t)>& progress) {
  WEFT_CHECK(options.batch >= 1, "evaluation needs a batch of at least 1, got ", options.batch);
  WEFT_CHECK(!data.image() || options.context == data.image().tokens(), "images of ",
             data.image().tokens(), " tokens in windows of ", options.context);
  if (data.image() && options.min_context > 0)
    fail(data.path(), " has images, which are scored whole: a minimum context (",
         options.min_context, ") is for text");
  const int64_t size = tokens_to_score(data, options);
  const std::vector<EvalWindow> windows = plan_windows(size, options.context, options.min_context);
  Ctx ctx{.queue = &device.queue, .pool = device.pool.get()};
  ctx.may_stop = !options.group;
  EvalResult result;
  double nats = 0;
  const auto total = std::ssize(windows);
  for (int64_t i = 0; i < total;) {
    Scored scored = score_round(ctx, device, model, data, options, windows, i);
    const int64_t length = windows[0].length, first = i;
    for (const double sum : scored.sums) {
      const EvalWindow& window = windows[i];
      nats += sum;
      result.tokens += length - window.scored;
      if (options.on_losses && !scored.nats.empty())
        options.on_losses(window, row(scored.tokens, i - first, length),
                          row(scored.nats, i - first, length));
      ++i;
    }
    if (progress) progress(result.tokens, size);
  }
  result.bits = nats / static_cast<double>(result.tokens) / std::numbers::ln2;
  return result;
}

void with_ema_weights(Device& device, ParameterStore& store, const std::function<void()>& work) {
  WEFT_CHECK(store.ema(), "no moving average is kept: set train.ema_decay");
  Ctx ctx{.queue = &device.queue, .pool = device.pool.get()};
  const Tensor weights = ctx.empty(store.ema().shape(), store.ema().dtype(), "evaluation");
  const auto copy = [&](const Tensor& to, const Tensor& from) {  // what this process has of each
    for (const OwnPart& part : store.own_parts())
      ctx.launch(Add{{store.slice_of(to, part), false}, store.slice_of(from, part)});
  };
  const auto use = [&](const Tensor& from) {
    copy(store.master(), from);
    store.refresh_compute(ctx);
  };
  copy(weights, store.master());
  use(store.ema());
  try {
    work();
  } catch (...) {
    use(weights);
    throw;
  }
  use(weights);
}
}  // namespace weft
