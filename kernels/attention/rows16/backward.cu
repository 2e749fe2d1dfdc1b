// SPDX-License-Identifier: MIT
// Backward attention by mma.sync, as backward.cuh: a warp owns a tile of 16 queries (dQ) or keys
// (dK, dV).
#include "kernels/attention/ampere/backward.cuh"
#include "kernels/attention/rows16/launchers.h"
#include "kernels/attention/rows16/mainloop.cuh"

namespace weft::attention::ampere {
// kKeys: of the key-stationary kernel, which streams lse and delta.
template <int Dqk, int Dv, bool kKeys>
struct Rows16BackwardShape : Rows16Shape<Dqk, Dv> {
  using Base = Rows16Shape<Dqk, Dv>;
  using Layout = Rows16Layout<Base::kEntries, Dqk, Dv, kKeys>;
  static constexpr bool kInRegisters = Base::kLarger <= (kKeys ? 64 : 128);
  static constexpr int kBlocks = Base::kLarger <= 32    ? 8
                                 : Base::kLarger <= 64  ? (kKeys ? 4 : 6)
                                 : Base::kLarger <= 128 ? 4
                                                        : 2;
  // Owned rows start in stage 1, or stay behind the stream.
  static constexpr int kX = kInRegisters ? Layout::kStage + Layout::kX : Layout::kBytes,
                       kY = kInRegisters ? Layout::kStage + Layout::kY : kX + kSmallTile * Dqk * 2,
                       kWarpBytes = kInRegisters ? Layout::kBytes : kY + kSmallTile * Dv * 2;
};

template <int Dqk, int Dv>
using Rows16QueryShape = Rows16BackwardShape<Dqk, Dv, false>;
template <int Dqk, int Dv>
using Rows16KeyShape = Rows16BackwardShape<Dqk, Dv, true>;

// ---- dQ ----

template <class T, int Dqk, int Dv>
__global__ void __launch_bounds__(Rows16QueryShape<Dqk, Dv>::kThreads,
                                  Rows16QueryShape<Dqk, Dv>::kBlocks)
    rows16_query_stationary_kernel(const __grid_constant__ AttentionBackward g,
                                   const __grid_constant__ AttentionPass pass) {
  using Shape = Rows16QueryShape<Dqk, Dv>;
  extern __shared__ __align__(128) char shared[];
  __shared__ Rows16Task tasks[kRows16Warps];
  const int warp = threadIdx.x / 32;
  Rows16Task& task = tasks[warp];
  const BlockIndex place(g.q);
  if (!take_task<Direction::query_stationary>(task, place, g, pass, g.k, g.v, g.delta)) return;

  char* const memory = shared + warp * Shape::kWarpBytes;
  OwnedRows<T, Dqk, Shape::kInRegisters> queries(shared_address(memory) + Shape::kX);
  OwnedRows<T, Dv, Shape::kInRegisters> gradients(shared_address(memory) + Shape::kY);
  queries.gather(g.q, place, task);
  gradients.gather(g.dy, place, task);
  Rows16Stream<Shape::kEntries, Dqk, Dv, false> stream(shared_address(memory), task);
  const float scale = static_cast<float>(g.scale) * kLog2E;
  float lse[1][2], delta[1][2];
  load_scalars(lse, delta, task, 0);
  Accumulators<1, Dqk> dq;
  dq.clear();
  stream.begin();
  cp_async_wait_all();
  __syncwarp();
  queries.load();
  gradients.load();
  for (; !stream.done(); stream.advance()) {
    stream.arrive();
    uint32_t word[2];
    const int mask = stream.words(word);
    if (mask == kSkip) continue;
    Accumulators<1, Shape::N> s, ds;
    queries.multiply(s, stream.x());
    gradients.multiply(ds, stream.y());
    score_gradients(ds, s, scale, lse, delta);
    if (mask >= 0) apply_words(ds, word, 0.0f);
    Fragments<1, Shape::N> f;
    round_to_fragments<T>(f, ds);
    mma_ab<T, 1, Shape::N, Dqk>(dq, f, stream.x(), 0);
  }
  __syncwarp();
  store_rows<T>(memory, dq, RowFactors<1>(static_cast<float>(g.scale), task.accumulate), task, 0,
                Rows::of(g.dq, place.b, place.h));
}

// ---- dK, dV ----

// What a launch computes: both, or, where both would not fit the registers, one at a time.
enum class Computes { keys_and_values, keys, values };

template <class T, int Dqk, int Dv, Computes kWhat>
__global__ void __launch_bounds__(Rows16KeyShape<Dqk, Dv>::kThreads,
                                  Rows16KeyShape<Dqk, Dv>::kBlocks)
    rows16_key_stationary_kernel(const __grid_constant__ AttentionBackward g,
                                 const __grid_constant__ AttentionPass pass) {
  using Shape = Rows16KeyShape<Dqk, Dv>;
  constexpr bool kOfKeys = kWhat != Computes::values, kOfValues = kWhat != Computes::keys;
  extern __shared__ __align__(128) char shared[];
  __shared__ Rows16Task tasks[kRows16Warps];
  Rows16Task& task = tasks[threadIdx.x / 32];
  const BlockIndex place(g.q);
  if (!take_task<Direction::key_stationary>(task, place, g, pass, g.q, g.dy, g.delta)) return;

  char* const memory = shared + threadIdx.x / 32 * Shape::kWarpBytes;
  OwnedRows<T, Dqk, Shape::kInRegisters> keys(shared_address(memory) + Shape::kX);
  OwnedRows<T, Dv, Shape::kInRegisters> values(shared_address(memory) + Shape::kY);
  keys.gather(g.k, place, task);
  if constexpr (kOfKeys) values.gather(g.v, place, task);
  Rows16Stream<Shape::kEntries, Dqk, Dv, true> stream(shared_address(memory), task);
  const float scale = static_cast<float>(g.scale) * kLog2E;
  Accumulators<1, kOfKeys ? Dqk : 8> dk;
  Accumulators<1, kOfValues ? Dv : 8> dv;
  dk.clear();
  dv.clear();
  stream.begin();
  cp_async_wait_all();
  __syncwarp();
  keys.load();
  if constexpr (kOfKeys) values.load();
  for (; !stream.done(); stream.advance()) {
    stream.arrive();
    uint32_t word[2];
    const int mask = stream.words(word);
    if (mask == kSkip) continue;
    Accumulators<1, Shape::N> p, ds;
    Fragments<1, Shape::N> f;
    keys.multiply(p, stream.x());
    probabilities(p, stream, 0, scale);
    if (mask >= 0) apply_words(p, word, 0.0f);
    if constexpr (kOfKeys) {
      values.multiply(ds, stream.y());
      score_gradients(ds, p, stream, 0);
    }
    if constexpr (kOfValues) {
      round_to_fragments<T>(f, p);
      mma_ab<T, 1, Shape::N, Dv>(dv, f, stream.y(), 0);
    }
    if constexpr (kOfKeys) {
      round_to_fragments<T>(f, ds);
      mma_ab<T, 1, Shape::N, Dqk>(dk, f, stream.x(), 0);
    }
  }
  __syncwarp();
  const auto store = [&](const auto& sums, float factor, const HeadsView& to) {
    store_rows<T>(memory, sums, RowFactors<1>(factor, task.accumulate), task, 0,
                  Rows::of(to, place.b, place.h));
  };
  if constexpr (kOfKeys) store(dk, static_cast<float>(g.scale), g.dk);
  if constexpr (kOfValues) store(dv, 1, g.dv);
}

void launch_rows16_backward(CudaQueue& queue, const AttentionBackward& g,
                            const AttentionPass& pass) {
  with_rows16_head_sizes(g, [&]<class T, int Dqk, int Dv>() {
    using Rows = Rows16QueryShape<Dqk, Dv>;
    using Shape = Rows16KeyShape<Dqk, Dv>;
    start(queue, rows16_query_stationary_kernel<T, Dqk, Dv>,
          blocks_for(g.q, pass.query_tiles, kRows16Warps), Rows::kThreads,
          kRows16Warps * Rows::kWarpBytes, g, pass);
    const unsigned blocks = blocks_for(g.q, pass.key_tiles, kRows16Warps);
    const auto columns = [&](auto* kernel) {
      start(queue, kernel, blocks, Shape::kThreads, kRows16Warps * Shape::kWarpBytes, g, pass);
    };
    if constexpr (Shape::kLarger <= 128) {
      columns(rows16_key_stationary_kernel<T, Dqk, Dv, Computes::keys_and_values>);
    } else {
      columns(rows16_key_stationary_kernel<T, Dqk, Dv, Computes::keys>);
      columns(rows16_key_stationary_kernel<T, Dqk, Dv, Computes::values>);
    }
  });
}
}  // namespace weft::attention::ampere
