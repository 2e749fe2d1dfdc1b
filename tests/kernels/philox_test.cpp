// SPDX-License-Identifier: MIT
// Philox4x32-10: the known answers of its authors' library (Random123, kat_vectors), and the same
// bits from cuRAND.
#include "kernels/philox.h"

#include "kernels/layers/pointwise.h"
#include "src/device.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

namespace weft {
namespace {
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

#ifdef WEFT_CUDA
// With h = 1 and p = 1/2 the output is the mask.
std::vector<double> mask_on(Device& device, int64_t n, const StepScalars& scalars, uint32_t site) {
  Tensor step(*device.pool, {sizeof(StepScalars)}, DType::u8), h(*device.pool, {n}, DType::f32);
  Tensor y(*device.pool, {n}, DType::f32);
  const std::vector<float> ones(static_cast<std::size_t>(n), 1.0f);
  device.upload(step, &scalars);
  device.upload(h, ones.data());
  Dropout k;
  k.y = {y};
  k.x = h;
  k.p = 0.5;
  k.site = site;
  k.step = static_cast<const StepScalars*>(step.view().data);
  launch(device.queue, k);
  return to_host(device, y);
}

TEST(CudaPhilox, MasksAreThoseOfTheCpu) {
  const auto cpu = make_device("cpu"), cuda = make_device("cuda");
  StepScalars step;
  for (const uint64_t seed : {0ull, 1ull, 0xfedcba9876543210ull}) {
    for (const uint64_t draw : {0ull, 5ull, 0x123456789ull}) {
      step.seed = seed;
      step.draw = draw;
      EXPECT_EQ(mask_on(*cuda, 100003, step, 9), mask_on(*cpu, 100003, step, 9))
          << seed << " " << draw;
    }
  }
}
#endif
}  // namespace
}  // namespace weft
