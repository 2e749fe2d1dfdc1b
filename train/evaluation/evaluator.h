// SPDX-License-Identifier: MIT
// Bits per token of a whole split: every token is scored once, given the tokens before it in its window.
// Images are scored whole.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/augment/augment.h"
#include "data/dataset.h"
#include "models/model.h"
#include "src/ranks/process_group.h"

namespace weft {

// Tokens first .. first + length - 1 go through the model; those from `scored` on (an index into the window)
// count.
struct EvalWindow {
  std::int64_t first = 0, length = 0, scored = 0;
};

// Windows over `size` tokens that score each exactly once. They advance by context - min_context, and all but
// the first score only as many of their last tokens. So each scored token has at least min_context tokens
// before it (Child et al. 2019, arXiv 1904.10509, table 3). The last window ends with the last
// token; when it overlaps more than the others, only the tokens not scored yet count.
std::vector<EvalWindow> plan_windows(std::int64_t size, std::int64_t context, std::int64_t min_context);

// How a model is given the images of `data`; nothing for a stream. Throws Error when it is made for other
// data.
std::optional<Augmenter> augmenter_for(const Config&, const TokenDataset& data);

// The losses in nats of one window's tokens (of an augmented image: in the order in which the model saw
// them).
using OnLosses = std::function<void(const EvalWindow&, std::span<const std::int32_t> tokens,
                                    std::span<const double> nats)>;

struct EvalOptions {
  std::int64_t context = 0;              // window length
  std::int64_t min_context = 0;          // 0 <= min_context < context
  std::int64_t batch = 1;                // windows at a time
  std::int64_t max_tokens = 0;           // only the first tokens of the split (images: whole ones); 0: all
  const Augmenter* augmenter = nullptr;  // of images
  AugmentChoice choice = {};             // of each of them
  OnLosses on_losses = {};               // called for every window, in the order of the split; on rank 0
  ProcessGroup* group = nullptr;         // whose ranks share the windows out, batch by batch; null: none
};

struct EvalResult {
  double bits = 0;  // per token: per byte for byte data, per dimension for images
  std::int64_t tokens = 0;
};

// Sums nats in double on the host, of each window and then of the windows, in the order of the split: the
// result does not depend on `batch` beyond what the model's own arithmetic does, and on the number of ranks
// not at all: every rank returns what one process would. Collective. `progress` hears (tokens scored, tokens
// in all) after every batch.
EvalResult evaluate(Device&, Model&, const TokenDataset&, const EvalOptions&,
                    const std::function<void(std::int64_t, std::int64_t)>& progress = {});

// Runs `work` while the store's weights are their moving average; afterwards they are what they were, bit for
// bit.
void with_ema_weights(Device&, ParameterStore&, const std::function<void()>& work);

}  // namespace weft
