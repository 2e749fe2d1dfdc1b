// SPDX-License-Identifier: MIT
// The count of NaN and infinity, and the error of WEFT_DEBUG=3 that is made of it.
#include "kernels/queue.h"

#include "kernels/diagnostics/count_non_finite.h"
#include "tests/testing.h"

#include <string>
#include <vector>

namespace weft {
namespace {
TEST(CountNonFinite, Counts) {
  std::vector<float> x(5000, 1.0f);
  x[0] = x[4999] = INFINITY;
  x[17] = -INFINITY;
  x[4096] = NAN;
  std::vector<int32_t> count(1);
  run(queue, CountNonFinite{view_of(count, {1}), view_of(x, {5000})});
  EXPECT_EQ(count[0], 4);
  std::vector<f16> half = converted<f16>(x);
  run(queue, CountNonFinite{view_of(count, {1}), view_of(half, {5000})});
  EXPECT_EQ(count[0], 4);
}

TEST(CheckFinite, NamesTheKernel) {
  std::vector<float> good = {1, 2}, bad = {1, NAN};
  check_finite(queue, "activation_forward", {view_of(good, {2}), TensorView{}});
  try {
    check_finite(queue, "activation_forward", {view_of(good, {2}), view_of(bad, {2})});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("activation_forward: 1 of the 2 elements"),
              std::string::npos)
        << e.what();
  }
}
}  // namespace
}  // namespace weft
