// SPDX-License-Identifier: MIT
// Backward attention over windows of 129 to 257 rows, heads up to 64: as over whole columns
// (column_memory.cuh), but a block takes a span (backward_memory.cuh). Two key tiles at a time meet
// the up to six query tiles that see them. dQ waits in shared memory for the next two key tiles.
#include "kernels/attention/hopper/band/column_backward.cuh"
#include "kernels/attention/hopper/launchers.h"

namespace weft::attention::hopper {
// A tile of queries and the two key tiles at hand: the first, and the one after it where the span
// has it.
class WindowSteps {
 public:
  static constexpr int kMostBack = 4;  // tiles before a query tile that it sees

  __device__ explicit WindowSteps(const BandTiles& tiles)
      : tiles_(tiles),
        item_(blockIdx.x) {
    open(0);
  }

  __device__ explicit operator bool() const { return item_ < tiles_.work_items(); }

  __device__ __forceinline__ void next() {
    if (!ends_pair()) {
      ++query_;
      return;
    }
    key_ += 2;
    query_ = key_;
    if (key_ < end_) return;
    item_ += this_grid();
    open(key_ + offset_);
  }

  // Looked up anew: registers are scarce.
  __device__ TileSpan span() const { return tiles_.work_item(item_); }

  // Tiles of this block's spans are numbered on and on; pairs begin with even numbers.
  __device__ int number() const { return query_ + offset_; }

  __device__ int pair() const { return (key_ + offset_) / 2; }

  __device__ int query() const { return query_; }

  __device__ int key(int i) const { return key_ + i; }

  __device__ bool has_key(int i) const { return key_ + i < end_; }

  __device__ bool meets(int i) const {
    return has_key(i) && query_ >= key_ + i && query_ <= key_ + i + back();
  }

  __device__ bool begins_pair() const { return query_ == key_; }

  __device__ bool ends_pair() const { return query_ == min(key_ + 1 + back(), end_ - 1); }

  __device__ bool ends_key(int i) const { return query_ == min(key_ + i + back(), end_ - 1); }

  __device__ bool brings_second_key() const { return query_ == key_ + 1; }

  __device__ bool owns_query() const { return first_ == 0 || query_ - first_ >= back(); }

  __device__ bool owns_key(const TileSpan& span, int i) const { return key_ + i < span.end; }

  __device__ bool first_visit() const { return key_ == first_ || query_ >= key_ + back(); }

  __device__ bool last_visit() const { return query_ < key_ + 2; }

 private:
  __device__ int back() const { return tiles_.tiles_back(); }

  __device__ __forceinline__ void open(int number) {
    if (item_ >= tiles_.work_items()) return;
    const TileSpan span = tiles_.work_item(item_);
    first_ = key_ = query_ = span.first;
    end_ = min(span.end + back(), tiles_.tiles);
    offset_ = number - first_;
  }

  const BandTiles& tiles_;
  int item_, first_ = 0, end_ = 0, key_ = 0, query_ = 0, offset_ = 0;
};

struct WindowPairs {
  static constexpr int kKeyStages = 3, kYStages = 1, kBuffers = 1;
  // query tiles whose dQ waits, in two panels
  static constexpr int kWaiting = WindowSteps::kMostBack;
  static constexpr int kOutPanels = 2 + 2 * kWaiting;
  static constexpr int kKeptTiles = 16;
};

struct WindowMemory : PairMemory<WindowPairs> {
  static constexpr bool kWhole = false;
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
      : Base(memory, g, nullptr) {}

  __device__ __forceinline__ void run() {
    for (WindowSteps step(this->g_.tiles); step; step.next()) meet(step);
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 private:
  __device__ __forceinline__ void meet(const WindowSteps& step) {
    float dq[32];
    const int first = owner_of(step.pair(), 0);
    const bool sees[2] = {step.meets(0), step.meets(1)};
    PipelineState<M::kKeyStages> next = this->key_;
    next.advance();
    const bool begins = step.first_visit();
    if (!begins) fetch(dq, step.query());
    pin(dq);
    this->add(dq, sees[0] ? first : first ^ 1, sees[0] ? this->key_.stage : next.stage, !begins);
    if (sees[0] && sees[1]) this->add(dq, first ^ 1, next.stage, 1);
    wgmma_wait_group<0>();
    pin(dq);
    if (sees[0]) this->release(first);
    if (sees[1]) this->release(first ^ 1);
    if (step.ends_key(0)) this->memory_.pipelines.keys.release(this->key_.stage);
    if (step.ends_pair()) {
      this->key_.advance();
      if (step.has_key(1)) {
        this->memory_.pipelines.keys.release(this->key_.stage);
        this->key_.advance();
      }
    }
    if (!step.last_visit())
      keep(dq, step.query(), begins);
    else if (step.owns_query())
      send_panel<T>(warpgroup_index(), dq, 0, this->g_.scale, this->memory_.dq(step.query()),
                    this->g_.dq, this->g_, TileCoord::of(step.span(), step.query()));
  }

  __device__ __forceinline__ uint32_t place(int query) const {
    return this->memory_.dq(query) + threadIdx.x % kWarpgroup * 16;
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
