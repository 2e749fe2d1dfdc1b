// SPDX-License-Identifier: MIT
// Residual connection with dropout, bias and norm: its definition, its gradients, and that fused it
// is what its parts are one after the other, to the last bit.
#include "kernels/layers/layernorm.h"
#include "kernels/layers/pointwise.h"
#include "src/device.h"
#include "tests/testing.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft {
namespace {
struct ResidualData {
  int64_t n, c;
  StepScalars step{.seed = 77, .draw = 4};
  std::vector<double> x, branch, bias, w, b, h, y, mean, rstd, dh, dy, dx, dbranch, dbias, dw, db;

  ResidualData(int64_t rows, int64_t cols)
      : n(rows),
        c(cols),
        x(normals(n * c, 1, 2)),
        branch(normals(n * c, 2)),
        bias(normals(c, 3)),
        w(normals(c, 4)),
        b(normals(c, 5)),
        h(x.size()),
        y(x.size()),
        mean(n),
        rstd(n),
        dh(normals(n * c, 6)),
        dy(normals(n * c, 7)),
        dx(normals(n * c, 8)),
        dbranch(normals(n * c, 9)),
        dbias(normals(c, 10)),
        dw(normals(c, 11)),
        db(normals(c, 12)) {}

  ResidualForward forward() {
    return {
        .h = view_of(h, {n, c}),
        .y = view_of(y, {n, c}),
        .mean = view_of(mean, {n}),
        .rstd = view_of(rstd, {n}),
        .x = view_of(x, {n, c}),
        .branch = view_of(branch, {n, c}),
        .bias = view_of(bias, {c}),
        .w = view_of(w, {c}),
        .b = view_of(b, {c}),
        .p = 0.3,
        .site = 5,
        .step = &step,
    };
  }

  ResidualBackward backward(bool accumulate = false) {
    return {
        .dx = {view_of(dx, {n, c}), accumulate},
        .dbranch = {view_of(dbranch, {n, c}), accumulate},
        .dbias = {view_of(dbias, {c}), accumulate},
        .dw = {view_of(dw, {c}), accumulate},
        .db = {view_of(db, {c}), accumulate},
        .y = {},
        .dh = view_of(dh, {n, c}),
        .dy = view_of(dy, {n, c}),
        .h = view_of(h, {n, c}),
        .mean = view_of(mean, {n}),
        .rstd = view_of(rstd, {n}),
        .w = view_of(w, {c}),
        .b = {},
        .p = 0.3,
        .site = 5,
        .step = &step,
    };
  }
};

TEST(Residual, AddsWhatDropoutKeepsOfTheBranch) {
  ResidualData d(3, 11);
  run(queue, d.forward());
  std::vector<double> ones(33, 1.0), mask(33);
  run(queue, Dropout{{view_of(mask, {33})}, view_of(ones, {33}), 0.3, 5, &d.step});
  for (std::size_t i = 0; i < 33; ++i)
    EXPECT_NEAR(d.h[i], d.x[i] + mask[i] * (d.branch[i] + d.bias[i % 11]), 1e-14);
  EXPECT_GT(std::count(mask.begin(), mask.end(), 0.0), 0);
}

TEST(Residual, BackwardIsTheGradient) {
  for (const int64_t c : {2, 7, 33}) {
    ResidualData d(4, c);
    const auto objective = [&] {
      run(queue, d.forward());
      return inner_product(d.h, d.dh) + inner_product(d.y, d.dy);
    };
    objective();
    run(queue, d.backward());
    expect_gradient(d.x, d.dx, objective, "dx");
    expect_gradient(d.branch, d.dbranch, objective, "dbranch");
    expect_gradient(d.bias, d.dbias, objective, "dbias");
    expect_gradient(d.w, d.dw, objective, "dw");
    expect_gradient(d.b, d.db, objective, "db");
  }
}

TEST(Residual, BackwardAddsWhenAsked) {
  ResidualData stored(4, 9), added(4, 9);
  const ResidualData before = added;
  run(queue, stored.forward());
  run(queue, added.forward());
  run(queue, stored.backward());
  run(queue, added.backward(true));
  for (const auto member : {&ResidualData::dx, &ResidualData::dbranch, &ResidualData::dbias,
                            &ResidualData::dw, &ResidualData::db})
    for (std::size_t i = 0; i < (before.*member).size(); ++i)
      EXPECT_NEAR((added.*member)[i], (before.*member)[i] + (stored.*member)[i], 1e-12);
}

// Rows 0 .. 3 of 9 with their place told are those rows of the whole: forward and backward.
TEST(Residual, MasksBelongToRowsOfTheUpdate) {
  for (const int64_t c : {16, 11}) {
    ResidualData whole(9, c), part(4, c);
    whole.step.first_row = 3;
    part.step.first_row = 8;
    for (const auto member :
         {&ResidualData::x, &ResidualData::branch, &ResidualData::dh, &ResidualData::dy})
      std::copy_n((whole.*member).begin() + 5 * c, 4 * c, (part.*member).begin());
    for (ResidualData* data : {&whole, &part}) {
      run(queue, data->forward());
      run(queue, data->backward());
    }
    for (const auto member : {&ResidualData::h, &ResidualData::dbranch})
      EXPECT_TRUE(std::equal((part.*member).begin(), (part.*member).end(),
                             (whole.*member).begin() + 5 * c));
  }
}

// A tensor of random values rounded to its type.
Tensor random_tensor(Device& device, const Shape& shape, DType type, unsigned seed) {
  const Tensor exact(*device.pool, shape, DType::f32), t(*device.pool, shape, type);
  device.upload(exact, converted<float>(normals(exact.size(), seed)).data());
  launch(device.queue, Cast{t, exact});
  return t;
}

// Sum and norm in one pass, then in two; the same backward, from equal gradients.
void check_parts(Device& device, DType type, int64_t n, int64_t c) {
  SCOPED_TRACE(str(device.name, ", ", name_of(type), ", N ", n, ", C ", c));
  const auto random = [&](unsigned seed) { return random_tensor(device, {n, c}, type, seed); };
  const auto empty = [&](const Shape& shape, DType t) { return Tensor(*device.pool, shape, t); };
  const Tensor scalars(*device.pool, {sizeof(StepScalars)}, DType::u8);
  const StepScalars host_scalars{.seed = 77, .draw = 4, .first_row = 6};
  device.upload(scalars, &host_scalars);
  const auto* step = static_cast<const StepScalars*>(scalars.view().data);
  const Tensor x = random(1), branch = random(2), dh = random(3), dy = random(4);
  const Tensor bias = random_tensor(device, {c}, type, 5),
               w = random_tensor(device, {c}, DType::f32, 6),
               b = random_tensor(device, {c}, DType::f32, 7);
  std::vector<std::vector<double>> results[2];
  for (const bool fused : {false, true}) {
    const Tensor h = empty({n, c}, type), y = empty({n, c}, type), dx = empty({n, c}, type),
                 dbranch = empty({n, c}, type), mean = empty({n}, DType::f32),
                 rstd = empty({n}, DType::f32), dbias = empty({c}, DType::f32),
                 dw = empty({c}, DType::f32), db = empty({c}, DType::f32);
    ResidualForward forward{
        .h = h,
        .y = {},
        .mean = {},
        .rstd = {},
        .x = x,
        .branch = branch,
        .bias = bias,
        .w = {},
        .b = {},
    };
    ResidualBackward backward{
        .dx = {},
        .dbranch = {dbranch},
        .dbias = {dbias},
        .dw = {},
        .db = {},
        .y = {},
        .dh = dx,
        .dy = {},
        .h = {},
        .mean = {},
        .rstd = {},
        .w = {},
        .b = {},
    };
    forward.p = backward.p = 0.4;
    forward.site = backward.site = 2;
    forward.step = backward.step = step;
    if (fused) {
      forward.y = y, forward.mean = mean, forward.rstd = rstd, forward.w = w, forward.b = b;
      backward.dx = {dx}, backward.dw = {dw}, backward.db = {db}, backward.dh = dh,
      backward.dy = dy;
      backward.h = h, backward.mean = mean, backward.rstd = rstd, backward.w = w;
      launch(device.queue, forward);
      launch(device.queue, backward);
    } else {
      launch(device.queue, forward);
      launch(device.queue, LayerNormForward{y, mean, rstd, h, w, b, 1e-5});
      launch(device.queue, Add{{dx}, dh});
      launch(device.queue, LayerNormBackward{{dx, true}, {dw}, {db}, dy, h, mean, rstd, w});
      launch(device.queue, backward);
    }
    for (const Tensor& t : {h, y, mean, rstd, dx, dbranch, dbias, dw, db})
      results[fused].push_back(to_host(device, t));
  }
  for (std::size_t i = 0; i < results[0].size(); ++i)
    EXPECT_EQ(results[0][i], results[1][i]) << "tensor " << i;
}

// The norm that the backward pass recomputes has the bits of the forward pass, in memory of its own
// and in h's.
void check_norm_again(Device& device, DType type, int64_t n, int64_t c) {
  SCOPED_TRACE(str(device.name, ", ", name_of(type), ", N ", n, ", C ", c));
  const auto empty = [&](const Shape& shape, DType t) { return Tensor(*device.pool, shape, t); };
  const Tensor x = random_tensor(device, {n, c}, type, 1),
               branch = random_tensor(device, {n, c}, type, 2),
               dy = random_tensor(device, {n, c}, type, 3),
               w = random_tensor(device, {c}, DType::f32, 4),
               b = random_tensor(device, {c}, DType::f32, 5), mean = empty({n}, DType::f32),
               rstd = empty({n}, DType::f32), h = empty({n, c}, type), y = empty({n, c}, type),
               dx = empty({n, c}, type), again = empty({n, c}, type);
  launch(device.queue, ResidualForward{
                           .h = h,
                           .y = y,
                           .mean = mean,
                           .rstd = rstd,
                           .x = x,
                           .branch = branch,
                           .bias = {},
                           .w = w,
                           .b = b,
                       });
  const std::vector<double> norm = to_host(device, y);
  for (const Tensor& place : {again, h}) {
    launch(device.queue, ResidualBackward{
                             .dx = {dx},
                             .dbranch = {},
                             .dbias = {},
                             .dw = {},
                             .db = {},
                             .y = place,
                             .dh = dy,
                             .dy = dy,
                             .h = h,
                             .mean = mean,
                             .rstd = rstd,
                             .w = w,
                             .b = b,
                         });
    EXPECT_EQ(to_host(device, place), norm);
  }
}

void check_all_sizes(Device& device, void (*check)(Device&, DType, int64_t, int64_t)) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    for (const int64_t c : {7, 64, 256, 260, 512, 1000, 1032, 2051}) check(device, type, 37, c);
  check(device, DType::bf16, 5003, 256);
  check(device, DType::bf16, 5003, 512);
}

TEST(Residual, FusedIsItsParts) { check_all_sizes(*make_device("cpu"), check_parts); }

TEST(Residual, TheRecomputedNormIsThatOfTheForwardPass) {
  check_all_sizes(*make_device("cpu"), check_norm_again);
}

#ifdef WEFT_CUDA
TEST(CudaResidual, FusedIsItsParts) { check_all_sizes(*make_device("cuda"), check_parts); }

TEST(CudaResidual, TheRecomputedNormIsThatOfTheForwardPass) {
  check_all_sizes(*make_device("cuda"), check_norm_again);
}
#endif

TEST(Residual, SaysWhatIsWrong) {
  ResidualData d(3, 8);
  ResidualForward forward = d.forward();
  forward.p = 1;
  EXPECT_THROW(run(queue, forward), Error);
  forward = d.forward();
  forward.step = nullptr;
  EXPECT_THROW(run(queue, forward), Error);
  forward = d.forward();
  forward.bias = view_of(d.mean, {3});
  EXPECT_THROW(run(queue, forward), Error);
  ResidualBackward backward = d.backward();
  backward.dy = {};
  EXPECT_THROW(run(queue, backward), Error);
  backward = d.backward();
  backward.y = backward.h;
  EXPECT_THROW(run(queue, backward), Error);  // without b
}
}  // namespace
}  // namespace weft
