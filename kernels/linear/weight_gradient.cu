// SPDX-License-Identifier: MIT
// dw = dy^T x and db = sum of dy over rows on Hopper, in one pass: a split-K GEMM. A thread block
// computes a tile of dw of 192 rows (columns of dy) by 128 columns over a share of the rows; each
// of two consumer warpgroups has 64 of the 128. One producer warp loads through TMA; the other
// three of its warpgroup sum the columns of dy, whose stages thread blocks with the same columns
// divide among them. A cluster shares the tiles of dy: each thread block loads a part for all. A
// second kernel adds the shares in order.
#include "kernels/device/dependent_launch.cuh"
#include "kernels/forms.h"
#include "kernels/linear/forms.h"
#include "kernels/linear/hopper.cuh"

#include <algorithm>
#include <cstddef>

namespace weft::linear_rows {
using namespace device;
using namespace linear_hopper;

inline constexpr int kRows = 64;                  // of a stage
inline constexpr int kXPanels = 2, kYPanels = 3;  // of 64 columns
inline constexpr int kXColumns = kXPanels * 64, kYColumns = kYPanels * 64;
inline constexpr int kStage = (kXPanels + kYPanels) * kPanel;  // bytes
inline constexpr int kStages = 5;
inline constexpr int kThreads = 3 * kWarpgroup;
inline constexpr int kReaders = 8 + kYPanels;  // warps that read a stage

struct Arguments {
  CUtensorMap x, dy;      // tiles of 64 rows of x, of 64 / kCluster rows of dy, and 64 columns
  float *partial, *sums;  // (shares, M, K); (shares, x_tiles, M)
  int m, k;               // columns of dy and of x
  int x_tiles, y_tiles, shares, stages;
};

struct Memory {
  struct Stage {
    Panel x[kXPanels], y[kYPanels];
  };

  Stage stages[kStages];
  Pipeline<kStages> pipeline;

  // By one thread of each thread block of the cluster.
  __device__ void init() {
    pipeline.init(1, kCluster * kReaders);  // every block fills a part of y
    fence_mbarrier_init();
    fence_proxy_async();
  }
};

// The upper bits of an address in a cluster, the rank, would run into the descriptor's stride.
__device__ __forceinline__ Descriptor rows_at(SharedAddress address) {
  return descriptor(address & 0xffffff);
}

// The share of a thread block.
struct Work {
  int x_tile, y_tile, share, first, end;  // stages first .. end - 1

  __device__ __forceinline__ static Work of(const Arguments& a) {
    const int block = static_cast<int>(blockIdx.x), rest = block / a.x_tiles;
    Work w;
    w.x_tile = block % a.x_tiles;
    w.y_tile = rest % a.y_tiles;
    w.share = rest / a.y_tiles;
    w.first = static_cast<int>(static_cast<long long>(a.stages) * w.share / a.shares);
    w.end = static_cast<int>(static_cast<long long>(a.stages) * (w.share + 1) / a.shares);
    return w;
  }
};

// This warp has read the stage: tells every producer that fills it.
__device__ __forceinline__ void release(Barrier& empty) {
  __syncwarp();
  if (const int lane = static_cast<int>(threadIdx.x) % 32; lane < kCluster)
    mbarrier_arrive_cluster(empty.address(), lane);
}

// The producer, one thread: loads tiles into the ring of stages.
__device__ __forceinline__ void produce(Memory& memory, const Arguments& a, const Work& w) {
  constexpr int kPart = kRows / kCluster;
  const int rank = w.x_tile % kCluster;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  PipelineState<kStages> place;
  for (int stage = w.first; stage < w.end; ++stage, place.advance()) {
    memory.pipeline.acquire(place, kStage);
    const SharedAddress full = &memory.pipeline.full[place.stage];
    auto& to = memory.stages[place.stage];
#pragma unroll
    for (int panel = 0; panel < kXPanels; ++panel)
      tma_load(to.x[panel], a.x, w.x_tile * kXColumns + panel * 64, stage * kRows, full);
#pragma unroll
    for (int panel = 0; panel < kYPanels; ++panel)
      tma_load_multicast(to.y[panel] + rank * kPart * 128, a.dy, w.y_tile * kYColumns + panel * 64,
                         stage * kRows + rank * kPart, full);
  }
}

// One warp: sums 64 columns of dy. A lane has eight columns of sixteen rows.
template <class T>
__device__ __forceinline__ void sum_columns(Memory& memory, const Arguments& a, const Work& w,
                                            int panel) {
  const int lane = static_cast<int>(threadIdx.x) % 32, chunk = lane % 8, first_row = lane / 8 * 16;
  float sum[8] = {};
  PipelineState<kStages> place;
  for (int stage = w.first; stage < w.end; ++stage, place.advance()) {
    memory.pipeline.wait(place);
    if (stage % a.x_tiles == w.x_tile) {
      const uint32_t from = shared_address(memory.stages[place.stage].y[panel]) + first_row * 128;
#pragma unroll 4
      for (int row = 0; row < 16; ++row) {
        const uint4 eight = ld_shared_16(from + row * 128 + ((chunk ^ (row & 7)) << 4));
        const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sum[2 * i] += low_half<T>(words[i]);
          sum[2 * i + 1] += high_half<T>(words[i]);
        }
      }
    }
    release(memory.pipeline.empty[place.stage]);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum[i] += __shfl_xor_sync(kFullWarp, sum[i], 8);
    sum[i] += __shfl_xor_sync(kFullWarp, sum[i], 16);
  }
  const int column = w.y_tile * kYColumns + panel * 64 + chunk * 8;
  griddepcontrol_wait();  // which may use the workspace
  if (lane < 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (column + i < a.m)
        a.sums[(static_cast<int64_t>(w.share) * a.x_tiles + w.x_tile) * a.m + column + i] = sum[i];
  }
}

// A consumer warpgroup: MMAs over its share of the rows, then the accumulators to the workspace.
template <class T>
__device__ __forceinline__ void consume(Memory& memory, const Arguments& a, const Work& w,
                                        int self) {
  float c[96];
  PipelineState<kStages> place;
  int before = 0;
  for (int stage = w.first; stage < w.end; ++stage, place.advance()) {
    memory.pipeline.wait(place);
    wgmma_fence();
    const Descriptor x = rows_at(memory.stages[place.stage].x[self]),
                     y = rows_at(memory.stages[place.stage].y);
    mma_atb<T>(c, x, y, stage > w.first);
    wgmma_commit_group();
    wgmma_wait_group<1>();
    if (stage > w.first) release(memory.pipeline.empty[before]);
    before = place.stage;
  }
  wgmma_wait_group<0>();
  pin(c);
  release(memory.pipeline.empty[before]);
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
  const int k = w.x_tile * kXColumns + self * 64 + warp * 16 + lane / 4;
  const int m = w.y_tile * kYColumns + lane % 4 * 2;
  griddepcontrol_wait();  // which may use the workspace
  float* const out = a.partial + static_cast<int64_t>(w.share) * a.m * a.k;
#pragma unroll
  for (int j = 0; j < 24; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (m + 8 * j + i % 2 < a.m && k + i / 2 * 8 < a.k)
        out[static_cast<int64_t>(m + 8 * j + i % 2) * a.k + k + i / 2 * 8] = c[4 * j + i];
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) rows_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) char shared[];
  Memory& memory = shared_storage<Memory>(shared);
  const Work work = Work::of(a);
  if (threadIdx.x == 0) memory.init();
  __syncwarp();
  cluster_sync();
  if (threadIdx.x < kWarpgroup) {
    setmaxnreg_dec<40>();
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32);
    if (warp == 0 && threadIdx.x == 0) produce(memory, a, work);
    if (warp > 0) sum_columns<T>(memory, a, work, warp - 1);
  } else {
    setmaxnreg_inc<232>();
    consume<T>(memory, a, work, warp_uniform(static_cast<int>(threadIdx.x) / kWarpgroup - 1));
  }
  __syncwarp();
  cluster_sync();  // nobody leaves while somebody may still send
#endif
}

// Adds the shares: dw (+)= sum of `shares` parts of `size` elements, db (+)= sum of `rows` rows of
// sums.
struct Join {
  float *dw, *db;
  const float *partial, *sums;
  int64_t size;  // a multiple of four
  int shares, rows, m;
  bool add_dw, add_db;
};

static __global__ void __launch_bounds__(256) join_shares(const Join j) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) * 4;
  if (i < j.size) {
    float4 sum = *reinterpret_cast<const float4*>(j.partial + i);
#pragma unroll 4
    for (int share = 1; share < j.shares; ++share) {
      const float4 part = *reinterpret_cast<const float4*>(j.partial + share * j.size + i);
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    auto* const out = reinterpret_cast<float4*>(j.dw + i);
    if (j.add_dw) {
      const float4 old = *out;
      sum.x += old.x, sum.y += old.y, sum.z += old.z, sum.w += old.w;
    }
    *out = sum;
  }
  const int64_t column = i / 4;  // of db
  if (column >= j.m) return;
  float sum = j.sums[column];
#pragma unroll 8
  for (int row = 1; row < j.rows; ++row) sum += j.sums[static_cast<int64_t>(row) * j.m + column];
  j.db[column] = j.add_db ? j.db[column] + sum : sum;
}

// ---- host ----

inline int x_tiles_of(const LinearBackward& k) {
  const auto tiles = static_cast<int>((k.x.cols() + kXColumns - 1) / kXColumns);
  return (tiles + kCluster - 1) / kCluster * kCluster;
}

// What a share of the rows takes of the workspace.
inline std::size_t bytes_of_share(const LinearBackward& k) {
  return static_cast<std::size_t>(k.dy.cols() * (k.x.cols() + x_tiles_of(k))) * sizeof(float) + 512;
}

template <class T>
void start(CudaQueue& q, const LinearBackward& k) {
  Arguments a{};
  describe(a.x, k.x, kRows, LinearBackward::kName, "x");
  describe(a.dy, k.dy, kRows / kCluster, LinearBackward::kName, "dy");
  a.m = static_cast<int>(k.dy.cols());
  a.k = static_cast<int>(k.x.cols());
  a.x_tiles = x_tiles_of(k);
  a.y_tiles = (a.m + kYColumns - 1) / kYColumns;
  a.stages = static_cast<int>((k.x.rows() + kRows - 1) / kRows);
  const auto room = static_cast<int>(q.workspace_bytes / bytes_of_share(k));
  a.shares = std::clamp(std::min(multiprocessors() / (a.x_tiles * a.y_tiles), room), 1, a.stages);
  std::size_t offset = 0;
  a.partial = take_workspace<float>(q, offset, a.shares * k.dw.view.size(), LinearBackward::kName);
  a.sums =
      take_workspace<float>(q, offset, int64_t{a.shares} * a.x_tiles * a.m, LinearBackward::kName);
  WEFT_CUDA_CHECK(cudaFuncSetAttribute(rows_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       kSharedBytes<Memory>));
  const auto blocks = static_cast<unsigned>(a.x_tiles * a.y_tiles * a.shares);
  launch_dependent(q, rows_kernel<T>, {blocks, kThreads, kSharedBytes<Memory>, kCluster}, a);
  const Join join = {
      .dw = k.dw.view.as<float>(),
      .db = k.db.view.as<float>(),
      .partial = a.partial,
      .sums = a.sums,
      .size = k.dw.view.size(),
      .shares = a.shares,
      .rows = a.shares * a.x_tiles,
      .m = a.m,
      .add_dw = k.dw.accumulate,
      .add_db = k.db.accumulate,
  };
  launch_dependent(q, join_shares, {blocks_for(std::max<int64_t>(join.size / 4, join.m), 256), 256},
                   join);
}

bool covers(const CudaQueue& q, const LinearBackward& k) {
  constexpr int64_t kMost = int64_t{1} << 30;  // indices are of 32 bits
  const int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.dy.cols();
  if (!reason_against_sm90a(k.x.dtype, compute_capability()).empty()) return false;
  return rows > 0 && k.dw.view.size() > 0 && rows < kMost && inner < kMost && cols < kMost &&
         inner % 8 == 0 && cols % 8 == 0 && aligned16(k.x, k.dy, k.dw.view) &&
         bytes_of_share(k) <= q.workspace_bytes;
}

void run_hopper(CudaQueue& q, const LinearBackward& k) {
  if (k.x.dtype == DType::f16) return start<__half>(q, k);
  start<__nv_bfloat16>(q, k);
}
}  // namespace weft::linear_rows
