// SPDX-License-Identifier: MIT
// Backward attention on Hopper over a band whose queries see three key tiles, heads up to 128: the
// registers hold dK and dV of two key tiles, not of three. Two consumers own every second key tile
// each, which meets its own queries and those of the next two tiles. A tile of queries is fetched
// once, and both consumers stay busy. A third warpgroup accumulates dQ over the consumers' dS in
// the order of the key tiles.
#include "kernels/attention/hopper/band/backward.cuh"
#include "kernels/attention/hopper/launchers.h"

namespace weft::attention::hopper {
// Shared memory of a block; heads of 128. The rows of dK and dV leave through the place of their
// values.
struct Head128Memory : BackwardRings<Head128Memory> {
  static constexpr int Dqk = 128, Dv = 128, kX = 2 * kPanel, kY = 2 * kPanel;
  static constexpr int kOwners = 2, kKeyStages = 3, kStages = 3;
  static constexpr int kYStages = 0;  // warps that make delta fetch y, 16 rows at a time
  static constexpr int kThreads = (2 + kOwners) * kWarpgroup, kYRows = 16, kYPanel = kYRows * 128;

  struct SharedStorage {
    TilePair<kX, kY> keys[kKeyStages], stages[kStages];
    char y[kDeltaWarps][2 * kYPanel];
    Panel ds[kOwners], out;  // ds: dS^T

    struct {
      float lse[kTile], delta[kTile];
    } scalars[kStages];

    TileStep::Shared step[kStages];
    uint64_t full[kStages], empty[kStages], delta_full[kStages], keys_full[kKeyStages],
        keys_empty[kKeyStages], y_full[kDeltaWarps], ds_full[kOwners], ds_empty[kOwners];
  };

  static constexpr int kBytes = sizeof(SharedStorage) + kPanelAlignment;
  static_assert(kBytes <= 227 * 1024);

  __device__ static Head128Memory of(const char* shared) { return {{first_panel(shared)}}; }

  __device__ uint32_t y(int warp) const { return WEFT_AT(y) + warp * 2 * kYPanel; }

  __device__ uint32_t ds(int owner) const { return WEFT_AT(ds) + owner * kPanel; }

  __device__ uint32_t out() const { return WEFT_AT(out); }

  // dS of an owner has come, from its warps; the third warpgroup has accumulated dQ over it.
  __device__ uint32_t ds_full(int owner) const { return y_full(kDeltaWarps + owner); }

  __device__ uint32_t ds_empty(int owner) const { return ds_full(kOwners + owner); }

  __device__ void init(bool makes_delta) const {
    if (threadIdx.x == 0) {
      // Keys: a thread of the owner, and the warpgroup that accumulates dQ.
      init_rings((kOwners + 1) * kWarps + (makes_delta ? kDeltaWarps : 0), 1 + kWarps);
      for (int i = 0; i < kDeltaWarps; ++i) mbarrier_init(y_full(i), 1);
      for (int i = 0; i < kOwners; ++i)
        mbarrier_init(ds_full(i), kWarps), mbarrier_init(ds_empty(i), kWarps);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// Rows first .. first + 15 of a tile of D columns to shared memory, in panels; `barrier` counts D *
// 32 bytes.
template <int D>
__device__ __forceinline__ void copy_16_rows(uint32_t to, const CUtensorMap& from,
                                             const BandTiles& tiles, const TileCoord& at, int first,
                                             uint32_t barrier) {
#pragma unroll
  for (int panel = 0; panel < D / 64; ++panel)
    tma_load(to + panel * 16 * 128, from, panel * 64,
             at.tile * kTile + (first & (tiles.column_rows - 1)),
             at.group * tiles.columns() + (first >> tiles.column_shift), at.h, at.b, barrier);
}

// Warps 2 and 3: delta = dy . y of 32 rows each, half a row a lane.
template <class T>
__device__ __forceinline__ void make_head128_delta(const Head128Memory& memory,
                                                   const BandBackward& g) {
  constexpr int kRows = Head128Memory::kYRows;
  PipelineState<Head128Memory::kStages> stage;
  const int warp = warp_uniform(static_cast<int>(threadIdx.x / 32)) - 2, lane = threadIdx.x % 32;
  for (;; stage.advance()) {
    mbarrier_wait(memory.full(stage.stage), stage.parity);
    if (TileStep::read(memory.step(stage.stage)).met_before < 0) return;
#pragma unroll 1  // registers are scarce, here and below: what a step is is read anew
    for (int part = 0; part < 2; ++part) {
      const int first = (2 * warp + part) * kRows, row = lane % kRows, panel = lane / kRows;
      if (lane == 0) {
        mbarrier_arrive_expect_tx(memory.y_full(warp), 2 * Head128Memory::kYPanel);
        copy_16_rows<128>(memory.y(warp), g.y, g.tiles,
                          TileStep::read_coord(memory.step(stage.stage)), first,
                          memory.y_full(warp));
      }
      mbarrier_wait(memory.y_full(warp), part);
      float sum = row_product<T, 64>(memory.dy(stage.stage) + panel * kPanel + first * 128,
                                     memory.y(warp) + panel * Head128Memory::kYPanel, row);
      sum += __shfl_xor_sync(0xffffffffu, sum, kRows);
      const bool owned = TileStep::read(memory.step(stage.stage)).owns_queries;
      if (panel == 0) {
        st_shared_float(memory.delta(stage.stage) + (first + row) * 4, sum);
        const TileCoord at = TileStep::read_coord(memory.step(stage.stage));
        g.put_delta(at, first + row, sum, owned);
      }
      __syncwarp();
    }
    mbarrier_arrive_warp(memory.delta_full(stage.stage));
    mbarrier_arrive_warp(memory.empty(stage.stage));
  }
}

// A warpgroup that owns every second key tile.
template <class T, bool kDocuments>
class Head128KeyOwner : KeyGradients<T, Head128Memory, 32, kDocuments> {
 public:
  using M = Head128Memory;
  using Base = KeyGradients<T, M, 32, kDocuments>;

  __device__ Head128KeyOwner(const M& memory, const BandBackward& g)
      : Base(memory, g),
        own_(warp_uniform(threadIdx.x / kWarpgroup - 1)) {}

  __device__ __forceinline__ void run() {
    bool begins = false;  // whether the key tile of the queries at hand is its own
    for (;; stage_.advance(), key_.advance()) {
      mbarrier_wait(memory_.full(stage_.stage), stage_.parity);
      const TileStep step = TileStep::read(memory_.step(stage_.stage));
      if (step.met_before < 0) break;
      begins = step.met_before == 0 ? own_ == 0 : !begins;
      if (begins && step.met_before == 2) {
        meet(2);
        end(step, 2);
      }
      const int back = begins ? 0 : 1;
      if (back <= step.met_before) {
        meet(back);
        if (step.is_last) end(step, back);
      }
      mbarrier_arrive_warp(memory_.empty(stage_.stage));
    }
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 private:
  using Base::memory_, Base::g_, Base::stage_, Base::dk_, Base::dv_;

  // The queries at hand meet the key tile of `back` steps ago.
  __device__ __forceinline__ void meet(int back) {
    const int key_stage = key_.stage_back(back);
    if (back == 0) mbarrier_wait(memory_.keys_full(key_stage), key_.parity);
#pragma unroll
    for (int part = 0; part < Base::kParts; ++part)
      Base::meet_part(back, key_stage, part, memory_.ds(own_), memory_.ds_empty(own_), parity_ ^ 1);
    fence_proxy_async();
    mbarrier_arrive_warp(memory_.ds_full(own_));
    wgmma_wait_group<0>();
    pin(dk_), pin(dv_);
    parity_ ^= 1;
  }

  // The key tile of `back` steps ago meets no later queries.
  __device__ __forceinline__ void end(const TileStep& step, int back) {
    const int key_stage = key_.stage_back(back);
    const TileCoord at = TileStep::read_coord(memory_.step(stage_.stage));
    warpgroup_sync(own_ + 1);  // its values are not read any more
    if (step.owned_keys >> back & 1) {
      const TileCoord keys{at.tile - back, at.group, at.h, at.b};
      put(dv_, 1.0f, g_.dv, keys, memory_.v(key_stage));
      warpgroup_sync(own_ + 1);
      put(dk_, g_.scale, g_.dk, keys, memory_.v(key_stage));
    }
    if (is_warpgroup_leader()) mbarrier_arrive(memory_.keys_empty(key_stage));
  }

  // Stores rounded accumulators times `factor`; the leading thread returns when `out` is free
  // again.
  __device__ __forceinline__ void put(const float (&c)[64], float factor, const CUtensorMap& to,
                                      const TileCoord& at, uint32_t out) const {
#pragma unroll
    for (int panel = 0; panel < 2; ++panel) put_panel<T>(c, panel, factor, out + panel * kPanel);
    fence_proxy_async();
    warpgroup_sync(own_ + 1);
    if (!is_warpgroup_leader()) return;
    for (int panel = 0; panel < 2; ++panel)
      store_panel(to, out + panel * kPanel, panel, g_.tiles, at, g_.accumulate);
    tma_store_wait_group_read<0>();
  }

  int own_, parity_ = 0;
  PipelineState<M::kKeyStages> key_;
};

template <class T>
class Head128DqAccumulator {
 public:
  using M = Head128Memory;

  __device__ Head128DqAccumulator(const M& memory, const BandBackward& g)
      : memory_(memory),
        g_(g) {}

  __device__ __forceinline__ void run() {
    int owner = 0;  // of the key tile of the queries at hand
    for (;; stage_.advance(), key_.advance()) {
      mbarrier_wait(memory_.full(stage_.stage), stage_.parity);
      const TileStep step = TileStep::read(memory_.step(stage_.stage));
      if (step.met_before < 0) break;
      owner = step.met_before == 0 ? 0 : owner ^ 1;
      meet(step, owner);
    }
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 private:
  __device__ __forceinline__ void meet(const TileStep& step, int owner) {
    float dq[64];
    pin(dq);
    if (step.met_before == 2) add(dq, owner, 2, 0);
    if (step.met_before > 0) {
      add(dq, owner ^ 1, 1, step.met_before - 1);
      wgmma_wait_group<0>();
      pin(dq);
      if (step.met_before == 2) {
        release(owner);
        mbarrier_arrive_warp(memory_.keys_empty(key_.stage_back(2)));
      }
      release(owner ^ 1);
      if (step.is_last) mbarrier_arrive_warp(memory_.keys_empty(key_.stage_back(1)));
    }
    add(dq, owner, 0, step.met_before);
    wgmma_wait_group<0>();
    pin(dq);
    release(owner);
    if (step.is_last) mbarrier_arrive_warp(memory_.keys_empty(key_.stage));
    const TileCoord at = TileStep::read_coord(memory_.step(stage_.stage));
    mbarrier_arrive_warp(memory_.empty(stage_.stage));
    if (!step.owns_queries) return;
#pragma unroll
    for (int panel = 0; panel < 2; ++panel)
      send_panel<T>(M::kOwners + 1, dq, panel, g_.scale, memory_.out(), g_.dq, g_, at);
  }

  // dS K of the key tile of `back` iterations ago, from dS of its owner.
  __device__ __forceinline__ void add(float (&dq)[64], int owner, int back, int add_to) const {
    mbarrier_wait(memory_.ds_full(owner), counts_ >> owner & 1);
    const Descriptor ds = descriptor(warp_uniform(memory_.ds(owner))),
                     k = descriptor(warp_uniform(memory_.k(key_.stage_back(back))));
    wgmma_fence();
    mma_atb<T>(dq, ds, k, add_to);
    wgmma_commit_group();
  }

  __device__ __forceinline__ void release(int owner) {
    mbarrier_arrive_warp(memory_.ds_empty(owner));
    counts_ ^= 1u << owner;
  }

  const M& memory_;
  const BandBackward& g_;
  PipelineState<M::kStages> stage_;
  PipelineState<M::kKeyStages> key_;
  unsigned counts_ = 0;  // of each owner's dS, modulo 2, a bit each
};

template <class T, bool kDocuments>
__global__ void __launch_bounds__(Head128Memory::kThreads, 1)
    head128_backward_kernel(const __grid_constant__ BandBackward g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) char shared[];
  const Head128Memory memory = Head128Memory::of(shared);
  memory.init(!g.accumulate);
  const int group = warp_uniform(warpgroup_index());
  if (group == 0) {
    setmaxnreg_dec<OwnerRegisters::kProducer>();
    const int warp = warp_uniform(static_cast<int>(threadIdx.x / 32));
    if (warp == 1) load_scalars(memory, g);
    if (warp > 1 && !g.accumulate) make_head128_delta<T>(memory, g);
    if (threadIdx.x == 0) load_tiles(memory, g);
  } else if (group > Head128Memory::kOwners) {
    setmaxnreg_dec<OwnerRegisters::kQueries>();
    Head128DqAccumulator<T>(memory, g).run();
  } else {
    setmaxnreg_inc<OwnerRegisters::kOwner>();
    Head128KeyOwner<T, kDocuments>(memory, g).run();
  }
#endif
}

void launch_head128_backward(CudaQueue& queue, const AttentionBackward& g,
                             const AttentionPass& pass) {
  BandTiles tiles = BandTiles::of(pass.band, pass.reaches, g.q);
  tiles.cut(multiprocessors(), tiles.tiles_back());
  BandBackward work = BandBackward::of(g, pass, tiles);
  const bool described = describe(work.y, g.y, tiles, Head128Memory::kYRows);
  WEFT_CHECK(described || tiles.launched_items() == 0, kTmaRefuses);
  with_type(g, [&]<class T>() {
    with_bool(pass.reaches != nullptr, [&]<bool kDocuments>() {
      start(queue, head128_backward_kernel<T, kDocuments>, tiles.launched_items(),
            Head128Memory::kThreads, Head128Memory::kBytes, work);
    });
  });
}
}  // namespace weft::attention::hopper
