// SPDX-License-Identifier: MIT
// Evaluation over a split, and the moving average in place of the weights.
#include "train/evaluator.h"

#include <algorithm>
#include <numbers>

#include "kernels/pointwise.h"

namespace weft {
namespace {

// Nats of the scored tokens of `count` windows from `windows`, added to `nats` in the order of the split.
void score(Ctx& ctx, Device& device, Model& model, const TokenDataset& data, const EvalWindow* windows,
           std::int64_t count, EvalResult& result, double& nats) {
  const std::int64_t length = windows[0].length;
  std::vector<std::int32_t> host(static_cast<std::size_t>(count * length));
  for (std::int64_t b = 0; b < count; ++b)
    data.read(windows[b].first, std::span(host).subspan(static_cast<std::size_t>(b * length),
                                                        static_cast<std::size_t>(length)));
  const Tensor tokens(*ctx.pool, {count, length}, DType::i32, "evaluation");
  device.upload(tokens, host.data());
  const std::vector<double> losses = to_host(device, model.token_losses(ctx, tokens).value);
  for (std::int64_t b = 0; b < count; ++b) {
    for (std::int64_t t = windows[b].scored; t < length; ++t)
      nats += losses[static_cast<std::size_t>(b * length + t)];
    result.tokens += length - windows[b].scored;
  }
}

}  // namespace

std::vector<EvalWindow> plan_windows(std::int64_t size, std::int64_t context, std::int64_t min_context) {
  if (min_context < 0 || min_context >= context)
    fail(str("the minimum context must be at least 0 and below the context of ", context, ", got ",
             min_context));
  if (size <= 0) fail("there is nothing to evaluate: the split is empty");
  std::vector<EvalWindow> windows{{0, std::min(size, context), 0}};
  for (std::int64_t done = windows[0].length; done < size;) {
    const std::int64_t end = std::min(size, done + context - min_context);
    windows.push_back({end - context, context, done - (end - context)});
    done = end;
  }
  return windows;
}

EvalResult evaluate(Device& device, Model& model, const TokenDataset& data, const EvalOptions& options,
                    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  WEFT_CHECK(options.batch >= 1, "evaluation needs a batch of at least 1, got ", options.batch);
  const std::int64_t size = options.max_tokens > 0 ? std::min(options.max_tokens, data.size()) : data.size();
  const std::vector<EvalWindow> windows = plan_windows(size, options.context, options.min_context);
  Ctx ctx;
  ctx.queue = &device.queue;
  ctx.pool = device.pool.get();
  EvalResult result;
  double nats = 0;
  const auto total = static_cast<std::int64_t>(windows.size());
  for (std::int64_t i = 0; i < total; i += options.batch) {
    score(ctx, device, model, data, &windows[static_cast<std::size_t>(i)], std::min(options.batch, total - i),
          result, nats);
    if (progress) progress(result.tokens, size);
  }
  result.bits = nats / static_cast<double>(result.tokens) / std::numbers::ln2;
  return result;
}

void with_ema_weights(Device& device, ParameterStore& store, const std::function<void()>& work) {
  WEFT_CHECK(store.ema(), "no moving average is kept: set train.ema_decay");
  Ctx ctx;
  ctx.queue = &device.queue;
  ctx.pool = device.pool.get();
  const Tensor weights = ctx.empty(store.master().shape(), store.master().dtype(), "evaluation");
  ctx.launch(Add{{weights, false}, store.master()});
  const auto use = [&](const Tensor& from) {
    ctx.launch(Add{{store.master(), false}, from});
    store.refresh_compute(ctx);
  };
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
