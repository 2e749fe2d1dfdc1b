// SPDX-License-Identifier: MIT
// Backward attention on Hopper over a band that reaches at most 128 rows, as one kernel: five
// matmuls for each pair of tiles, every tensor is read or written once. Scores are transposed (rows
// are keys), so that P^T and dS^T are A operands in registers. dS^T also goes to shared memory,
// where the consumer whose key tile begins accumulates dQ over all consumers' tiles, in their
// order.
#include "kernels/attention/hopper/band/gradients.cuh"
#include "kernels/attention/hopper/launch.cuh"

namespace weft::attention::hopper {
// Consumer w holds dK and dV of every kConsumers-th key tile. x: Dqk columns, y: Dv, in panels
// of 64.
template <int Dqk_, int Dv_, int kConsumers_>
struct BandBackwardMemory {
  static constexpr int Dqk = Dqk_, Dv = Dv_, kConsumers = kConsumers_;
  // Keys and values stay while later queries meet them; queries and dy for a step; y until delta is
  // known.
  static constexpr bool kSmall = Dqk == 64 && Dv == 64;
  static constexpr int kKeyStages = kSmall      ? 5
                                    : Dqk == 64 ? 4
                                                : 3,
                       kStages = kSmall ? 3 : 2, kYStages = kSmall ? 2 : 1,
                       kOut = Dqk == 128 || kSmall ? 2 : 1;  // panels on their way
  static constexpr int kWarps = kWarpgroup / 32, kThreads = (1 + kConsumers) * kWarpgroup;
  using Pipelines = BackwardPipelines<kStages, kKeyStages, kYStages>;

  TilePair<Dqk, Dv> keys[kKeyStages], stages[kStages];
  Panel y[kYStages][Dv / 64];
  Panel ds[kConsumers];  // dS^T of the key tile `back` iterations ago and the queries at hand
  Panel out[kConsumers][kOut];
  QueryScalars64 scalars[kStages];
  TileStep::Shared step[kStages];
  Pipelines pipelines;
  // dS of all consumers has come; one of them has accumulated dQ over it.
  Pipeline<1> ds_pipeline;

  __device__ uint32_t lse(int stage) const { return shared_address(scalars[stage].lse); }

  __device__ uint32_t delta(int stage) const { return shared_address(scalars[stage].delta); }

  // By all threads of the block, before anything else.
  __device__ void init(bool makes_delta) {
    if (threadIdx.x == 0) {
      // Of keys: the consumer that holds the gradients of a tile, and the one that accumulates dQ.
      constexpr int kKeyReaders = 2 * kWarps;
      pipelines.init(kConsumers * kWarps + (makes_delta ? Pipelines::kDeltaWarps : 0), kKeyReaders);
      ds_pipeline.init(kConsumers * kWarps, kWarps);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

template <class T, class M, int kQueries, bool kDocuments>
class BandBackwardConsumer : KeyGradients<T, M, kQueries, kDocuments> {
 public:
  using Base = KeyGradients<T, M, kQueries, kDocuments>;

  __device__ BandBackwardConsumer(M& memory, const BandBackward& g)
      : Base(memory, g),
        own_(warp_uniform(threadIdx.x / kWarpgroup - 1)) {}

  __device__ __forceinline__ void run() {
    int back = own_ == 0 ? 0 : M::kConsumers - own_;
    for (;;) {
      memory_.pipelines.queries.wait(stage_);
      const TileStep step = TileStep::read(memory_.step[stage_.stage]);
      if (step.met_before < 0) break;
      if (back <= step.met_before)
        meet(step, back);
      else
        pass();
      stage_.advance(), key_.advance();
      parity_ ^= 1;
      back = back + 1 == M::kConsumers ? 0 : back + 1;
    }
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 private:
  using Base::memory_, Base::g_, Base::stage_, Base::dk_, Base::dv_;

  // This consumer's key tile is of another span, or out of reach.
  __device__ __forceinline__ void pass() {
    memory_.ds_pipeline.empty[0].wait(parity_ ^ 1);
    memory_.ds_pipeline.full[0].arrive_warp();
    memory_.pipelines.queries.release(stage_.stage);
  }

  // The queries at hand meet the key tile of `back` iterations ago.
  __device__ __forceinline__ void meet(const TileStep& step, int back) {
    const int key_stage = key_.stage_back(back);
    if (back == 0) memory_.pipelines.keys.full[key_stage].wait(key_.parity);
#pragma unroll
    for (int part = 0; part < Base::kParts; ++part)
      Base::meet_part(back, key_stage, part, memory_.ds[back], memory_.ds_pipeline.empty[0],
                      parity_ ^ 1);
    fence_proxy_async();
    memory_.ds_pipeline.full[0].arrive_warp();
    wgmma_wait_group<0>();
    pin(dk_), pin(dv_);
    const TileCoord at = TileStep::read_coord(memory_.step[stage_.stage]);
    memory_.pipelines.queries.release(stage_.stage);
    if (back == 0) end_queries(step, at);
    if (!ends(step, back)) return;
    memory_.pipelines.keys.release(key_stage);
    if (!(step.owned_keys >> back & 1)) return;
    const TileCoord keys{at.tile - back, at.group, at.h, at.b};
    put(dk_, g_.scale, g_.dk, keys);
    put(dv_, 1.0f, g_.dv, keys);
  }

  // Whether the key tile of `back` iterations ago meets no later queries.
  __device__ __forceinline__ bool ends(const TileStep& step, int back) const {
    return step.is_last || back == g_.tiles.tiles_back();
  }

  // All consumers have met the queries at hand: dQ.
  __device__ __forceinline__ void end_queries(const TileStep& step, const TileCoord& at) {
    memory_.ds_pipeline.full[0].wait(parity_);
    if (step.owns_queries) {
      float dq[M::Dqk / 2];
      if (M::kConsumers == 3 && step.met_before == 2)
        sum_queries<M::kConsumers>(dq);
      else if (step.met_before == 1)
        sum_queries<2>(dq);
      else
        sum_queries<1>(dq);
      release_queries(step);
      put(dq, g_.scale, g_.dq, at);
    } else {
      release_queries(step);
    }
  }

  __device__ __forceinline__ void release_queries(const TileStep& step) {
    memory_.ds_pipeline.release(0);
    for (int back = step.met_before; back >= 0; --back)
      if (ends(step, back)) memory_.pipelines.keys.release(key_.stage_back(back));
  }

  // dQ of the queries at hand, over their kTiles key tiles from the earliest on.
  template <int kTiles>
  __device__ __forceinline__ void sum_queries(float (&dq)[M::Dqk / 2]) const {
    pin(dq);
    wgmma_fence();
#pragma unroll
    for (int back = kTiles - 1; back >= 0; --back) {
      const Descriptor ds = descriptor(memory_.ds[back]),
                       k = descriptor(memory_.keys[key_.stage_back(back)].x);
      mma_atb<T>(dq, ds, k, back < kTiles - 1);
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
    pin(dq);
  }

  // Epilogue: accumulators times `factor`, rounded, to global memory.
  template <int N>
  __device__ __forceinline__ void put(const float (&c)[N], float factor, const CUtensorMap& to,
                                      const TileCoord& at) {
#pragma unroll
    for (int panel = 0; panel < N / 32; ++panel) {
      Panel& out = memory_.out[own_][out_.stage];
      send_panel<T, M::kOut - 1>(own_ + 1, c, panel, factor, out, to, g_, at);
      out_.advance();
    }
  }

  int own_, parity_ = 0;
  PipelineState<M::kKeyStages> key_;
  PipelineState<M::kOut> out_;
};

// As the registers allow: all queries of a tile at once, or a half after the other.
template <int Dqk, int Dv, int kConsumers>
struct BandShape {
  using M = BandBackwardMemory<Dqk, Dv, kConsumers>;
  static constexpr int kQueries = (Dv == 128 && kConsumers == 3) || Dqk == 128 ? 32 : 64;
  static constexpr RegisterSplit kRegisters = kConsumers == 3
                                                  ? RegisterSplit{.producer = 32, .consumer = 160}
                                                  : RegisterSplit{.producer = 40, .consumer = 232};
};

template <class T, int Dqk, int Dv, int kConsumers, bool kDocuments>
struct BandBackwardKernel {
  using Shape = BandShape<Dqk, Dv, kConsumers>;
  using SharedStorage = typename Shape::M;
  static constexpr int kThreads = SharedStorage::kThreads;
  static constexpr RegisterSplit kRegisters = Shape::kRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const BandBackward& g) {
    memory.init(!g.accumulate);
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const BandBackward& g) {
    hopper::produce<T>(memory, g);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const BandBackward& g) {
    BandBackwardConsumer<T, SharedStorage, Shape::kQueries, kDocuments>(memory, g).run();
  }
};

template <class T, int Dqk, int Dv, int kConsumers>
void start_band_backward(CudaQueue& queue, const BandBackward& g) {
  with_bool(g.tiles.reaches != nullptr, [&]<bool kDocuments>() {
    launch_persistent<BandBackwardKernel<T, Dqk, Dv, kConsumers, kDocuments>>(
        queue, g.tiles.launched_items(), g);
  });
}

// The memory map of README.md.
static_assert(sizeof(BandBackwardMemory<64, 64, 3>) == 223'024);
static_assert(sizeof(BandBackwardMemory<64, 128, 3>) == 214'224);
static_assert(sizeof(BandBackwardMemory<64, 128, 2>) == 197'840);
static_assert(sizeof(BandBackwardMemory<128, 128, 2>) == 230'592);

void launch_band_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  BandTiles tiles = BandTiles::of(pass.band, pass.reaches, g.q);
  tiles.cut(multiprocessors(), tiles.tiles_back());
  if (tiles.launched_items() == 0) return;
  const BandBackward work = BandBackward::of(g, pass, tiles);
  with_head_sizes(g, [&]<class T, int Dqk, int Dv>() {
    if constexpr (Dqk == 64) {
      if (Dv == 64 || tiles.tiles_back() == 2)
        return start_band_backward<T, Dqk, Dv, 3>(queue, work);
    }
    if constexpr (Dv == 128) start_band_backward<T, Dqk, Dv, 2>(queue, work);
  });
}
}  // namespace weft::attention::hopper
