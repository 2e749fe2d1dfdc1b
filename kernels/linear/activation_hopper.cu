// SPDX-License-Identifier: MIT
// LinearActivation on Hopper: a persistent, warp-specialised kernel for both directions. Each is a
// GEMM with an epilogue, computed transposed. A consumer warpgroup owns 64 columns of the result,
// whose weights stay in its registers as the A operand of wgmma; tiles of 128 rows of x (backward:
// dy) pass through shared memory as B. A thread's accumulators cover two columns and many rows:
// bias and column sums take two registers each.
//   The two consumers of a thread block share the tiles and alternate: one runs its MMAs while the
//   other runs
// its epilogue. One producer warp loads tiles through TMA, two warps store results. A cluster of
// two thread blocks shares each tile: either block loads one half for both. TMA clips at the ends
// of every axis.
#include "kernels/device/column_sums.cuh"
#include "kernels/linear/activation_hopper_memory.cuh"
#include "kernels/linear/forms.h"

#include <algorithm>
#include <cstddef>

namespace weft::linear_activation {
// The producer, one thread: loads tiles into the ring of stages.
template <class T, bool kBackward, int kChunks>
__device__ __forceinline__ void produce(Memory& memory, const Arguments<T>& a, TileScheduler tiles,
                                        int rank) {
  PipelineState<kStages> place;
  const auto next = [&](auto&& load_stage) {
    memory.pipeline.acquire(place, kStage);
    load_stage(memory.stages[place.stage], &memory.pipeline.full[place.stage]);
    place.advance();
  };
  for (bool new_columns = true; tiles.more(a); new_columns = tiles.advance(a)) {
    if (new_columns)
      for (int chunk = 0; chunk < kChunks; ++chunk)
        next([&](Panel* to, SharedAddress full) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int first = tiles.column(rank) + half * kColumns;
            if constexpr (kBackward) tma_load(to[half], a.w, first, chunk * kChunk, full);
            if constexpr (!kBackward) tma_load(to[half], a.w, chunk * kChunk, first, full);
          }
        });
    for (int chunk = 0; chunk < kChunks; ++chunk)
      next([&](Panel* to, SharedAddress full) {
        tma_load_multicast(to[rank], a.x, chunk * kChunk, tiles.tile * kRows + rank * kRows / 2,
                           full);
      });
  }
}

// One thread for each consumer: stores its results, and loads h for as many halves of a tile as it
// has slots.
template <class T, bool kBackward>
__device__ __forceinline__ void store_results(Memory& memory, const Arguments<T>& a,
                                              const TileScheduler& first, int rank, int consumer) {
  struct Half {
    TileScheduler tiles;
    int half;

    __device__ __forceinline__ int row() const { return tiles.tile * kRows + half * kRows / 2; }

    __device__ __forceinline__ void advance(const Arguments<T>& a) {
      half ^= 1;
      if (half == 0) tiles.advance(a);
    }
  };

  const auto column = [&](const Half& of) { return of.tiles.column(rank) + consumer * kColumns; };
  Half ahead = {first, 0}, at = ahead;
  PipelineState<kSlots> place;
  const auto open = [&](int slot) {
    if (!ahead.tiles.more(a)) return;
    Barrier& opened = memory.open[consumer][slot];
    if constexpr (kBackward) {
      opened.arrive_expect_tx(kPanel);
      tma_load(memory.slots[consumer][slot].h, a.h, column(ahead), ahead.row(), &opened);
    } else {
      opened.arrive();
    }
    ahead.advance(a);
  };
  for (int slot = 0; slot < kSlots; ++slot) open(slot);
  for (; at.tiles.more(a); at.advance(a), place.advance()) {
    Memory::Slot& slot = memory.slots[consumer][place.stage];
    memory.done[consumer][place.stage].wait(place.parity);
    if (kBackward || a.with_h) tma_store(kBackward ? a.dh : a.h, slot.h, column(at), at.row());
    if (a.with_y) tma_store(a.y, slot.y, column(at), at.row());
    tma_store_commit_group();
    tma_store_wait_group_read<0>();
    open(place.stage);
  }
}

template <class T, Activation kF, bool kBackward, int kChunks>
class Consumer {
 public:
  __device__ Consumer(Memory& memory, const Arguments<T>& a, const TileScheduler& tiles, int rank)
      : memory_(memory),
        a_(a),
        tiles_(tiles),
        rank_(rank),
        self_(warp_uniform(static_cast<int>(threadIdx.x) / kWarpgroup - 1)) {
    // The 8 x 8 matrices of 16 rows by 16 columns, ordered down the columns of the result first.
    const int lane = threadIdx.x % 32, chunk = warp() * 2 + (lane >> 3 & 1);
    lane_offset_ = ((lane >> 4) * 8 + (lane & 7)) * 128 + ((chunk ^ (lane & 7)) << 4);
  }

  __device__ __forceinline__ void run() {
    if (self_ == 1) named_barrier_arrive(turn_of(0), 2 * kWarpgroup);
    while (tiles_.more(a_)) {
      column_ = tiles_.column(rank_) + self_ * kColumns;
      uint32_t w[kChunks * 4][4];
      take_weights(w);
      float bias[2], sum[2] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) bias[i] = own(i) < a_.cols ? to_float(a_.bias[own(i)]) : 0.0f;
      for (bool new_columns = false; !new_columns;) {
        float c[64];
        new_columns = tiles_.advance(a_);
        const bool other_waits = self_ == 0 || tiles_.more(a_);
        named_barrier_sync(turn_of(self_), 2 * kWarpgroup);
        multiply(c, w);
        if (other_waits) named_barrier_arrive(turn_of(self_ ^ 1), 2 * kWarpgroup);
        wgmma_wait_group<0>();
        pin(c);
        release();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          memory_.open[self_][slot_.stage].wait(slot_.parity);
          kBackward ? finish_backward(c, half, bias, sum) : finish_forward(c, half, bias);
          fence_proxy_async();
          memory_.done[self_][slot_.stage].arrive_warp();
          slot_.advance();
        }
      }
      if (kBackward && a_.partial) write_partial(sum);
    }
  }

 private:
  // The consumers multiply by turns: one waits for its turn, the other gives it.
  enum class Turn : int { first = kFirstNamedBarrier };

  __device__ static Turn turn_of(int consumer) {
    return static_cast<Turn>(static_cast<int>(Turn::first) + consumer);
  }

  __device__ static int warp() { return static_cast<int>(threadIdx.x) % kWarpgroup / 32; }

  // Column i of the two whose accumulators this thread holds.
  __device__ int own(int i) const {
    return column_ + warp() * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * i;
  }

  // The stage before place_ may be filled again.
  __device__ __forceinline__ void release() {
    const int at = place_.stage == 0 ? kStages - 1 : place_.stage - 1;
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    Barrier& empty = memory_.pipeline.empty[at];
    empty.arrive();
    mbarrier_arrive_cluster(empty.address(), rank_ ^ 1);
  }

  __device__ __forceinline__ void take_weights(uint32_t (&w)[kChunks * 4][4]) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      memory_.pipeline.wait(place_);
      const uint32_t from = shared_address(memory_.stages[place_.stage][self_]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if constexpr (kBackward) ldmatrix_trans(w[chunk * 4 + k], from + lane_offset_ + k * 2048);
        if constexpr (!kBackward)
          ldmatrix(w[chunk * 4 + k], device::lane_address<64>(from, warp(), k));
      }
      place_.advance();
      release();
    }
  }

  // Starts c = w x^T; all but the last chunk have completed.
  __device__ __forceinline__ void multiply(float (&c)[64], const uint32_t (&w)[kChunks * 4][4]) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      memory_.pipeline.wait(place_);
      wgmma_fence();
      const Descriptor x = descriptor(memory_.stages[place_.stage]);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        wgmma<T, true>(c, w[chunk * 4 + k], x + k * kColumnStep, chunk + k > 0);
      wgmma_commit_group();
      if (chunk > 0) {
        wgmma_wait_group<1>();
        release();
      }
      place_.advance();
    }
  }

  // h and y of 64 rows to shared memory.
  __device__ __forceinline__ void finish_forward(const float (&c)[64], int half,
                                                 const float (&bias)[2]) {
#pragma unroll
    for (int i = 4 * half; i < 4 * half + 4; ++i) {  // 16 rows
      const uint32_t at = lane_offset_ + i % 4 * 2048;
      uint32_t h[4], y[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        h[m] = pack<T>(c[8 * i + 2 * m], c[8 * i + 2 * m + 1]);
        const float2 v = unpack<T>(h[m]);
        const float low = v.x + bias[m % 2], high = v.y + bias[m % 2];
        y[m] = pack<T>(activated<kF>(low, gelu).y, activated<kF>(high, gelu).y);
      }
      if (a_.with_h) stmatrix_trans(shared_address(memory_.slots[self_][slot_.stage].h) + at, h);
      stmatrix_trans(shared_address(memory_.slots[self_][slot_.stage].y) + at, y);
    }
  }

  // dh and y of 64 rows to shared memory, dh in the place of h.
  __device__ __forceinline__ void finish_backward(const float (&c)[64], int half,
                                                  const float (&bias)[2], float (&sum)[2]) {
#pragma unroll
    for (int i = 4 * half; i < 4 * half + 4; ++i) {
      const uint32_t at = lane_offset_ + i % 4 * 2048;
      uint32_t h[4], dh[4], y[4];
      ldmatrix_trans(h, shared_address(memory_.slots[self_][slot_.stage].h) + at);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const float2 two = unpack<T>(h[m]);
        float v[2] = {two.x, two.y}, d[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const Activated<float> at_v = activated<kF>(v[j] + bias[m % 2], gelu);
          v[j] = at_v.y;
          d[j] = c[8 * i + 2 * m + j] * at_v.slope;
          sum[m % 2] += d[j];
        }
        y[m] = pack<T>(v[0], v[1]);
        dh[m] = pack<T>(d[0], d[1]);
      }
      stmatrix_trans(shared_address(memory_.slots[self_][slot_.stage].h) + at, dh);
      if (a_.with_y) stmatrix_trans(shared_address(memory_.slots[self_][slot_.stage].y) + at, y);
    }
  }

  __device__ __forceinline__ void write_partial(float (&sum)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] += __shfl_xor_sync(kFullWarp, sum[i], 1);
      sum[i] += __shfl_xor_sync(kFullWarp, sum[i], 2);
      if (threadIdx.x % 4 == 0 && own(i) < a_.cols)
        a_.partial[static_cast<int64_t>(tiles_.lane) * a_.cols + own(i)] = sum[i];
    }
  }

  Memory& memory_;
  const Arguments<T>& a_;
  TileScheduler tiles_;
  const int rank_, self_;
  PipelineState<kStages> place_;
  PipelineState<kSlots> slot_;
  int column_ = 0;  // the first of this consumer
  uint32_t lane_offset_;
};

template <class T, Activation kF, bool kBackward, int kChunks>
__global__ void __launch_bounds__(kThreads, 1)
    linear_activation_kernel(const __grid_constant__ Arguments<T> a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) char shared[];
  Memory& memory = shared_storage<Memory>(shared);
  const int rank = static_cast<int>(cluster_rank());
  const TileScheduler tiles = TileScheduler::of(a, static_cast<int>(blockIdx.x) / kCluster);
  if (threadIdx.x == 0) memory.init();
  __syncwarp();
  cluster_sync();
  if (threadIdx.x < kWarpgroup) {
    setmaxnreg_dec<40>();
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32);
    if (threadIdx.x % 32 == 0) {
      if (warp == 0) produce<T, kBackward, kChunks>(memory, a, tiles, rank);
      if (warp == 1 || warp == 2) store_results<T, kBackward>(memory, a, tiles, rank, warp - 1);
    }
  } else {
    setmaxnreg_inc<232>();
    Consumer<T, kF, kBackward, kChunks>(memory, a, tiles, rank).run();
  }
  __syncwarp();
  cluster_sync();  // nobody leaves while somebody may still send
#endif
}

// ---- host ----

// Distributes tiles over the multiprocessors.
template <class T>
void schedule(Arguments<T>& a, int64_t rows, int64_t cols) {
  const int clusters = std::max(1, multiprocessors() / kCluster);
  a.cols = static_cast<int>(cols);
  a.tiles = static_cast<int>((rows + kRows - 1) / kRows);
  a.groups = static_cast<int>((cols + kCluster * kSlab - 1) / (kCluster * kSlab));
  a.columns = std::min(a.groups, clusters);
  a.lanes = std::min(a.tiles, clusters / a.columns);
}

template <Activation kF, bool kBackward, int kChunks, class T>
void start(CudaQueue& queue, const Arguments<T>& a) {
  const auto kernel = linear_activation_kernel<T, kF, kBackward, kChunks>;
  WEFT_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       kSharedBytes<Memory>));
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(a.columns * a.lanes * kCluster));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes<Memory>;
  config.stream = queue.stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  WEFT_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a));
}

namespace {
// Calls body.operator()<T, kF, kChunks>() with the shortest inner axis that has a kernel.
template <class Body>
void with_kernel(DType t, Activation f, int64_t inner, Body&& body) {
  const auto of_type = [&]<class T>() {
    dispatch_activation(f, [&]<Activation kF>() {
      if (inner <= 4 * kChunk) return body.template operator()<T, kF, 4>();
      return body.template operator()<T, kF, 8>();
    });
  };
  t == DType::f16 ? of_type.template operator()<__half>()
                  : of_type.template operator()<__nv_bfloat16>();
}

void set(CUtensorMap& map, const TensorView& x, const char* name) {
  describe(map, x, 64, "linear_activation", name);
}
}  // namespace

void run_hopper(CudaQueue& q, const LinearActivationForward& k) {
  with_kernel(k.x.dtype, k.f, k.x.cols(), [&]<class T, Activation kF, int kChunks>() {
    Arguments<T> a{};
    set(a.x, k.x, "x");
    set(a.w, k.w, "w");
    set(a.y, k.y, "y");
    if (k.h) set(a.h, k.h, "h");
    a.bias = k.b.as<T>();
    a.with_h = static_cast<bool>(k.h);
    a.with_y = true;
    schedule(a, k.y.rows(), k.y.cols());
    start<kF, false, kChunks>(q, a);
  });
}

void run_hopper(CudaQueue& q, const LinearActivationBackward& k) {
  with_kernel(k.dy.dtype, k.f, k.dy.cols(), [&]<class T, Activation kF, int kChunks>() {
    Arguments<T> a{};
    set(a.x, k.dy, "dy");
    set(a.w, k.w, "w");
    set(a.h, k.h, "h");
    set(a.dh, k.dh, "dh");
    if (k.y) set(a.y, k.y, "y");
    a.bias = k.b.as<T>();
    a.with_y = static_cast<bool>(k.y);
    schedule(a, k.dh.rows(), k.dh.cols());
    std::size_t offset = 0;
    if (k.db)
      a.partial =
          take_workspace<float>(q, offset, a.lanes * k.dh.cols(), LinearActivationBackward::kName);
    start<kF, true, kChunks>(q, a);
    if (k.db) launch_sum_partials<1>(q, {{column_sums(k.db)}}, a.partial, a.lanes, k.dh.cols());
  });
}
}  // namespace weft::linear_activation
