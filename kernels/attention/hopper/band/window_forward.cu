// SPDX-License-Identifier: MIT
// Forward attention on Hopper over windows of 129 to 257 rows, heads up to 64: the producer and the
// schedule of forward.cuh. A consumer meets the five key tiles of a query tile one after the other,
// with an online softmax. The first and the last share their exp2: no query sees the same column of
// both.
#include "kernels/attention/hopper/band/forward_stream.cuh"
#include "kernels/attention/hopper/forward_mainloop.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/hopper/masks.cuh"

namespace weft::attention::hopper {
struct WindowShape {
  static constexpr int Dqk = 64, Dv = 64;
  static constexpr bool kAccumulate = false, kStorer = true, kInOrder = true;
  static constexpr int kConsumers = 4, kThreads = (1 + kConsumers) * kWarpgroup;
  static constexpr RegisterSplit kRegisters = {.producer = 32, .consumer = 112};
  static constexpr int kQ = kPanel, kY = kPanel, kQueryBytes = kQ, kQueryStages = 8, kStages = 10;
  static constexpr int kMostBack = 4;  // tiles before a query tile that it sees
  static_assert(kStages >= kConsumers + kMostBack);
};

// The stages that a query tile meets, as a Consumer. A mask is the distance of a key tile that
// hides, or -1.
class WindowStream {
 public:
  using Memory = BandMemory<WindowShape>;

  __device__ WindowStream(Memory& memory, const BandTiles& tiles)
      : memory_(memory),
        tiles_(tiles) {}

  // Of the tile whose own stage is `own`, up to `last` tiles back.
  __device__ __forceinline__ void open(Memory::Stage own, int last) {
    own_ = own, back_ = 0, last_ = last;
    memory_.keys_full[own_.stage].wait(own_.parity);
  }

  __device__ __forceinline__ int step() {
    if (back_ == last_) return kEnd;
    ++back_;
    const auto stage = own_.back(back_);
    memory_.keys_full[stage.stage].wait(stage.parity);
    return tiles_.hides(back_) ? back_ : -1;
  }

  __device__ __forceinline__ int stage() const { return own_.back(back_).stage; }

  __device__ __forceinline__ int stage_before() const { return own_.back(back_ - 1).stage; }

  // All stages of a tile are given back at once.
  __device__ __forceinline__ void release(int) const {}

 private:
  Memory& memory_;
  const BandTiles& tiles_;
  Memory::Stage own_{};
  int back_ = 0, last_ = 0;
};

// A consumer warpgroup: every kConsumers-th query tile of the block.
template <class T>
class WindowConsumer {
 public:
  using Shape = WindowShape;
  using Memory = BandMemory<Shape>;

  __device__ WindowConsumer(Memory& memory, const AttentionForward& f, const BandForwardMaps& maps)
      : memory_(memory),
        f_(f),
        maps_(maps),
        stream_(memory, maps.tiles) {}

  __device__ __forceinline__ void run() {
    take_query_tiles<Shape>(maps_.tiles, this_thread(),
                            [&](const TileSpan& span, int tile, auto query, auto stage) {
                              attend(span, tile, query, stage);
                            });
  }

 private:
  __device__ __forceinline__ void attend(const TileSpan& span, int tile, Memory::QueryStage query,
                                         Memory::Stage stage) {
    ForwardAccumulators<T, Shape::Dv> acc(maps_.scale);
    Owned<Shape::Dqk, false> q;
    q.load(memory_.queries[query.stage]);
    memory_.queries_full[query.stage].wait(query.parity);
    mainloop(acc, q, tile, stage);
    memory_.done[query.stage].arrive_warp();
    float* const lse =
        static_cast<float*>(f_.lse.data) + (span.b * f_.q.heads + span.h) * f_.q.time;
    Softmax::Row row[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row[half] = acc.softmax.finish(half, -INFINITY);
      const int position = maps_.tiles.position(span.group, tile, row_of(half));
      if (threadIdx.x % 4 == 0 && position >= 0) lse[position] = row[half].lse;
    }
    // y takes the place of the queries, which the group reads.
    warpgroup_sync();
    put_rows<T, false>(acc.y, row, memory_.y(query));
    fence_proxy_async();
    memory_.y_full[query.stage].arrive_warp();
  }

  __device__ __forceinline__ void mainloop(ForwardAccumulators<T, Shape::Dv>& acc,
                                           const Owned<Shape::Dqk, false>& q, int tile,
                                           Memory::Stage own) {
    const BandTiles& tiles = maps_.tiles;
    const StageDescriptors<Memory> at(memory_);
    const int farthest = tiles.tiles_back();
    // With reach 64 m + 1 and no skip, both tiles need the diagonal column, so they can't share
    // registers.
    const bool shares = tile >= farthest && tiles.reach - tiles.skip <= farthest * kTile;
    stream_.open(own, shares ? farthest - 1 : min(tile, farthest));
    uint32_t p[4][4], p_far[4][4];
    int mask;
    if (shares) {
      begin_shared(acc, p, p_far, q, at, own);
      mask = stream_.step();
      pin(acc.y), pin(p_far);
      wgmma_fence();
      acc.issue_values(p_far, at.values(own.back(farthest).stage));
      wgmma_wait_group<0>();  // there are no registers to let them span on
      pin(acc.y);
    } else {
      acc.issue_scores(q, at.keys(own.stage));
      mask = stream_.step();
      wgmma_wait_group<0>();
      pin(acc.s);
      hide(acc.s, BandMasks<true>{tiles}, 0);
      acc.softmax.begin(acc.s);
      acc.softmax.add();
      round_to_operand<T>(p, acc.s);
    }
    const BandMasks<true> masks{tiles};
    while (mask != kEnd)
      mask = forward_iteration<T>(acc, p, stream_, memory_, at, masks, q, mask, masks);
    pin(acc.y);
    wgmma_fence();
    acc.issue_values(p, at.values(stream_.stage()));
    wgmma_wait_group<0>();
    pin(acc.y);
  }

  // The query tile's own keys and the farthest share registers until their probabilities are
  // rounded.
  __device__ __forceinline__ void begin_shared(ForwardAccumulators<T, Shape::Dv>& acc,
                                               uint32_t (&p)[4][4], uint32_t (&p_far)[4][4],
                                               const Owned<Shape::Dqk, false>& q,
                                               const StageDescriptors<Memory>& at,
                                               Memory::Stage own) {
    const BandTiles& tiles = maps_.tiles;
    const int farthest = tiles.tiles_back();
    const auto far = own.back(farthest);
    memory_.keys_full[far.stage].wait(far.parity);
    float distant[32];
    pin(acc.s);
    wgmma_fence();
    q.template mma_abt<T>(acc.s, at.keys(own.stage));
    q.template mma_abt<T>(distant, at.keys(far.stage));
    wgmma_commit_group();
    wgmma_wait_group<0>();
    pin(acc.s), pin(distant);
    if (tiles.reach != farthest * kTile || tiles.skip != 0)
      hide(distant, tiles, farthest, Reach::of(tiles));
    const SeenKeys seen = SeenKeys::of(tiles, 0, Reach::of(tiles));
    // Only 16 x 16 scores around the diagonal are looked at one by one.
    const int diagonal =
        warp_uniform(static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16) - tiles.skip;
#pragma unroll
    for (int columns = 0; columns < kTile; columns += 16) {
      if (columns + 15 <= diagonal) continue;  // all rows of this warp see them
      if (columns > diagonal + 15) {
#pragma unroll
        for (int i = columns / 2; i < columns / 2 + 8; ++i) acc.s[i] = distant[i];
      } else {
#pragma unroll
        for (int i = columns / 2; i < columns / 2 + 8; ++i)
          acc.s[i] = seen.before_end(i) ? acc.s[i] : distant[i];
      }
    }
    acc.softmax.begin(acc.s);
    acc.softmax.add();
    round_to_operand<T>(p, acc.s);
    split(p, p_far, seen);
  }

  Memory& memory_;
  const AttentionForward& f_;
  const BandForwardMaps& maps_;
  WindowStream stream_;
};

template <class T>
struct WindowForwardKernel {
  using SharedStorage = BandMemory<WindowShape>;
  static constexpr int kThreads = WindowShape::kThreads;
  static constexpr RegisterSplit kRegisters = WindowShape::kRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const AttentionForward&,
                                              const BandForwardMaps& maps) {
    if (threadIdx.x == 0) prefetch(maps.q), prefetch(maps.k), prefetch(maps.v), prefetch(maps.y);
    memory.init();
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const AttentionForward&,
                                                 const BandForwardMaps& maps) {
    if (threadIdx.x == 0)
      produce_band(memory, maps);
    else if (threadIdx.x % 32 == 0)
      store_y(memory, maps);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const AttentionForward& f,
                                                 const BandForwardMaps& maps) {
    WindowConsumer<T>(memory, f, maps).run();
  }
};

// The memory map of README.md.
static_assert(sizeof(BandMemory<WindowShape>) == 229'752);

void launch_window_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  BandForwardMaps maps = forward_maps(f, pass);
  // A tile that is loaded again but not written costs about a quarter as much as others.
  maps.tiles.cut(multiprocessors(), 0.25 * maps.tiles.tiles_back());
  with_type(f, [&]<class T>() {
    launch_persistent<WindowForwardKernel<T>>(queue, maps.tiles.launched_items(), f, maps);
  });
}
}  // namespace weft::attention::hopper
