// SPDX-License-Identifier: MIT
// Which form of a projection with an activation runs; on a GPU, that both give the same at the
// sizes of the models.
#include "kernels/linear/activation.h"
#include "src/device.h"
#include "tests/cases/compare.h"
#include "tests/testing.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

namespace weft {
namespace {
constexpr LinearActivationForm kAutomatic = LinearActivationForm::automatic,
                               kComposed = LinearActivationForm::composed,
                               kHopper = LinearActivationForm::hopper;

TEST(LinearActivation, FormIsChosenByTypeSizesAndDevice) {
  const LinearActivationCase covered = {DType::bf16, 512, 2048, true, 90};
  std::vector<LinearActivationCase> others(6, covered);
  others[0].dtype = DType::f32;
  others[1].inner = 520;
  others[2].inner = 508;
  others[3].cols = 2044;
  others[4].aligned = false;
  others[5].compute_capability = 80;
  for (const LinearActivationCase& c : others) {
    EXPECT_EQ(choose_form(kAutomatic, c), kComposed);
    EXPECT_EQ(choose_form(kComposed, c), kComposed);
    EXPECT_THROW(choose_form(kHopper, c), Error);
  }
  EXPECT_EQ(choose_form(kComposed, covered), kComposed);
#ifdef WEFT_SM90A
  EXPECT_EQ(choose_form(kAutomatic, covered), kHopper);
  EXPECT_EQ(choose_form(kHopper, covered), kHopper);
#else
  EXPECT_EQ(choose_form(kAutomatic, covered), kComposed);
  EXPECT_THROW(choose_form(kHopper, covered), Error);
#endif
}

TEST(LinearActivation, ShapesAreChecked) {
  std::vector<float> x(6), w(12), b(4), y(8);
  CpuQueue queue;
  LinearActivationForward k{
      .y = view_of(y, {2, 4}),
      .h = {},
      .x = view_of(x, {2, 3}),
      .w = view_of(w, {4, 3}),
      .b = view_of(b, {4}),
  };
  EXPECT_NO_THROW(run(queue, k));
  k.b.shape[0] = 3;
  EXPECT_THROW(run(queue, k), Error);
  LinearActivationBackward g{
      .dh = view_of(y, {2, 4}),
      .y = {},
      .db = {},
      .dy = view_of(x, {2, 3}),
      .w = view_of(w, {4, 3}),
      .h = view_of(y, {2, 4}),
      .b = view_of(b, {4}),
  };
  EXPECT_THROW(run(queue, g), Error);  // w is that of the down projection: (3, 4)
}

#ifdef WEFT_CUDA
// h and y, then dh, y and db, of one form on several tiles of rows for each cluster.
std::vector<std::vector<double>> results(Device& device, DType type, int64_t inner,
                                         LinearActivationForm form, Activation f) {
  constexpr int64_t n = 2100, m = 2048;
  const auto random = [&](const Shape& shape, unsigned seed, double std) {
    const Tensor tensor(*device.pool, shape, type, "test");
    dispatch_float(type, [&]<class T>() {
      const std::vector<T> values = converted<T>(normals(tensor.size(), seed, std));
      device.upload(tensor, values.data());
    });
    return tensor;
  };
  const auto empty = [&](DType t, const Shape& shape) {
    return Tensor(*device.pool, shape, t, "test");
  };
  const Tensor x = random({n, inner}, 1, 1), up = random({m, inner}, 2, 0.05),
               b = random({m}, 3, 0.5), down = random({inner, m}, 4, 0.05), h = empty(type, {n, m}),
               y = empty(type, {n, m}), dh = empty(type, {n, m}), again = empty(type, {n, m}),
               db = empty(DType::f32, {m});
  launch(device.queue,
         LinearActivationForward{.y = y, .h = h, .x = x, .w = up, .b = b, .f = f, .form = form});
  launch(device.queue, LinearActivationBackward{
                           .dh = dh,
                           .y = again,
                           .db = {db, false},
                           .dy = x,
                           .w = down,
                           .h = h,
                           .b = b,
                           .f = f,
                           .form = form,
                       });
  std::vector<std::vector<double>> all;
  for (const Tensor& tensor : {h, y, dh, again, db}) all.push_back(to_host(device, tensor));
  return all;
}

TEST(CudaLinearActivation, BothFormsAgreeAndEachRepeatsItself) {
  const auto device = make_device("cuda");
  for (const Activation f : {Activation::gelu, Activation::relu2})
    for (const DType type : {DType::bf16, DType::f16})
      for (const int64_t inner : {256, 512}) {
        SCOPED_TRACE(str(name_of(f), ", ", name_of(type), ", inner ", inner));
        const auto composed = results(*device, type, inner, kComposed, f);
        const auto automatic = results(*device, type, inner, kAutomatic, f);
        EXPECT_TRUE(results(*device, type, inner, kAutomatic, f) == automatic);
        EXPECT_EQ(automatic[1], automatic[3]);  // y is recomputed
        for (std::size_t i = 0; i < composed.size(); ++i)
          EXPECT_LT(relative_error(automatic[i], composed[i]), type == DType::bf16 ? 1.6e-2 : 2e-3)
              << "result " << i;
      }
}
#endif
}  // namespace
}  // namespace weft
