// SPDX-License-Identifier: MIT
// Rung 1: the definition, one thread a query. Each thread asks about every key whether its query
// attends it, first for the largest score, then for the sums. The backward pass has one thread a
// query for dq, and one thread a key for dk and dv: no two threads add to one number.
#include "kernels/attention/direction.cuh"
#include "kernels/attention/ladder/cuda/rungs.h"
#include "kernels/attention/launch.cuh"
#include "kernels/attention/launchers.h"
#include "kernels/device/cuda.cuh"

#include <cmath>
#include <variant>

namespace weft::ladder::cuda {
namespace {
using namespace attention;
using Number = __nv_bfloat16;
using Row = float[kCudaHeadSize];
constexpr int kThreads = 128;

__device__ float dot(const Number* a, const Number* b) {
  float sum = 0;
  for (int d = 0; d < kCudaHeadSize; ++d) sum += to_float(a[d]) * to_float(b[d]);
  return sum;
}

// sum += weight * x
__device__ void add(Row& sum, float weight, const Number* x) {
#pragma unroll
  for (int d = 0; d < kCudaHeadSize; ++d) sum[d] += weight * to_float(x[d]);
}

__device__ void store_row(Number* to, const Row& sum, float factor) {
#pragma unroll
  for (int d = 0; d < kCudaHeadSize; ++d) to[d] = from_float<Number>(sum[d] * factor);
}

__global__ void forward_kernel(const __grid_constant__ AttentionForward f, const PairBits pairs) {
  const BlockIndex at(f.q);
  const int i = at.rank * kThreads + static_cast<int>(threadIdx.x);
  if (i >= f.q.time) return;
  const int64_t group = f.maps.map_of(at.b, at.h);
  const auto scale = static_cast<float>(f.scale);
  const Number* q = head_row<const Number>(f.q, at, i);

  float largest = -INFINITY, sum = 0;
  for (int j = 0; j < f.k.time; ++j)
    if (pairs.attends(group, i, j))
      largest = fmaxf(largest, scale * dot(q, head_row<const Number>(f.k, at, j)));
  Row y = {};
  for (int j = 0; j < f.k.time; ++j) {
    if (!pairs.attends(group, i, j)) continue;
    const float p = expf(scale * dot(q, head_row<const Number>(f.k, at, j)) - largest);
    sum += p;
    add(y, p, head_row<const Number>(f.v, at, j));
  }

  scalars_of(f.lse, at)[i] = sum == 0 ? -INFINITY : largest + logf(sum);
  store_row(head_row<Number>(f.y, at, i), y, sum == 0 ? 0 : 1 / sum);
}

// p and ds of a pair.
__device__ float2 gradients(const AttentionBackward& g, const BlockIndex& at, int i, int j) {
  const float score = dot(head_row<const Number>(g.q, at, i), head_row<const Number>(g.k, at, j));
  const float dp = dot(head_row<const Number>(g.dy, at, i), head_row<const Number>(g.v, at, j));
  const float p = expf(static_cast<float>(g.scale) * score - scalar(g.lse, at, i));
  return {p, p * (dp - scalar(g.delta, at, i))};
}

__global__ void query_kernel(const __grid_constant__ AttentionBackward g, const PairBits pairs) {
  const BlockIndex at(g.q);
  const int i = at.rank * kThreads + static_cast<int>(threadIdx.x);
  if (i >= g.q.time) return;
  const int64_t group = g.maps.map_of(at.b, at.h);
  Row dq = {};
  for (int j = 0; j < g.k.time; ++j)
    if (pairs.attends(group, i, j))
      add(dq, gradients(g, at, i, j).y, head_row<const Number>(g.k, at, j));
  store_row(head_row<Number>(g.dq, at, i), dq, static_cast<float>(g.scale));
}

__global__ void key_kernel(const __grid_constant__ AttentionBackward g, const PairBits pairs) {
  const BlockIndex at(g.q);
  const int j = at.rank * kThreads + static_cast<int>(threadIdx.x);
  if (j >= g.k.time) return;
  const int64_t group = g.maps.map_of(at.b, at.h);
  Row dk = {}, dv = {};
  for (int i = 0; i < g.q.time; ++i) {
    if (!pairs.attends(group, i, j)) continue;
    const float2 pair = gradients(g, at, i, j);
    add(dv, pair.x, head_row<const Number>(g.dy, at, i));
    add(dk, pair.y, head_row<const Number>(g.q, at, i));
  }
  store_row(head_row<Number>(g.dk, at, j), dk, static_cast<float>(g.scale));
  store_row(head_row<Number>(g.dv, at, j), dv, 1);
}
}  // namespace

void pairs_forward(Queue& queue, const AttentionForward& f, const Pattern& pattern) {
  auto& cuda = std::get<CudaQueue>(queue);
  const unsigned blocks = attention::blocks_for(f.q, f.q.time, kThreads);
  start(cuda, forward_kernel, blocks, kThreads, 0, f, pattern.bits);
}

void pairs_backward(Queue& queue, const AttentionBackward& g, const Pattern& pattern) {
  auto& cuda = std::get<CudaQueue>(queue);
  write_delta(cuda, g);
  const unsigned queries = attention::blocks_for(g.q, g.q.time, kThreads),
                 keys = attention::blocks_for(g.q, g.k.time, kThreads);
  start(cuda, query_kernel, queries, kThreads, 0, g, pattern.bits);
  start(cuda, key_kernel, keys, kThreads, 0, g, pattern.bits);
}
}  // namespace weft::ladder::cuda
