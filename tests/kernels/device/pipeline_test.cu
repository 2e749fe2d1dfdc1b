// SPDX-License-Identifier: MIT
// A ring of stages: states, and a producer and consumers that hand numbers over in order.
#include "kernels/device/pipeline.cuh"
#include "tests/kernels/device/device_case.h"

#include <cstddef>
#include <gtest/gtest.h>

namespace weft {
namespace {
using namespace device;

constexpr int kStages = 3, kConsumers = 2, kNumbers = 100;

struct Ring {
  int numbers[kStages];
  Pipeline<kStages> pipeline;
};

constexpr int kBytes = kSharedBytes<Ring>;

__global__ void states_kernel(int* to) {
  PipelineState<kStages> state;
  for (int use = 0; use < 10; ++use, state.advance()) {
    const auto same = PipelineState<kStages>::of(use);
    const auto before = PipelineState<kStages>::of(use + 2).back(2);
    to[use] = same.stage == state.stage && same.parity == state.parity &&
              before.stage == state.stage && before.parity == state.parity &&
              PipelineState<kStages>::of(use + 2).stage_back(2) == state.stage;
  }
}

TEST(CudaDevicePipeline, StatesCountUsesForwardsAndBackwards) {
  for (const int right :
       device_test::numbers_of<int>(10, [](int* to) { states_kernel<<<1, 1>>>(to); }))
    EXPECT_EQ(right, 1);
}

// Warp 0 produces; warps 1 and 2 read every number, at different speeds.
__global__ void hand_over_kernel(int* to) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) char raw[];
  auto& ring = shared_storage<Ring>(raw);
  if (threadIdx.x == 0) {
    ring.pipeline.init(1, kConsumers);
    fence_proxy_async();
  }
  __syncthreads();
  PipelineState<kStages> state;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kNumbers; ++i, state.advance()) {
      ring.pipeline.acquire(state);
      ring.numbers[state.stage] = i;
      ring.pipeline.full[state.stage].arrive();
    }
  } else if (threadIdx.x >= 32) {
    const int consumer = static_cast<int>(threadIdx.x / 32) - 1;
    for (int i = 0; i < kNumbers; ++i, state.advance()) {
      while (!ring.pipeline.full[state.stage].test(state.parity)) {}
      ring.pipeline.wait(state);
      const int got = *static_cast<volatile int*>(&ring.numbers[state.stage]);
      if (consumer == 1) __nanosleep(200);
      if (threadIdx.x % 32 == 7) to[consumer * kNumbers + i] = got;
      ring.pipeline.release(state.stage);
    }
  }
#endif
}

TEST(CudaDevicePipeline, ConsumersSeeEveryNumberInOrder) {
  if (!device_test::has_hopper()) GTEST_SKIP() << "mbarrier.try_wait of sm_90a";
  const auto got = device_test::numbers_of<int>(kConsumers * kNumbers, [](int* to) {
    hand_over_kernel<<<1, 32 * (1 + kConsumers), kBytes>>>(to);
  });
  for (int i = 0; i < kConsumers * kNumbers; ++i)
    ASSERT_EQ(got[static_cast<std::size_t>(i)], i % kNumbers) << i;
}
}  // namespace
}  // namespace weft
