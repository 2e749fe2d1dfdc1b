// SPDX-License-Identifier: MIT
// Forward attention by mma.sync over tiles of edge 16: a warp owns 16 query rows.
#include "kernels/attention/ampere/forward.cuh"
#include "kernels/attention/rows16/launchers.h"
#include "kernels/attention/rows16/mainloop.cuh"

namespace weft::attention::ampere {
template <int Dqk, int Dv>
struct Rows16ForwardShape : Rows16Shape<Dqk, Dv> {
  using Base = Rows16Shape<Dqk, Dv>;
  using Layout = Rows16Layout<Base::kEntries, Dqk, Dv, false>;
  static constexpr bool kInRegisters = Base::kLarger <= 128;
  static constexpr int kBlocks = Base::kLarger <= 32    ? 8
                                 : Base::kLarger <= 64  ? 6
                                 : Base::kLarger <= 128 ? 5
                                                        : 2;
  // Queries start in stage 1, or stay behind the stream.
  static constexpr int kQueries = kInRegisters ? Layout::kStage : Layout::kBytes;
  static constexpr int kWarpBytes = Layout::kBytes + (kInRegisters ? 0 : kSmallTile * Dqk * 2);
  static_assert(kSmallTile * Dv * 2 <= Layout::kBytes, "the output is staged where the stream was");
};

template <class T, int Dqk, int Dv>
__global__ void __launch_bounds__(Rows16ForwardShape<Dqk, Dv>::kThreads,
                                  Rows16ForwardShape<Dqk, Dv>::kBlocks)
    rows16_forward_kernel(const __grid_constant__ AttentionForward f,
                          const __grid_constant__ AttentionPass pass) {
  using Shape = Rows16ForwardShape<Dqk, Dv>;
  extern __shared__ __align__(128) char shared[];
  __shared__ Rows16Task tasks[kRows16Warps];
  const int warp = threadIdx.x / 32;
  Rows16Task& task = tasks[warp];
  const BlockIndex place(f.q);
  if (!take_task<Direction::query_stationary>(task, place, f, pass, f.k, f.v, f.lse)) return;

  char* const memory = shared + warp * Shape::kWarpBytes;
  OwnedRows<T, Dqk, Shape::kInRegisters> queries(shared_address(memory) + Shape::kQueries);
  queries.gather(f.q, place, task);
  Rows16Stream<Shape::kEntries, Dqk, Dv, false> stream(shared_address(memory), task);
  OnlineSoftmax<1> softmax(static_cast<float>(f.scale) * kLog2E);
  Accumulators<1, Dv> y;
  y.clear();
  stream.begin();
  cp_async_wait_all();
  __syncwarp();
  queries.load();
  for (; !stream.done(); stream.advance()) {
    stream.arrive();
    uint32_t word[2];
    const int mask = stream.words(word);
    if (mask == kSkip) continue;
    Accumulators<1, Shape::N> s;
    queries.multiply(s, stream.x());
    if (mask >= 0) apply_words(s, word, -INFINITY);
    softmax.apply(s, y);
    Fragments<1, Shape::N> p;
    round_to_fragments<T>(p, s);
    mma_ab<T, 1, Shape::N, Dv>(y, p, stream.y(), 0);
  }

  RowFactors<1> factors(0, task.accumulate);
  finish_softmax(factors, softmax, task, 0,
                 static_cast<float*>(f.lse.data) + (place.b * f.q.heads + place.h) * f.q.time);
  __syncwarp();
  store_rows<T>(memory, y, factors, task, 0, Rows::of(f.y, place.b, place.h));
}

void launch_rows16_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  with_rows16_head_sizes(f, [&]<class T, int Dqk, int Dv>() {
    using Shape = Rows16ForwardShape<Dqk, Dv>;
    start(queue, rows16_forward_kernel<T, Dqk, Dv>, blocks_for(f.q, pass.query_tiles, kRows16Warps),
          Shape::kThreads, kRows16Warps * Shape::kWarpBytes, f, pass);
  });
}
}  // namespace weft::attention::ampere
