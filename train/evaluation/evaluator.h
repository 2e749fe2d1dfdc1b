// SPDX-License-Identifier: MIT
// Bits per token of a split: every token is scored once, given the tokens before it in its window.
#pragma once

#include "data/items.h"
#include "models/model.h"
#include "src/processes.h"

#include <functional>
#include <span>
#include <vector>

namespace weft {
// Tokens first .. first + length - 1; those from index `scored` of the window on count.
struct EvalWindow {
  int64_t first = 0, length = 0, scored = 0;
};

// Windows over `size` tokens that score each exactly once. They advance by context - min_context,
// and all but the first score only as many of their last tokens, so that each has at least
// min_context tokens before it (arXiv 1904.10509, table 3). The last window ends with the last
// token and scores what is left.
std::vector<EvalWindow> plan_windows(int64_t size, int64_t context, int64_t min_context);

// The losses in nats of one window's tokens, in the order in which the model saw them.
using OnLosses = std::function<void(const EvalWindow&, std::span<const int32_t> tokens,
                                    std::span<const double> nats)>;

struct EvalOptions {
  int64_t context = 0;      // window length
  int64_t min_context = 0;  // 0 <= min_context < context
  int64_t batch = 1;        // windows at a time
  // only the first tokens of the split (images: whole ones); 0: all
  int64_t max_tokens = 0;
  const ItemView* items = nullptr;  // of data that is no stream
  bool decode = false;              // a position at a time, as texts are sampled
  // called for every window, in the order of the split; on rank 0
  OnLosses on_losses = {};
  // whose ranks share the windows out, batch by batch; null: none
  Processes* group = nullptr;
};

struct EvalResult {
  double bits = 0;  // per token: per byte for byte data, per dimension for images
  int64_t tokens = 0;
};

// What bits are of, for people: "bits per dimension" of images, else "bits per byte" where a token
// is a byte of text, else "bits per token".
inline const char* bits_unit(bool images, double bytes_per_token) {
  return images ? "bits per dimension" : bytes_per_token == 1 ? "bits per byte" : "bits per token";
}

// Collective. Sums nats in f64 on the host, of each window and then of the windows, in the order of
// the split: `batch` changes no more than the model's own arithmetic, the number of ranks nothing.
// `progress` hears (tokens scored, tokens in all) after every batch.
EvalResult evaluate(Device&, Model&, const TokenDataset&, const EvalOptions&,
                    const std::function<void(int64_t, int64_t)>& progress = {});

// Runs `work` with the moving average in place of the weights, which are restored bit for bit.
void with_ema_weights(Device&, ParameterStore&, const std::function<void()>& work);
}  // namespace weft
