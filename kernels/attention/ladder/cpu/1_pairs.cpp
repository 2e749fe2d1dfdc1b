// SPDX-License-Identifier: MIT
// Rung 1: the definition in f32. For each query, all keys are asked whether the pattern attends
// them; a row of scores is kept. The backward pass goes through the same pairs and adds each
// pair's share to dq_i, dk_j and dv_j.
#include "kernels/attention/ladder/cpu/rungs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace weft::ladder {
namespace {
constexpr float kNone = -std::numeric_limits<float>::infinity();

float dot(const float* a, const float* b, int64_t size) {
  float sum = 0;
  for (int64_t d = 0; d < size; ++d) sum += a[d] * b[d];
  return sum;
}

// sum += weight * x
void add(float* sum, float weight, const float* x, int64_t size) {
  for (int64_t d = 0; d < size; ++d) sum[d] += weight * x[d];
}

// y and lse of query i. `score` has room for every key.
void forward_query(const AttentionForward& f, const Attends& attends, int64_t b, int64_t h,
                   int64_t i, std::vector<float>& score) {
  const auto scale = static_cast<float>(f.scale);
  const float* q = f.q.row<const float>(b, i, h);
  float* y = f.y.row<float>(b, i, h);
  float& lse = scalars_of(f.lse, b, h)[i];
  std::fill(y, y + f.v.size, 0.0f);
  lse = kNone;

  float largest = kNone;
  for (int64_t j = 0; j < f.k.time; ++j) {
    score[j] = kNone;
    if (!attends(h, i, j)) continue;
    score[j] = scale * dot(q, f.k.row<const float>(b, j, h), f.q.size);
    largest = std::max(largest, score[j]);
  }
  if (largest == kNone) return;  // the query sees nothing

  float sum = 0;
  for (const float s : score) sum += s == kNone ? 0 : std::exp(s - largest);
  lse = largest + std::log(sum);
  for (int64_t j = 0; j < f.k.time; ++j)
    if (score[j] != kNone)
      add(y, std::exp(score[j] - lse), f.v.row<const float>(b, j, h), f.v.size);
}

// The shares of the pairs of query i in dq_i, dk_j and dv_j.
void backward_query(const AttentionBackward& g, const Attends& attends, int64_t b, int64_t h,
                    int64_t i) {
  const auto scale = static_cast<float>(g.scale);
  const float *q = g.q.row<const float>(b, i, h), *dy = g.dy.row<const float>(b, i, h);
  float* dq = g.dq.row<float>(b, i, h);
  const float lse = scalars_of(g.lse, b, h)[i];
  const float delta = dot(dy, g.y.row<const float>(b, i, h), g.v.size);
  for (int64_t j = 0; j < g.k.time; ++j) {
    if (!attends(h, i, j)) continue;
    const float *k = g.k.row<const float>(b, j, h), *v = g.v.row<const float>(b, j, h);
    const float p = std::exp(scale * dot(q, k, g.q.size) - lse);
    const float ds = p * (dot(dy, v, g.v.size) - delta);
    add(dq, scale * ds, k, g.q.size);
    add(g.dk.row<float>(b, j, h), scale * ds, q, g.q.size);
    add(g.dv.row<float>(b, j, h), p, dy, g.v.size);
  }
}
}  // namespace

void pairs_forward(Queue&, const AttentionForward& f, const Pattern& pattern) {
  std::vector<float> score(static_cast<std::size_t>(f.k.time));
  for (int64_t b = 0; b < f.q.batch; ++b)
    for (int64_t h = 0; h < f.q.heads; ++h)
      for (int64_t i = 0; i < f.q.time; ++i) forward_query(f, pattern.attends, b, h, i, score);
}

void pairs_backward(Queue&, const AttentionBackward& g, const Pattern& pattern) {
  clear(g.dq), clear(g.dk), clear(g.dv);
  for (int64_t b = 0; b < g.q.batch; ++b)
    for (int64_t h = 0; h < g.q.heads; ++h) {
      for (int64_t i = 0; i < g.q.time; ++i) backward_query(g, pattern.attends, b, h, i);
    }
}
}  // namespace weft::ladder
