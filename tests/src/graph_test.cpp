// SPDX-License-Identifier: MIT
// A GraphedStep on the CPU, and its moves. What it does on CUDA: tests/models/training_test.cpp.
#include "src/device.h"

#include <gtest/gtest.h>
#include <utility>

namespace weft {
namespace {
TEST(Graph, OnTheCpuEveryRunCalls) {
  const auto device = make_device("cpu");
  for (const bool enabled : {false, true}) {
    GraphedStep step(*device, enabled);
    int calls = 0;
    for (int i = 0; i < 5; ++i) step.run([&] { ++calls; });
    EXPECT_EQ(calls, 5);
    GraphedStep moved = std::move(step);
    moved.run([&] { ++calls; });
    EXPECT_EQ(calls, 6);
    EXPECT_FALSE(moved.replaying());
  }
}

TEST(Graph, ErrorsOfTheWorkComeThrough) {
  const auto device = make_device("cpu");
  GraphedStep step(*device, true);
  EXPECT_THROW(step.run([] { fail("no"); }), Error);
}
}  // namespace
}  // namespace weft
