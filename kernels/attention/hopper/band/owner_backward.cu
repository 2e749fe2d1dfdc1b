// SPDX-License-Identifier: MIT
// Backward attention on Hopper over far bands, heads up to 64: whole residue columns of more than
// 128 rows, and windows of 129 to 257. One warpgroup accumulates each gradient in the order of the
// tiles: no atomics.
// A thread block takes key tiles two at a time. Two warpgroups own one of them each and accumulate
// its dK and dV while the queries that see it stream by. A third accumulates dQ over both, from dS
// in shared memory. Queries come again with the next two key tiles.
#include "kernels/attention/hopper/band/pairs.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/select.h"

namespace weft::attention::hopper {
// ---- columns: dQ waits in registers or in global memory ----

// kWhole: columns of up to kTilesInRegisters tiles keep dQ in registers; else of up to
// kTilesOfColumn.
template <bool kWhole>
struct ColumnPairs {
  static constexpr int kKeyStages = 5, kYStages = kWhole ? 2 : 1, kBuffers = 2;
  static constexpr int kOutPanels = 2 + 1;  // the last is that of dQ
  static constexpr int kKeptTiles = kWhole ? 2 * kTilesInRegisters : kTilesOfColumn;
};

template <bool kWhole_>
struct ColumnMemory : PairMemory<ColumnPairs<kWhole_>> {
  static constexpr bool kWhole = kWhole_;
  using Steps = ColumnSteps<!kWhole>;

  // Of the queries of a step. They stay until the column ends, and the next column, whose first
  // steps may begin before, has other places where it would meet them.
  __device__ uint32_t lse(const Steps& step) const {
    return shared_address(this->kept_lse[slot(step)]);
  }

  __device__ uint32_t delta(const Steps& step) const {
    return shared_address(this->kept_delta[slot(step)]);
  }

 private:
  __device__ static int slot(const Steps& step) {
    return (kWhole ? step.parity() * kTilesInRegisters : 0) + step.query();
  }
};

// The warpgroup that accumulates dQ. In columns of few tiles the last two query tiles, which both
// pairs of key tiles meet, keep dQ in registers; else dQ is in `kept` until the next pair: (tiles,
// 8, threads).
template <class T, class M>
class ColumnDqAccumulator : PairDqAccumulator<T, M> {
 public:
  using Base = PairDqAccumulator<T, M>;
  using Steps = typename M::Steps;

  __device__ ColumnDqAccumulator(M& memory, const BandBackward& g, float4* kept)
      : Base(memory, g),
        kept_(kept + Base::thread_) {}

  __device__ __forceinline__ void run() {
    float even[32], odd[32];
    bool in_odd = false;
    for (Steps step(g_.tiles); step; step.next()) {
      if (M::kWhole) in_odd = step.query() % 2;
      in_odd ? meet(step, odd, even) : meet(step, even, odd);
      in_odd = !in_odd;
    }
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 private:
  using Base::memory_, Base::g_, Base::key_;

  // following: takes what is kept of dQ of the next iteration, where registers do not hold it.
  __device__ __forceinline__ void meet(const Steps& step, float (&dq)[32], float (&following)[32]) {
    Steps next_step = step;
    next_step.next();
    const bool stays = next_step.query() == step.query();
    if (!M::kWhole && !next_step.first_visit() && !stays) fetch(following, next_step.query());
    const int first = owner_of(step.pair(), 0);
    const bool two = step.query() > step.key(0);
    PipelineState<M::kKeyStages> next = key_;
    next.advance();
    pin(dq);
    Base::add(dq, first, key_.stage, !step.first_visit());
    if (two) Base::add(dq, first ^ 1, next.stage, 1);
    wgmma_wait_group<0>();
    pin(dq);
    Base::release(first);
    if (two) Base::release(first ^ 1);
    if (step.ends_pair()) {
      memory_.pipelines.keys.release(key_.stage);
      key_.advance();
      if (step.has_key(1)) {
        memory_.pipelines.keys.release(key_.stage);
        key_.advance();
      }
    }
    if (step.last_visit())
      send_panel<T>(warpgroup_index(), dq, 0, g_.scale, memory_.out[M::kOwners], g_.dq, g_,
                    TileCoord::of(step.span(), step.query()));
    else if (!M::kWhole && !stays)
      keep(dq, step.query());
    if (!M::kWhole && stays)
#pragma unroll
      for (int i = 0; i < 32; ++i) following[i] = dq[i];
  }

  __device__ __forceinline__ void fetch(float (&dq)[32], int tile) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 x = __ldcg(kept_ + (tile * 8 + i) * kWarpgroup);
      dq[4 * i] = x.x, dq[4 * i + 1] = x.y, dq[4 * i + 2] = x.z, dq[4 * i + 3] = x.w;
    }
  }

  __device__ __forceinline__ void keep(const float (&dq)[32], int tile) const {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      __stcg(kept_ + (tile * 8 + i) * kWarpgroup,
             make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]));
  }

  float4* kept_;
};

template <class T, bool kWhole>
struct ColumnBackwardKernel {
  using SharedStorage = ColumnMemory<kWhole>;
  static constexpr int kThreads = SharedStorage::kThreads;
  static constexpr RegisterSplit kRegisters = kOwnerRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const BandBackward& g,
                                              float4* kept) {
    memory.init(!g.accumulate);
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const BandBackward& g,
                                                 float4* kept) {
    produce_pairs<T>(memory, g);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const BandBackward& g,
                                                 float4* kept) {
    KeyOwner<T, SharedStorage>(memory, g).run();
  }

  __device__ __forceinline__ static void consume_extra(SharedStorage& memory, const BandBackward& g,
                                                       float4* kept) {
    float4* const of_block = kept + int64_t{blockIdx.x} * g.tiles.tiles * 8 * kWarpgroup;
    ColumnDqAccumulator<T, SharedStorage>(memory, g, of_block).run();
  }
};

// The memory map of README.md.
static_assert(sizeof(ColumnMemory<true>) == 225'552);
static_assert(sizeof(ColumnMemory<false>) == 221'440);

void launch_column_backward(CudaQueue& queue, const AttentionBackward& g,
                            const AttentionPass& pass) {
  BandTiles tiles = BandTiles::of(pass.band, pass.reaches, g.q);
  tiles.cut_to(tiles.tiles);
  const BandBackward columns = BandBackward::of(g, pass, tiles);
  const int64_t needed = scratch_of(Kernel::hopper_column, Problem::of(g), pass);
  WEFT_CHECK(needed == 0 || g.scratch.size() >= needed, "attention: scratch of ", g.scratch.size(),
             " elements, needed are ", needed);
  with_type(g, [&]<class T>() {
    with_bool(columns.tiles.tiles <= kTilesInRegisters, [&]<bool kWhole>() {
      launch_persistent<ColumnBackwardKernel<T, kWhole>>(
          queue, columns.tiles.launched_items(), columns, static_cast<float4*>(g.scratch.data));
    });
  });
}

// ---- windows: dQ waits in shared memory ----

struct WindowPairs {
  static constexpr int kKeyStages = 3, kYStages = 1, kBuffers = 1;
  // query tiles whose dQ waits, in two panels
  static constexpr int kWaiting = WindowSteps::kMostBack;
  static constexpr int kOutPanels = 2 + 2 * kWaiting;
  static constexpr int kKeptTiles = 16;
};

struct WindowMemory : PairMemory<WindowPairs> {
  using Steps = WindowSteps;
  static constexpr int kWaiting = WindowPairs::kWaiting, kKeptTiles = WindowPairs::kKeptTiles;
  // Those of a pair, and of the iterations that the producer is ahead; slot() wants a power of
  // two.
  static_assert(kKeptTiles >= kWaiting + 2 + kStages && (kKeptTiles & (kKeptTiles - 1)) == 0);

  // dQ of a query tile until its last visit, then its rows on their way.
  __device__ uint32_t dq(int query) const {
    return shared_address(out[kOwners + query % kWaiting * 2]);
  }

  // Of the queries of a step. They stay until the last visit.
  __device__ uint32_t lse(const Steps& step) const { return shared_address(kept_lse[slot(step)]); }

  __device__ uint32_t delta(const Steps& step) const {
    return shared_address(kept_delta[slot(step)]);
  }

 private:
  __device__ static int slot(const Steps& step) { return step.number() & (kKeptTiles - 1); }
};

template <class T>
class WindowDqAccumulator : PairDqAccumulator<T, WindowMemory> {
 public:
  using M = WindowMemory;
  using Base = PairDqAccumulator<T, M>;

  __device__ WindowDqAccumulator(M& memory, const BandBackward& g)
      : Base(memory, g) {}

  __device__ __forceinline__ void run() {
    for (WindowSteps step(g_.tiles); step; step.next()) meet(step);
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 private:
  using Base::memory_, Base::g_, Base::key_, Base::thread_;

  __device__ __forceinline__ void meet(const WindowSteps& step) {
    float dq[32];
    const int first = owner_of(step.pair(), 0);
    const bool sees[2] = {step.meets(0), step.meets(1)};
    PipelineState<M::kKeyStages> next = key_;
    next.advance();
    const bool begins = step.first_visit();
    if (!begins) fetch(dq, step.query());
    pin(dq);
    Base::add(dq, sees[0] ? first : first ^ 1, sees[0] ? key_.stage : next.stage, !begins);
    if (sees[0] && sees[1]) Base::add(dq, first ^ 1, next.stage, 1);
    wgmma_wait_group<0>();
    pin(dq);
    if (sees[0]) Base::release(first);
    if (sees[1]) Base::release(first ^ 1);
    if (step.ends_key(0)) memory_.pipelines.keys.release(key_.stage);
    if (step.ends_pair()) {
      key_.advance();
      if (step.has_key(1)) {
        memory_.pipelines.keys.release(key_.stage);
        key_.advance();
      }
    }
    if (!step.last_visit())
      keep(dq, step.query(), begins);
    else if (step.owns_query())
      send_panel<T>(warpgroup_index(), dq, 0, g_.scale, memory_.dq(step.query()), g_.dq, g_,
                    TileCoord::of(step.span(), step.query()));
  }

  __device__ __forceinline__ uint32_t place(int query) const {
    return memory_.dq(query) + thread_ * 16;
  }

  __device__ __forceinline__ void fetch(float (&dq)[32], int query) const {
    const uint32_t from = place(query);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 x = ld_shared_float4(from + i * kWarpgroup * 16);
      dq[4 * i] = x.x, dq[4 * i + 1] = x.y, dq[4 * i + 2] = x.z, dq[4 * i + 3] = x.w;
    }
  }

  // begins: the place may be that of a tile whose rows are still on their way.
  __device__ __forceinline__ void keep(const float (&dq)[32], int query, bool begins) const {
    if (begins) {
      if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
      warpgroup_sync();
    }
    const uint32_t to = place(query);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      st_shared_float4(to + i * kWarpgroup * 16,
                       {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]});
  }
};

template <class T>
struct WindowBackwardKernel {
  using SharedStorage = WindowMemory;
  static constexpr int kThreads = WindowMemory::kThreads;
  static constexpr RegisterSplit kRegisters = kOwnerRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const BandBackward&) {
    memory.init(true);  // a first pass: it makes delta
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const BandBackward& g) {
    produce_pairs<T>(memory, g);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const BandBackward& g) {
    KeyOwner<T, WindowMemory>(memory, g).run();
  }

  __device__ __forceinline__ static void consume_extra(SharedStorage& memory,
                                                       const BandBackward& g) {
    WindowDqAccumulator<T>(memory, g).run();
  }
};

// The memory map of README.md.
static_assert(sizeof(WindowMemory) == 229'568);

void launch_window_backward(CudaQueue& queue, const AttentionBackward& g,
                            const AttentionPass& pass) {
  BandTiles tiles = BandTiles::of(pass.band, pass.reaches, g.q);
  // Two key tiles' worth of work more for each span.
  tiles.cut(multiprocessors(), 0.5 * tiles.tiles_back());
  const BandBackward windows = BandBackward::of(g, pass, tiles);
  with_type(g, [&]<class T>() {
    launch_persistent<WindowBackwardKernel<T>>(queue, tiles.launched_items(), windows);
  });
}
}  // namespace weft::attention::hopper
