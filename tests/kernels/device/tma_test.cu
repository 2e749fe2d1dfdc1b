// SPDX-License-Identifier: MIT
// TMA: a box of a matrix to shared memory and back, in the swizzle that the matrix instructions
// read.
#include "kernels/device/mma.cuh"
#include "kernels/device/pipeline.cuh"
#include "kernels/device/tma.cuh"
#include "tests/kernels/device/device_case.h"

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

namespace weft {
namespace {
using namespace device;

constexpr int kRows = 64, kColumns = 64;

struct Box {
  Panel panel;
  Barrier full;
};

// `seen`: every element of the box, through its swizzled address. Its box is then stored at `to`.
__global__ void copy_kernel(const __grid_constant__ CUtensorMap from,
                            const __grid_constant__ CUtensorMap to, uint16_t* seen) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) char raw[];
  auto& box = shared_storage<Box>(raw);
  if (threadIdx.x == 0) {
    box.full.init(1);
    fence_proxy_async();
    box.full.arrive_expect_tx(sizeof(box.panel));
    tma_load(box.panel, from, 0, 32, &box.full);
  }
  __syncthreads();
  box.full.wait(0);
  for (int i = threadIdx.x; i < kRows * kColumns; i += blockDim.x) {
    const uint32_t offset = chunk_offset<kColumns>(i / kColumns, i % kColumns / 8);
    seen[i] = *reinterpret_cast<const uint16_t*>(box.panel + offset + i % 8 * 2);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    tma_store(to, box.panel, 0, 0);
    tma_store_commit_group();
    tma_store_wait_all();
  }
#endif
}

TEST(CudaDeviceTma, ABoxArrivesSwizzledAndGoesBackWhole) {
  if (!device_test::has_hopper()) GTEST_SKIP() << "TMA of compute capability 9.0";
  constexpr int kAllRows = 80;  // the box begins at row 32: its last 16 rows are outside
  std::vector<uint16_t> matrix(kAllRows * kColumns);
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint16_t>(i + 1);
  uint16_t *from = nullptr, *to = nullptr;
  const std::size_t bytes = matrix.size() * 2, out_bytes = kRows * kColumns * 2;
  WEFT_CUDA_CHECK(cudaMalloc(&from, bytes));
  WEFT_CUDA_CHECK(cudaMalloc(&to, out_bytes));
  WEFT_CUDA_CHECK(cudaMemcpy(from, matrix.data(), bytes, cudaMemcpyHostToDevice));
  CUtensorMap map_from{}, map_to{};
  const auto describe = [](CUtensorMap& map, void* data, int64_t rows) {
    return encode_tensor_map<2>(map, DType::f16, data, {kColumns, rows}, {kColumns},
                                {kColumns, kRows}, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  };
  ASSERT_TRUE(describe(map_from, from, kAllRows) && describe(map_to, to, kRows));
  constexpr int kBytes = kSharedBytes<Box>;
  const auto seen = device_test::numbers_of<uint16_t>(kRows * kColumns, [&](uint16_t* numbers) {
    copy_kernel<<<1, 128, kBytes>>>(map_from, map_to, numbers);
  });
  std::vector<uint16_t> back(seen.size());
  WEFT_CUDA_CHECK(cudaMemcpy(back.data(), to, out_bytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kRows * kColumns; ++i) {
    const int row = 32 + i / kColumns;
    const int expected = row < kAllRows ? row * kColumns + i % kColumns + 1 : 0;
    ASSERT_EQ(seen[static_cast<std::size_t>(i)], expected) << i;
    ASSERT_EQ(back[static_cast<std::size_t>(i)], expected) << i;
  }
  WEFT_CUDA_CHECK(cudaFree(from));
  WEFT_CUDA_CHECK(cudaFree(to));
}
}  // namespace
}  // namespace weft
