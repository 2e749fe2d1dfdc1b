// SPDX-License-Identifier: MIT
// The shell of warp-specialised kernels gives each warpgroup its role, and named barriers join some
// threads of a block.
#include "kernels/device/warp_roles.cuh"
#include "tests/kernels/device/device_case.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

namespace weft::device_test {
using namespace device;

enum class RoleBarrier : int { numbers_written = kFirstNamedBarrier };

// The role of each thread: 0 producer, 1 consumer, 2 the extra role; times what init() wrote.
template <int kGroups, RegisterSplit kSplit>
struct Roles {
  static constexpr int kThreads = kGroups * kWarpgroup;
  static constexpr RegisterSplit kRegisters = kSplit;

  struct SharedStorage {
    int factor;
  };

  __device__ static void init(SharedStorage& storage, int*) {
    if (threadIdx.x == 0) storage.factor = 10;
    __syncthreads();
  }

  __device__ static void tell(const SharedStorage& storage, int* to, int role) {
    to[threadIdx.x] = role * storage.factor;
  }

  __device__ static void produce(SharedStorage& s, int* to) { tell(s, to, 0); }

  __device__ static void consume(SharedStorage& s, int* to) { tell(s, to, 1); }

  __device__ static void consume_extra(SharedStorage& s, int* to) { tell(s, to, 2); }
};

namespace {
template <class Kernel>
std::vector<int> roles() {
  return device_test::numbers_of<int>(Kernel::kThreads, [](int* to) {
    constexpr int kBytes = kSharedBytes<typename Kernel::SharedStorage>;
    warp_specialized<Kernel><<<1, Kernel::kThreads, kBytes>>>(to);
  });
}

TEST(CudaDeviceWarpRoles, EveryWarpgroupHasItsRole) {
  if (!device_test::has_hopper()) GTEST_SKIP() << "setmaxnreg of sm_90a";
  const std::vector<int> two = roles<Roles<3, RegisterSplit{40, 232}>>(),
                         three = roles<Roles<4, RegisterSplit{32, 192, 96}>>();
  for (int thread = 0; thread < 4 * kWarpgroup; ++thread) {
    const int group = thread / kWarpgroup;
    const auto at = static_cast<std::size_t>(thread);
    if (group < 3) {
      ASSERT_EQ(two[at], group == 0 ? 0 : 10) << thread;
    }
    ASSERT_EQ(three[at], group == 0 ? 0 : group == 3 ? 20 : 10) << thread;
  }
}

// The first warp writes and does not wait, the second reads after the barrier; the third takes no
// part.
__global__ void named_barrier_kernel(int* to) {
  __shared__ int number[32];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  if (warp == 0) {
    __nanosleep(10000);
    *static_cast<volatile int*>(&number[lane]) = lane;
    named_barrier_arrive(RoleBarrier::numbers_written, 64);
  } else if (warp == 1) {
    named_barrier_sync(RoleBarrier::numbers_written, 64);
    to[lane] = *static_cast<volatile int*>(&number[31 - lane]);
  }
}

TEST(CudaDeviceNamedBarrier, ThoseThatWaitSeeWhatThoseThatArriveWrote) {
  const auto got =
      device_test::numbers_of<int>(32, [](int* to) { named_barrier_kernel<<<1, 96>>>(to); });
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(got[static_cast<std::size_t>(lane)], 31 - lane);
}
}  // namespace
}  // namespace weft::device_test
