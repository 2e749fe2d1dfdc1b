// SPDX-License-Identifier: MIT
// What initcheck sees of a store by TMA: the same tile is written twice, by ordinary stores and by
// TMA, checked on the host, and read by a kernel of its own. Where only read_after_tma is reported,
// initcheck is blind to TMA.
//   nvcc -arch=sm_90a -std=c++20 -I. -o /tmp/initcheck_tma tests/tools/initcheck_tma.cu
//   compute-sanitizer --tool initcheck /tmp/initcheck_tma
#include "kernels/device/tma.cuh"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {
constexpr int kColumns = 64, kRows = 64, kCount = kColumns * kRows;  // a tile of 16-bit elements
using Element = unsigned short;

__global__ void write_by_stores(Element* to) {
  for (int i = threadIdx.x; i < kCount; i += blockDim.x) to[i] = 7;
}

__global__ void write_by_tma(const __grid_constant__ CUtensorMap to) {
  __shared__ __align__(1024) Element tile[kCount];
  for (int i = threadIdx.x; i < kCount; i += blockDim.x) tile[i] = 7;
  weft::device::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  weft::device::tma_store(to, static_cast<uint32_t>(__cvta_generic_to_shared(tile)), 0, 0, 0, 0, 0);
  weft::device::tma_store_commit_group();
  weft::device::tma_store_wait_all();
}

__device__ void add_up(const Element* from, int* sum) {
  int mine = 0;
  for (int i = threadIdx.x; i < kCount; i += blockDim.x) mine += from[i];
  sum[threadIdx.x] = mine;
}

__global__ void read_after_stores(const Element* from, int* sum) { add_up(from, sum); }

__global__ void read_after_tma(const Element* from, int* sum) { add_up(from, sum); }

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "error: %s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
  std::exit(1);
}

int sum_of(const int* sums) {
  std::vector<int> host(128);
  require(cudaMemcpy(host.data(), sums, 512, cudaMemcpyDeviceToHost) == cudaSuccess, "cudaMemcpy");
  int sum = 0;
  for (const int x : host) sum += x;
  return sum;
}
}  // namespace

int main() {
  Element *stored = nullptr, *sent = nullptr;
  int* sums = nullptr;
  require(cudaMalloc(&stored, 2 * kCount) == cudaSuccess &&
              cudaMalloc(&sent, 2 * kCount) == cudaSuccess && cudaMalloc(&sums, 512) == cudaSuccess,
          "cudaMalloc");
  CUtensorMap map;
  require(weft::device::encode_tensor_map<5>(
              map, weft::DType::bf16, sent, {kColumns, kRows, 1, 1, 1},
              {kColumns, kCount, kCount, kCount}, {kColumns, kRows, 1, 1, 1},
              CU_TENSOR_MAP_L2_PROMOTION_NONE),
          "tensor map");
  write_by_stores<<<1, 128>>>(stored);
  read_after_stores<<<1, 128>>>(stored, sums);
  require(sum_of(sums) == 7 * kCount, "ordinary stores");
  write_by_tma<<<1, 128>>>(map);
  read_after_tma<<<1, 128>>>(sent, sums);
  require(sum_of(sums) == 7 * kCount, "TMA stores");
  std::puts("both tiles are what was written");
}
