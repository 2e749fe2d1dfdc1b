// SPDX-License-Identifier: MIT
// GEMMs on a GPU that are large enough for their algorithm to be measured: right, and the same to
// the last bit whichever runs.
#include <cstddef>
#include <string>
#include <vector>
#ifdef WEFT_CUDA
#include "kernels/linear/linear.h"
#include "src/device.h"
#include "tests/cases/compare.h"
#include "tests/testing.h"

#include <cstdlib>

namespace weft {
namespace {
struct Sizes {
  int64_t n, k, m;
};

// `values` as elements of `type` on the device.
Tensor upload(Device& device, const Shape& shape, DType type, const std::vector<double>& values) {
  const Tensor tensor(*device.pool, shape, type, "test");
  dispatch_float(type, [&]<class T>() {
    const std::vector<T> converted_values = converted<T>(values);
    device.upload(tensor, converted_values.data());
  });
  return tensor;
}

// y, dx, dw of a first micro-batch and dw of two, on a device.
std::vector<std::vector<double>> results_of(Device& device, const Sizes& s, DType type) {
  const auto random = [&](const Shape& shape, uint64_t seed) {
    return upload(device, shape, type, normals(shape[0] * shape.back(), seed));
  };
  const auto empty = [&](const Shape& shape, DType t) {
    const Tensor tensor(*device.pool, shape, t, "test");
    device.zero(tensor);
    return tensor;
  };
  const Tensor x = random({s.n, s.k}, 1), w = random({s.m, s.k}, 2), dy = random({s.n, s.m}, 3),
               b = upload(device, {s.m}, type, normals(s.m, 4)), y = empty({s.n, s.m}, type),
               dx = empty({s.n, s.k}, type), dw = empty({s.m, s.k}, DType::f32);
  launch(device.queue, LinearForward{.y = y, .x = x, .w = w, .b = b});
  const auto backward = [&](bool accumulate) {
    launch(device.queue, LinearBackward{
                             .dx = {dx, accumulate},
                             .dw = {dw, accumulate},
                             .db = {},
                             .dy = dy,
                             .x = x,
                             .w = w,
                         });
  };
  backward(false);
  std::vector<std::vector<double>> results = {to_host(device, y), to_host(device, dx),
                                              to_host(device, dw)};
  backward(true);
  results.push_back(to_host(device, dx));
  results.push_back(to_host(device, dw));
  return results;
}

struct Problem {
  Sizes sizes;
  DType type;
};

// How far a result may be from the CPU's.
double bound(DType type) { return type == DType::f32 ? 3e-5 : type == DType::f16 ? 2e-3 : 1.6e-2; }

TEST(CudaLinear, LargeGemmsAreRightAndTheSameWhicheverAlgorithmRuns) {
  std::vector<Problem> problems;
  for (const Sizes& s : {Sizes{1100, 512, 1024}, {4099, 256, 512}, {1031, 1000, 1017}})
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) problems.push_back({s, type});
  const auto results = [&](Device& device) {
    std::vector<std::vector<std::vector<double>>> all;
    for (const Problem& p : problems) all.push_back(results_of(device, p.sizes, p.type));
    return all;
  };
  // Each device has a handle of the library of its own, so that each chooses anew.
  const auto cpu = make_device("cpu"), measured = make_device("cuda"), again = make_device("cuda"),
             first = make_device("cuda");
  const auto got = results(*measured), want = results(*cpu);
  for (std::size_t p = 0; p < problems.size(); ++p)
    for (std::size_t i = 0; i < got[p].size(); ++i)
      EXPECT_LT(relative_error(got[p][i], want[p][i]), bound(problems[p].type))
          << "problem " << p << ", result " << i;
  EXPECT_TRUE(results(*again) == got);
  const char* before = std::getenv("WEFT_TUNE");
  const std::string kept = before ? before : "";
  setenv("WEFT_TUNE", "0", 1);  // the library's own choice
  EXPECT_TRUE(results(*first) == got);
  before ? setenv("WEFT_TUNE", kept.c_str(), 1) : unsetenv("WEFT_TUNE");
}
}  // namespace
}  // namespace weft
#endif
