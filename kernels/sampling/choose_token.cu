// SPDX-License-Identifier: MIT
// A block chooses for one sample. Each token has a key that grows with its likelihood: 32 bits of
// the logit, then those of the token number.
// Few tokens are ranked by counting: a thread has one token, then the one of its rank.
// Of many the last token kept, and the one drawn, are each the largest key such that the tokens
// with at least that key fulfil a condition on their number or sum. A binary search finds it bit by
// bit. Sums have a fixed order, in which a sum of more tokens is never smaller.
#include "kernels/device/dependent_launch.cuh"
#include "kernels/sampling/choose_token.h"

#include <bit>
#include <curand_kernel.h>

namespace weft {
namespace {
constexpr int kThreads = 256;

using Key = unsigned long long;

template <class T>
struct Row {
  const T* logits;
  int32_t vocab;
  int number_bits;  // of a token
  double temperature, top;

  __device__ float logit(int32_t token) const { return to_float(logits[token]); }

  // Bits of a float in the order of its value, both zeros alike, above those of the token, first
  // ones first.
  __device__ Key key(int32_t token) const {
    const unsigned bits = __float_as_uint(logit(token) + 0.0f);
    const unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return Key{ordered} << number_bits | static_cast<unsigned>(vocab - 1 - token);
  }

  __device__ int32_t token(Key key) const {
    return vocab - 1 - static_cast<int32_t>(key & ((Key{1} << number_bits) - 1));
  }

  __device__ double weight(int32_t token) const {
    return exp((static_cast<double>(logit(token)) - top) / temperature);
  }

  // Over the tokens with keys from `least` on.
  __device__ double sum(Key least) const {
    double sum = 0;
    for (int32_t token = threadIdx.x; token < vocab; token += kThreads)
      if (key(token) >= least) sum += weight(token);
    return block_sum<kThreads>(sum);
  }

  __device__ int32_t count(Key least) const {
    int32_t count = 0;
    for (int32_t token = threadIdx.x; token < vocab; token += kThreads)
      count += key(token) >= least;
    return block_sum<kThreads>(count);
  }

  // The largest key for which the condition holds; 0 when there is none.
  template <class Condition>
  __device__ Key largest(Condition holds) const {
    Key found = 0;
    for (int bit = 31 + number_bits; bit >= 0; --bit)
      if (holds(found | Key{1} << bit)) found |= Key{1} << bit;
    return found;
  }
};

// Sums over this thread and those before it, in a fixed order.
__device__ double running_sum(double x) {
  __shared__ double of_warp[kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const double before = __shfl_up_sync(kFullWarp, x, offset);
    if (lane >= offset) x += before;
  }
  if (lane == kWarp - 1) of_warp[warp] = x;
  __syncthreads();
  double before = 0;
  for (int w = 0; w < warp; ++w) before += of_warp[w];
  return before + x;
}

// Of at most kThreads tokens; the same on every thread.
template <class T>
__device__ int32_t choose_of_few(Row<T> row, const Choice& choice, double uniform) {
  __shared__ Key keys[kThreads];
  __shared__ int32_t ranked[kThreads];
  __shared__ double sums[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const bool exists = thread < row.vocab;
  const Key mine = exists ? row.key(thread) : 0;
  keys[thread] = mine;
  if (__syncthreads_or(exists && !isfinite(row.logit(thread)))) return -1;
  int rank = 0;
#pragma unroll 8
  for (int i = 0; i < kThreads; ++i) rank += keys[i] > mine;
  if (exists) ranked[rank] = thread;
  __syncthreads();
  if (choice.temperature == 0) return ranked[0];
  row.top = row.logit(ranked[0]);
  const bool kept = exists && (choice.top_k == 0 || thread < choice.top_k);
  const double sum = running_sum(kept ? row.weight(ranked[thread]) : 0.0);
  sums[thread] = sum;
  int last = __syncthreads_count(kept) - 1;
  if (choice.top_p < 1) {
    const double enough = choice.top_p * sums[last];
    last = min(last, __syncthreads_count(kept && sum < enough));
  }
  const double drawn = uniform * sums[last];
  return ranked[min(last, __syncthreads_count(kept && !(drawn < sum)))];
}

// The same on every thread.
template <class T>
__device__ int32_t choose(Row<T> row, const Choice& choice, double uniform) {
  if (row.vocab <= kThreads) return choose_of_few(row, choice, uniform);
  Key best = 0, last = ~Key{0};
  bool finite = true;
  for (int32_t token = threadIdx.x; token < row.vocab; token += kThreads) {
    finite = finite && isfinite(row.logit(token));
    best = max(best, row.key(token));
    last = min(last, row.key(token));
  }
  if (__syncthreads_or(!finite)) return -1;
  best = block_reduce<kThreads>(best, Max{});
  if (choice.temperature == 0) return row.token(best);
  row.top = row.logit(row.token(best));
  if (choice.top_k > 0 && choice.top_k < row.vocab) {
    last = row.largest([&](Key key) { return row.count(key) >= choice.top_k; });
  } else {
    last = ~block_reduce<kThreads>(~last, Max{});  // the least
  }
  double total = row.sum(last);
  if (choice.top_p < 1) {
    const double kept = choice.top_p * total;
    last = max(last, row.largest([&](Key key) { return row.sum(key) >= kept; }));
    total = row.sum(last);
  }
  const Key drawn = row.largest([&](Key key) { return uniform * total < row.sum(key); });
  return row.token(max(drawn, last));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    choose_kernel(const __grid_constant__ ChooseToken k, int number_bits) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int64_t position = *k.position, b = blockIdx.x;
  const Philox4 counter = sample_counter(*k.first_sample + b, position);
  const uint4 bits = curand_Philox4x32_10(
      make_uint4(counter[0], counter[1], counter[2], counter[3]),
      make_uint2(static_cast<unsigned>(k.seed), static_cast<unsigned>(k.seed >> 32)));
  const int64_t batch = k.logits.shape[0], vocab = k.logits.shape[1];
  const Row<T> row = {static_cast<const T*>(k.logits.data) + b * vocab, static_cast<int32_t>(vocab),
                      number_bits, k.choice.temperature, 0};
  const int32_t token = choose(row, k.choice, uniform_of(bits.x, bits.y));
  if (threadIdx.x != 0) return;
  static_cast<int32_t*>(k.tokens.data)[b * k.tokens.shape[1] + position] = max(token, 0);
  static_cast<int32_t*>(k.drawn.data)[position * batch + b] = token;
}
}  // namespace

void compute(CudaQueue& queue, const ChooseToken& k) {
  const int64_t batch = k.logits.shape[0];
  if (batch == 0) return;
  const int number_bits = std::bit_width(static_cast<uint32_t>(k.logits.cols() - 1));
  dispatch_cuda(k.logits.dtype, [&]<class T>() {
    launch_dependent(queue, choose_kernel<T>, blocks_for(batch, 1), kThreads, k, number_bits);
  });
}
}  // namespace weft
