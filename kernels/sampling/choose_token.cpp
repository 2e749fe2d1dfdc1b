// SPDX-License-Identifier: MIT
// The definition: sorts the tokens by rank, then sums in that order.
#include "kernels/sampling/choose_token.h"

#include "kernels/cpu.h"
#include "kernels/view.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace weft {
namespace {
// Tokens, most likely first; equally likely ones by number.
std::vector<int32_t> ranking(std::span<const double> logits) {
  std::vector<int32_t> ranked(logits.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::sort(ranked.begin(), ranked.end(), [&](int32_t a, int32_t b) {
    const double of_a = logits[static_cast<std::size_t>(a)],
                 of_b = logits[static_cast<std::size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  return ranked;
}
}  // namespace

int32_t choose_token(std::span<const double> logits, const Choice& choice, double uniform) {
  for (const double logit : logits)
    if (!std::isfinite(logit)) return -1;
  std::vector<int32_t> ranked = ranking(logits);
  if (choice.temperature == 0) return ranked[0];
  if (choice.top_k > 0 && choice.top_k < static_cast<int64_t>(ranked.size()))
    ranked.resize(static_cast<std::size_t>(choice.top_k));
  const auto logit = [&](int32_t token) { return logits[static_cast<std::size_t>(token)]; };
  std::vector<double> weight;
  for (const int32_t token : ranked)
    weight.push_back(std::exp((logit(token) - logit(ranked[0])) / choice.temperature));
  double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  std::size_t count = weight.size();
  if (choice.top_p < 1) {
    const double kept = choice.top_p * total;
    total = 0;
    count = 0;
    do total += weight[count++];
    while (count < weight.size() && total < kept);
  }
  double below = 0;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    below += weight[i];
    if (uniform * total < below) return ranked[i];
  }
  return ranked[count - 1];
}

void check(const ChooseToken& k) {
  expect_floating(k.logits, "choose_token: logits");
  WEFT_CHECK(k.logits.rank == 2 && k.tokens.rank == 2 && k.drawn.rank == 2,
             "choose_token: logits (B, V), tokens (B, n) and drawn (n, B), got ",
             shape_text(k.logits), ", ", shape_text(k.tokens), " and ", shape_text(k.drawn));
  const int64_t batch = k.logits.shape[0], length = k.tokens.shape[1];
  WEFT_CHECK(k.logits.cols() >= 1 && k.logits.cols() <= INT32_MAX && k.logits.data,
             "choose_token: logits of 1 to 2^31 - 1 tokens, got ", shape_text(k.logits));
  expect_matrix(k.tokens, DType::i32, batch, length, "choose_token: tokens");
  expect_matrix(k.drawn, DType::i32, length, batch, "choose_token: drawn");
  WEFT_CHECK(k.position && k.first_sample, "choose_token: no position, or no first sample");
  WEFT_CHECK(
      k.choice.temperature >= 0 && k.choice.top_k >= 0 && k.choice.top_p > 0 && k.choice.top_p <= 1,
      "choose_token: temperature >= 0, top_k >= 0 and 0 < top_p <= 1, got ", k.choice.temperature,
      ", ", k.choice.top_k, " and ", k.choice.top_p);
}

void compute(CpuQueue&, const ChooseToken& k) {
  const int64_t position = *k.position, batch = k.logits.shape[0], vocab = k.logits.cols();
  auto *tokens = k.tokens.as<int32_t>(), *drawn = k.drawn.as<int32_t>();
  dispatch_float(k.logits.dtype, [&]<class T>() {
#pragma omp parallel for schedule(static) if (k.logits.size() > kParallelElements)
    for (int64_t b = 0; b < batch; ++b) {
      const T* row = k.logits.as<T>() + b * vocab;
      const std::vector<double> logits(row, row + vocab);
      const int32_t token =
          choose_token(logits, k.choice, sample_uniform(k.seed, *k.first_sample + b, position));
      tokens[b * k.tokens.shape[1] + position] = std::max(token, 0);
      drawn[position * batch + b] = token;
    }
  });
}
}  // namespace weft
