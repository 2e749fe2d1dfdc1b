// SPDX-License-Identifier: MIT
// Backward attention on Hopper over a band whose queries see three key tiles, heads up to 128: the
// registers hold dK and dV of two key tiles, not of three. Two consumers own every second key tile
// each, which meets its own queries and those of the next two tiles. A tile of queries is fetched
// once, and both consumers stay busy. A third warpgroup accumulates dQ over the consumers' dS in
// the order of the key tiles.
#include "kernels/attention/hopper/band/gradients.cuh"
#include "kernels/attention/hopper/launch.cuh"

namespace weft::attention::hopper {
// Shared memory of a block; heads of 128. The rows of dK and dV leave through the place of their
// values.
struct Head128Memory {
  static constexpr int Dqk = 128, Dv = 128;
  static constexpr int kOwners = 2, kKeyStages = 3, kStages = 3;
  static constexpr int kYStages = 0;  // warps that make delta fetch y, 16 rows at a time
  static constexpr int kWarps = kWarpgroup / 32, kThreads = (2 + kOwners) * kWarpgroup, kYRows = 16,
                       kYPanel = kYRows * 128;
  using Pipelines = BackwardPipelines<kStages, kKeyStages, kYStages>;

  TilePair<128, 128> keys[kKeyStages], stages[kStages];
  char y[Pipelines::kDeltaWarps][2 * kYPanel];
  Panel ds[kOwners], out;  // ds: dS^T
  QueryScalars64 scalars[kStages];
  TileStep::Shared step[kStages];
  Pipelines pipelines;
  Barrier y_full[Pipelines::kDeltaWarps];
  // dS of an owner has come, from its warps; the third warpgroup has accumulated dQ over it.
  Pipeline<1> ds_pipeline[kOwners];

  __device__ uint32_t lse(int stage) const { return shared_address(scalars[stage].lse); }

  __device__ uint32_t delta(int stage) const { return shared_address(scalars[stage].delta); }

  __device__ void init(bool makes_delta) {
    if (threadIdx.x == 0) {
      constexpr int kKeyReaders = 1 + kWarps;  // a thread of the owner, and who accumulates dQ
      pipelines.init((kOwners + 1) * kWarps + (makes_delta ? Pipelines::kDeltaWarps : 0),
                     kKeyReaders);
      for (auto& full : y_full) full.init(1);
      for (auto& of_owner : ds_pipeline) of_owner.init(kWarps, kWarps);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// Rows first .. first + 15 of a tile of D columns to shared memory, in panels; `full` counts D *
// 32 bytes.
template <int D>
__device__ __forceinline__ void copy_16_rows(SharedAddress to, const CUtensorMap& from,
                                             const BandTiles& tiles, const TileCoord& at, int first,
                                             Barrier& full) {
#pragma unroll
  for (int panel = 0; panel < D / 64; ++panel)
    tma_load(to + panel * 16 * 128, from, panel * 64,
             at.tile * kTile + (first & (tiles.column_rows - 1)),
             at.group * tiles.columns() + (first >> tiles.column_shift), at.h, at.b, &full);
}

// Warps 2 and 3: delta = dy . y of 32 rows each, half a row a lane.
template <class T>
__device__ __forceinline__ void make_head128_delta(Head128Memory& memory, const BandBackward& g) {
  constexpr int kRows = Head128Memory::kYRows;
  PipelineState<Head128Memory::kStages> stage;
  const int warp = warp_uniform(static_cast<int>(threadIdx.x / 32)) - 2, lane = threadIdx.x % 32;
  for (;; stage.advance()) {
    memory.pipelines.queries.wait(stage);
    if (TileStep::read(memory.step[stage.stage]).met_before < 0) return;
#pragma unroll 1  // registers are scarce, here and below: what a step is is read anew
    for (int part = 0; part < 2; ++part) {
      const int first = (2 * warp + part) * kRows, row = lane % kRows, panel = lane / kRows;
      if (lane == 0) {
        memory.y_full[warp].arrive_expect_tx(2 * Head128Memory::kYPanel);
        copy_16_rows<128>(memory.y[warp], g.y, g.tiles,
                          TileStep::read_coord(memory.step[stage.stage]), first,
                          memory.y_full[warp]);
      }
      memory.y_full[warp].wait(part);
      float sum =
          row_product<T, 64>(shared_address(memory.stages[stage.stage].y[panel]) + first * 128,
                             memory.y[warp] + panel * Head128Memory::kYPanel, row);
      sum += __shfl_xor_sync(0xffffffffu, sum, kRows);
      const bool owned = TileStep::read(memory.step[stage.stage]).owns_queries;
      if (panel == 0) {
        st_shared_float(memory.delta(stage.stage) + (first + row) * 4, sum);
        const TileCoord at = TileStep::read_coord(memory.step[stage.stage]);
        g.put_delta(at, first + row, sum, owned);
      }
      __syncwarp();
    }
    memory.pipelines.delta_full[stage.stage].arrive_warp();
    memory.pipelines.queries.release(stage.stage);
  }
}

// A warpgroup that owns every second key tile.
template <class T, bool kDocuments>
class Head128KeyOwner : KeyGradients<T, Head128Memory, 32, kDocuments> {
 public:
  using M = Head128Memory;
  using Base = KeyGradients<T, M, 32, kDocuments>;

  __device__ Head128KeyOwner(M& memory, const BandBackward& g)
      : Base(memory, g),
        own_(warp_uniform(threadIdx.x / kWarpgroup - 1)) {}

  __device__ __forceinline__ void run() {
    bool begins = false;  // whether the key tile of the queries at hand is its own
    for (;; stage_.advance(), key_.advance()) {
      memory_.pipelines.queries.wait(stage_);
      const TileStep step = TileStep::read(memory_.step[stage_.stage]);
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
      memory_.pipelines.queries.release(stage_.stage);
    }
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 private:
  using Base::memory_, Base::g_, Base::stage_, Base::dk_, Base::dv_;

  // The queries at hand meet the key tile of `back` steps ago.
  __device__ __forceinline__ void meet(int back) {
    const int key_stage = key_.stage_back(back);
    if (back == 0) memory_.pipelines.keys.full[key_stage].wait(key_.parity);
#pragma unroll
    for (int part = 0; part < Base::kParts; ++part)
      Base::meet_part(back, key_stage, part, memory_.ds[own_], memory_.ds_pipeline[own_].empty[0],
                      parity_ ^ 1);
    fence_proxy_async();
    memory_.ds_pipeline[own_].full[0].arrive_warp();
    wgmma_wait_group<0>();
    pin(dk_), pin(dv_);
    parity_ ^= 1;
  }

  // The key tile of `back` steps ago meets no later queries.
  __device__ __forceinline__ void end(const TileStep& step, int back) {
    const int key_stage = key_.stage_back(back);
    const TileCoord at = TileStep::read_coord(memory_.step[stage_.stage]);
    warpgroup_sync(own_ + 1);  // its values are not read any more
    if (step.owned_keys >> back & 1) {
      const TileCoord keys{at.tile - back, at.group, at.h, at.b};
      put(dv_, 1.0f, g_.dv, keys, memory_.keys[key_stage].y);
      warpgroup_sync(own_ + 1);
      put(dk_, g_.scale, g_.dk, keys, memory_.keys[key_stage].y);
    }
    if (is_warpgroup_leader()) memory_.pipelines.keys.empty[key_stage].arrive();
  }

  // Stores rounded accumulators times `factor`; the leading thread returns when `out` is free
  // again.
  __device__ __forceinline__ void put(const float (&c)[64], float factor, const CUtensorMap& to,
                                      const TileCoord& at, SharedAddress out) const {
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

  __device__ Head128DqAccumulator(M& memory, const BandBackward& g)
      : memory_(memory),
        g_(g) {}

  __device__ __forceinline__ void run() {
    int owner = 0;  // of the key tile of the queries at hand
    for (;; stage_.advance(), key_.advance()) {
      memory_.pipelines.queries.wait(stage_);
      const TileStep step = TileStep::read(memory_.step[stage_.stage]);
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
        memory_.pipelines.keys.release(key_.stage_back(2));
      }
      release(owner ^ 1);
      if (step.is_last) memory_.pipelines.keys.release(key_.stage_back(1));
    }
    add(dq, owner, 0, step.met_before);
    wgmma_wait_group<0>();
    pin(dq);
    release(owner);
    if (step.is_last) memory_.pipelines.keys.release(key_.stage);
    const TileCoord at = TileStep::read_coord(memory_.step[stage_.stage]);
    memory_.pipelines.queries.release(stage_.stage);
    if (!step.owns_queries) return;
#pragma unroll
    for (int panel = 0; panel < 2; ++panel)
      send_panel<T>(M::kOwners + 1, dq, panel, g_.scale, memory_.out, g_.dq, g_, at);
  }

  // dS K of the key tile of `back` iterations ago, from dS of its owner.
  __device__ __forceinline__ void add(float (&dq)[64], int owner, int back, int add_to) const {
    memory_.ds_pipeline[owner].full[0].wait(counts_ >> owner & 1);
    const Descriptor ds = descriptor(warp_uniform(shared_address(memory_.ds[owner]))),
                     k = descriptor(
                         warp_uniform(shared_address(memory_.keys[key_.stage_back(back)].x)));
    wgmma_fence();
    mma_atb<T>(dq, ds, k, add_to);
    wgmma_commit_group();
  }

  __device__ __forceinline__ void release(int owner) {
    memory_.ds_pipeline[owner].release(0);
    counts_ ^= 1u << owner;
  }

  M& memory_;
  const BandBackward& g_;
  PipelineState<M::kStages> stage_;
  PipelineState<M::kKeyStages> key_;
  unsigned counts_ = 0;  // of each owner's dS, modulo 2, a bit each
};

template <class T, bool kDocuments>
struct Head128Kernel {
  using SharedStorage = Head128Memory;
  static constexpr int kThreads = Head128Memory::kThreads;
  static constexpr RegisterSplit kRegisters = kOwnerRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const BandBackward& g) {
    memory.init(!g.accumulate);
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const BandBackward& g) {
    const int warp = warp_uniform(static_cast<int>(threadIdx.x / 32));
    if (warp == 1) load_scalars(memory, g);
    if (warp > 1 && !g.accumulate) make_head128_delta<T>(memory, g);
    if (threadIdx.x == 0) load_tiles(memory, g);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const BandBackward& g) {
    Head128KeyOwner<T, kDocuments>(memory, g).run();
  }

  __device__ __forceinline__ static void consume_extra(SharedStorage& memory,
                                                       const BandBackward& g) {
    Head128DqAccumulator<T>(memory, g).run();
  }
};

// The memory map of README.md.
static_assert(sizeof(Head128Memory) == 231'184);

void launch_head128_backward(CudaQueue& queue, const AttentionBackward& g,
                             const AttentionPass& pass) {
  BandTiles tiles = BandTiles::of(pass.band, pass.reaches, g.q);
  tiles.cut(multiprocessors(), tiles.tiles_back());
  BandBackward work = BandBackward::of(g, pass, tiles);
  const bool described = describe(work.y, g.y, tiles, Head128Memory::kYRows);
  WEFT_CHECK(described || tiles.launched_items() == 0, kTmaRefuses);
  with_type(g, [&]<class T>() {
    with_bool(pass.reaches != nullptr, [&]<bool kDocuments>() {
      launch_persistent<Head128Kernel<T, kDocuments>>(queue, tiles.launched_items(), work);
    });
  });
}
}  // namespace weft::attention::hopper
