// SPDX-License-Identifier: MIT
// Forward attention on Hopper over bands that reach farther than forward.cuh takes: whole residue
// columns, and windows that window_forward.cu does not take. A span is a few query tiles of a
// column that follow each other, one for each consumer warpgroup. The key tiles that they see are
// loaded once for all of them, and meet an online softmax.
#include "kernels/attention/hopper/band/forward_stream.cuh"
#include "kernels/attention/hopper/epilogue.cuh"
#include "kernels/attention/hopper/forward_mainloop.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/hopper/masks.cuh"

#include <algorithm>

namespace weft::attention::hopper {
// kAccumulate: y and lse go on from what earlier passes left.
template <int Dqk_, int Dv_, bool kAccumulate_, bool kWindow_>
struct ColumnForwardShape {
  static constexpr int Dqk = Dqk_, Dv = Dv_;
  static constexpr bool kAccumulate = kAccumulate_, kWindow = kWindow_, kSmall = Dqk + Dv == 128,
                        kFour = kSmall && !kAccumulate, kStorer = true, kInOrder = false;
  // As the registers allow.
  static constexpr int kConsumers = kFour ? 4 : 3, kThreads = (1 + kConsumers) * kWarpgroup;
  static constexpr RegisterSplit kRegisters = {.producer = 32, .consumer = kFour ? 112 : 160};
  static constexpr int kQ = Dqk * 128, kY = Dv * 128, kQueryBytes = std::max(kQ, kY),  // bytes
      kQueryStages = 2 * kConsumers,
                       kStages = kSmall      ? 8
                                 : Dqk == 64 ? 4
                                             : 3;
};

// The key tiles that the queries of a span see, in the order in which they come: whole columns from
// the first one on, windows from the last one on, as a query may see none of the farthest tile.
template <bool kWindow>
struct KeyTiles {
  int next, stop;

  __device__ __forceinline__ static KeyTiles of(const BandTiles& tiles, const TileSpan& span) {
    if constexpr (!kWindow) return {0, span.end};
    return {span.end - 1, max(span.first - tiles.tiles_back(), 0) - 1};
  }

  __device__ explicit operator bool() const { return next != stop; }

  __device__ __forceinline__ int take() { return kWindow ? next-- : next++; }
};

template <class Shape>
__device__ __forceinline__ void produce_columns(BandMemory<Shape>& memory,
                                                const BandForwardMaps& maps) {
  const BandTiles& tiles = maps.tiles;
  PipelineState<Shape::kStages> stage;
  PipelineState<Shape::kQueryStages> query;
  for (int item = blockIdx.x; item < tiles.work_items(); item += gridDim.x) {
    const TileSpan span = tiles.work_item(item);
    for (int tile = span.first; tile < span.first + Shape::kConsumers; ++tile, query.advance()) {
      Barrier& full = memory.queries_full[query.stage];
      memory.queries_empty[query.stage].wait(query.parity ^ 1);
      full.arrive_expect_tx(tile < span.end ? Shape::kQ : 0);
      if (tile < span.end)
        copy_tile<Shape::Dqk>(memory.queries[query.stage], maps.q, tiles, span, tile, full);
    }
    for (auto keys = KeyTiles<Shape::kWindow>::of(tiles, span); keys; stage.advance()) {
      const int tile = keys.take();
      memory.empty[stage.stage].wait(stage.parity ^ 1);
      load_pair(memory.stages[stage.stage], maps.k, maps.v, tiles, span, tile,
                memory.keys_full[stage.stage]);
    }
  }
}

// The key tiles of a span as one of its query tiles meets them: what forward_mainloop() asks of a
// Consumer. A mask is the distance of a key tile that hides something, or -1.
template <class Shape>
class KeyStream {
 public:
  __device__ KeyStream(BandMemory<Shape>& memory, const BandTiles& tiles)
      : memory_(memory),
        tiles_(tiles) {}

  // query: -1 where this warpgroup has no tile.
  __device__ __forceinline__ void open(const KeyTiles<Shape::kWindow>& keys, int query) {
    keys_ = keys, query_ = query;
  }

  __device__ int query() const { return query_; }

  __device__ __forceinline__ int step() {
    if (!keys_) return kEnd;
    memory_.keys_full[stage_.stage].wait(stage_.parity);
    const int back = query_ - keys_.take();
    stage_.advance();
    if (query_ >= 0 && back >= 0 && (!Shape::kWindow || back <= tiles_.tiles_back()))
      return tiles_.hides(back) ? back : -1;
    release(stage());
    return kSkip;
  }

  __device__ __forceinline__ int next() {
    int mask = kSkip;
    while (mask == kSkip) mask = step();
    return mask;
  }

  __device__ __forceinline__ int stage() const { return stage_.stage_back(1); }

  __device__ __forceinline__ int stage_before() const { return stage_.stage_back(2); }

  __device__ __forceinline__ int last_tile(int mask) const {
    return stage_.stage_back(mask == kSkip ? 2 : 1);
  }

  __device__ __forceinline__ void release(int stage) { memory_.empty[stage].arrive_warp(); }

 private:
  BandMemory<Shape>& memory_;
  const BandTiles& tiles_;
  PipelineState<Shape::kStages> stage_;
  KeyTiles<Shape::kWindow> keys_{};
  int query_ = 0;
};

template <class T, class Shape>
class ColumnForwardConsumer {
 public:
  using Memory = BandMemory<Shape>;

  __device__ ColumnForwardConsumer(Memory& memory, const AttentionForward& f,
                                   const BandForwardMaps& maps)
      : memory_(memory),
        f_(f),
        maps_(maps),
        stream_(memory, maps.tiles) {}

  // Query tiles of a span see different numbers of keys: warpgroups take them in turn.
  __device__ __forceinline__ void run() {
    const BandTiles& tiles = maps_.tiles;
    for (int round = 0; item_of(round) < tiles.work_items(); ++round) {
      const TileSpan span = tiles.work_item(item_of(round));
      const int turn = turn_of(round), tile = span.first + turn;
      const bool mine = tile < span.end;
      stream_.open(KeyTiles<Shape::kWindow>::of(tiles, span), mine ? tile : -1);
      if (mine) {
        attend(round);
      } else {
        const auto query = query_stage_of(round);
        memory_.queries_full[query.stage].wait(query.parity);
        stream_.next();
        memory_.y_full[query.stage].arrive_warp();
      }
    }
  }

 private:
  __device__ __forceinline__ static int item_of(int round) {
    return static_cast<int>(blockIdx.x + static_cast<unsigned>(round) * gridDim.x);
  }

  // This warpgroup's place in a span, and its query stage.
  __device__ __forceinline__ static int turn_of(int round) {
    return (warp_uniform(this_thread() / kWarpgroup - 1) + round) % Shape::kConsumers;
  }

  __device__ __forceinline__ static PipelineState<Shape::kQueryStages> query_stage_of(int round) {
    return PipelineState<Shape::kQueryStages>::of(round * Shape::kConsumers + turn_of(round));
  }

  __device__ __forceinline__ void attend(int round) {
    const auto query = query_stage_of(round);
    Owned<Shape::Dqk, false> q;
    q.load(memory_.queries[query.stage]);
    ForwardAccumulators<T, Shape::Dv> acc(maps_.scale);
    memory_.queries_full[query.stage].wait(query.parity);
    forward_mainloop<T, false>(acc, stream_, memory_, BandMasks<Shape::kWindow>{maps_.tiles}, q);
    // Looked up anew, from a number that the compiler does not know again: registers are scarce.
    const int again = warp_uniform(round), tile = stream_.query();
    const auto at = query_stage_of(again);
    const TileSpan span = maps_.tiles.work_item(item_of(again));
    Softmax::Row row[2];
    int position[2];
    float* const lse =
        static_cast<float*>(f_.lse.data) + (span.b * f_.q.heads + span.h) * f_.q.time;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      position[half] = maps_.tiles.position(span.group, tile, row_of(half));
      row[half] = acc.softmax.finish(
          half, Shape::kAccumulate && position[half] >= 0 ? lse[position[half]] : -INFINITY);
    }
    __syncwarp();  // every lane of a quad has read lse
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (threadIdx.x % 4 == 0 && position[half] >= 0) lse[position[half]] = row[half].lse;
    if constexpr (Shape::kAccumulate)
      add(acc.y, row, position, span, at);
    else
      put(acc.y, row, at);
  }

  // Through shared memory, where y takes the place of the queries.
  __device__ __forceinline__ void put(const float (&y)[Shape::Dv / 2], const Softmax::Row (&row)[2],
                                      Memory::QueryStage query) const {
    warpgroup_sync();
    put_rows<T, false>(y, row, memory_.queries[query.stage]);
    fence_proxy_async();
    memory_.y_full[query.stage].arrive_warp();
  }

  // To what earlier passes left.
  __device__ __forceinline__ void add(const float (&y)[Shape::Dv / 2], const Softmax::Row (&row)[2],
                                      const int (&position)[2], const TileSpan& span,
                                      Memory::QueryStage query) const {
    memory_.y_full[query.stage].arrive_warp();
    const Rows rows = Rows::of(f_.y, span.b, span.h);
    store_row<T, 0>(y, row[0].now, true, row[0].kept, position[0], rows);
    store_row<T, 1>(y, row[1].now, true, row[1].kept, position[1], rows);
  }

  Memory& memory_;
  const AttentionForward& f_;
  const BandForwardMaps& maps_;
  KeyStream<Shape> stream_;
};

template <class T, class Shape_>
struct ColumnForwardKernel {
  using Shape = Shape_;
  using SharedStorage = BandMemory<Shape>;
  static constexpr int kThreads = Shape::kThreads;
  static constexpr RegisterSplit kRegisters = Shape::kRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const AttentionForward&,
                                              const BandForwardMaps& maps) {
    if (threadIdx.x == 0) prefetch(maps.q), prefetch(maps.k), prefetch(maps.v), prefetch(maps.y);
    memory.init();
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const AttentionForward&,
                                                 const BandForwardMaps& maps) {
    if (threadIdx.x == 0)
      produce_columns(memory, maps);
    else if (threadIdx.x % 32 == 0)
      store_y(memory, maps);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const AttentionForward& f,
                                                 const BandForwardMaps& maps) {
    ColumnForwardConsumer<T, Shape>(memory, f, maps).run();
  }
};

// The memory map of README.md.
static_assert(sizeof(BandMemory<ColumnForwardShape<64, 64, false, false>>) == 196'928);
static_assert(sizeof(BandMemory<ColumnForwardShape<64, 64, true, false>>) == 180'496);
static_assert(sizeof(BandMemory<ColumnForwardShape<64, 128, false, false>>) == 196'816);
static_assert(sizeof(BandMemory<ColumnForwardShape<128, 128, false, false>>) == 196'800);

void launch_column_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  BandForwardMaps maps = forward_maps(f, pass);
  with_head_sizes(f, [&]<class T, int Dqk, int Dv>() {
    const auto launch = [&]<bool kAccumulate, bool kWindow>() {
      using Shape = ColumnForwardShape<Dqk, Dv, kAccumulate, kWindow>;
      maps.tiles.cut_to(Shape::kConsumers);
      launch_persistent<ColumnForwardKernel<T, Shape>>(queue, maps.tiles.launched_items(), f, maps);
    };
    if (maps.tiles.reach != BandTiles::kNoLimit)
      launch.template operator()<false, true>();
    else
      pass.accumulate ? launch.template operator()<true, false>()
                      : launch.template operator()<false, false>();
  });
}
}  // namespace weft::attention::hopper
