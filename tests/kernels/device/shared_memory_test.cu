// SPDX-License-Identifier: MIT
// Shared memory as a struct: where members lie, and that every load gives back what was stored.
#include "kernels/device/global_memory.cuh"
#include "kernels/device/storage.cuh"
#include "tests/kernels/device/device_case.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

namespace weft {
namespace {
using namespace device;

struct Members {
  Panel panel;
  alignas(16) int words[8];
  uint64_t wide;
};

constexpr int kRoundTripBytes = kSharedBytes<Members>;

__global__ void addresses_kernel(int* to) {
  extern __shared__ __align__(128) char raw[];
  auto& members = shared_storage<Members>(raw);
  const uint32_t base = shared_address(&members);
  to[0] = static_cast<int>(base % kPanelAlignment);
  to[1] = static_cast<int>(base - shared_address(raw)) < kPanelAlignment;
  to[2] = static_cast<int>(SharedAddress(members.words) - base);
  to[3] = static_cast<int>(SharedAddress(&members.words[3]) - SharedAddress(members.words));
}

TEST(CudaDeviceStorage, BeginsAtAPanelAndMembersLieWhereTheStructHasThem) {
  const auto got = device_test::numbers_of<int>(
      4, [](int* to) { addresses_kernel<<<1, 1, kRoundTripBytes>>>(to); });
  EXPECT_EQ(got, (std::vector<int>{0, 1, kPanel, 12}));
}

__global__ void loads_kernel(int* to) {
  extern __shared__ __align__(128) char raw[];
  auto& members = shared_storage<Members>(raw);
  const uint32_t at = shared_address(members.words);
  st_shared_int4(at, {1, 2, 3, 4});
  st_shared_int2(at + 16, {5, 6});
  st_shared_int(at + 24, 7);
  st_shared_float(at + 28, 8.0f);
  st_shared_u64(shared_address(&members.wide), uint64_t{9} << 32 | 10);
  const int4 four = ld_shared_int4(at);
  const int2 two = ld_shared_int2(at + 16);
  const uint64_t wide = ld_shared_u64(shared_address(&members.wide));
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w, to[4] = two.x, to[5] = two.y;
  to[6] = ld_shared_int(at + 24), to[7] = static_cast<int>(ld_shared_float2(at + 24).y);
  to[8] = static_cast<int>(wide >> 32), to[9] = static_cast<int>(wide & 0xffffffffu);
  st_shared_float4(at, {11.0f, 12.0f, 13.0f, 14.0f});
  const float4 floats = ld_shared_float4(at);
  to[10] = static_cast<int>(floats.x), to[11] = static_cast<int>(floats.w);
  st_release_gpu(to + 12, 15);
  to[13] = ld_acquire_gpu(to + 12) + 1;
}

TEST(CudaDeviceSharedMemory, LoadsGiveWhatWasStored) {
  const auto got = device_test::numbers_of<int>(
      14, [](int* to) { loads_kernel<<<1, 1, kRoundTripBytes>>>(to); });
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15, 16}));
}
}  // namespace
}  // namespace weft
