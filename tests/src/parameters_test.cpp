// SPDX-License-Identifier: MIT
// Layout, initial values, gradients' bookkeeping, precision.
#include "src/parameters.h"

#include "src/ops.h"
#include "tests/src/engine_testing.h"

#include <cmath>
#include <cstddef>
#include <omp.h>
#include <vector>

namespace weft {
namespace {
struct Three {
  Param norm, weight, bias;

  explicit Three(ParameterStore& store)
      : norm(store.add("norm", {5}, Init::constant(1), ParamKind::wide)),
        weight(store.add("weight", {3, 5}, Init::normal(0.5))),
        bias(store.add("bias", {3}, Init::normal(2))) {}
};

TEST(Parameters, LayoutPutsDecayedFirstAndAligns) {
  const auto device = make_device("cpu");
  ParameterStore store;
  Three three(store);
  store.allocate(*device, DType::bf16, 1, true, true);
  const auto params = store.params();
  EXPECT_EQ(params[1].offset, 0);
  EXPECT_EQ(store.decayed(), 16);
  EXPECT_EQ(params[0].offset, 16);
  EXPECT_EQ(params[2].offset, 24);
  EXPECT_EQ(store.size(), 23);
  EXPECT_EQ(store.master().size(), 32);
  EXPECT_TRUE(params[1].decay);
  EXPECT_FALSE(params[0].decay);
  EXPECT_EQ(store.compute().dtype(), DType::bf16);
  EXPECT_EQ(store.gradients().dtype(), DType::f32);
  EXPECT_EQ(store.var(three.norm).dtype(), DType::f32);
  EXPECT_EQ(store.var(three.norm).value.view().data, store.master().slice(16, {5}).view().data);
  EXPECT_EQ(store.var(three.weight).dtype(), DType::bf16);
  EXPECT_EQ(store.var(three.weight).gradient->tensor.dtype(), DType::f32);
  // Padding is zero everywhere.
  for (const Tensor& block :
       {store.master(), store.compute(), store.gradients(), store.m(), store.v(), store.ema()}) {
    const std::vector<double> values = to_host(*device, block);
    for (const std::size_t i : {15, 21, 22, 23, 27, 31}) EXPECT_EQ(values[i], 0);
  }
}

TEST(Parameters, InitialValuesAreTheSameInEveryPrecision) {
  const auto device = make_device("cpu");
  std::vector<double> masters[2];
  for (const DType compute : {DType::f64, DType::bf16}) {
    ParameterStore store;
    Three three(store);
    store.allocate(*device, compute, 42, false, true);
    masters[compute == DType::f64] = to_host(*device, store.master());
    EXPECT_EQ(to_host(*device, store.ema()), to_host(*device, store.master()));
    EXPECT_EQ(store.var(three.weight).gradient, nullptr);
    EXPECT_FALSE(store.gradients());
    EXPECT_EQ(store.compute().view().data == store.master().view().data, compute == DType::f64);
  }
  for (std::size_t i = 0; i < masters[1].size(); ++i) {
    EXPECT_EQ(static_cast<double>(static_cast<float>(masters[1][i])), masters[0][i]);
  }
  ParameterStore other;
  Three three(other);
  other.allocate(*device, DType::f64, 43, false, false);
  EXPECT_NE(to_host(*device, other.master()), masters[1]);
}

// The numbers that runs have always started from, whatever the number of threads.
TEST(Parameters, InitialValuesStayWhatTheyAre) {
  const auto device = make_device("cpu");
  const int threads = omp_get_max_threads();
  std::vector<double> values[2];
  for (const int count : {1, 3}) {
    omp_set_num_threads(count);
    ParameterStore store;
    store.add("first", {3}, Init::normal(1));
    store.add("second", {20001}, Init::normal(0.5));
    store.allocate(*device, DType::f64, 1234, false, false);
    values[count == 3] = to_host(*device, store.master());
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(values[0], values[1]);
  const std::vector<double>& v = values[0];
  const std::size_t second = 8;
  const double expected[] = {-0.5200225281738502, -1.3162197942686635,  0.49472631763176939,
                             0.10618949536150889, -0.37153302050990566, -0.24384094697859307,
                             0.23450231928846885};
  const std::size_t at[] = {0, 1, 2, second, second + 3, second + 10001, second + 20000};
  for (std::size_t i = 0; i < std::size(at); ++i) EXPECT_DOUBLE_EQ(v[at[i]], expected[i]) << at[i];
}

TEST(Parameters, NormalsHaveTheirMoments) {
  const auto device = make_device("cpu");
  ParameterStore store;
  const int64_t n = 100003;
  store.add("a", {n}, Init::normal(2));
  store.add("b", {n}, Init::normal(2));
  store.allocate(*device, DType::f64, 7, false, false);
  const std::vector<double> values = to_host(*device, store.master());
  const auto second = static_cast<std::size_t>(store.params()[1].offset);
  double mean = 0, square = 0, fourth = 0, across = 0, neighbour = 0;
  for (std::size_t i = 0; i < n; ++i) {
    mean += values[i] / n;
    square += values[i] * values[i] / n;
    fourth += std::pow(values[i], 4) / n;
    across += values[i] * values[second + i] / n;
    neighbour += i > 0 ? values[i] * values[i - 1] / n : 0;
  }
  EXPECT_NEAR(mean, 0, 0.03);
  EXPECT_NEAR(square, 4, 0.1);
  EXPECT_NEAR(fourth, 48, 2);  // 3 sigma^4
  EXPECT_NEAR(across, 0, 0.06);
  EXPECT_NEAR(neighbour, 0, 0.06);
}

TEST(Parameters, LowPrecisionCopyFollowsTheMaster) {
  Engine engine;
  ParameterStore store;
  Three three(store);
  store.allocate(*engine.device, DType::bf16, 1, true, false);
  const std::vector<float> ones(15, 1.0f);
  engine.device->upload(store.master().slice(0, {15}), ones.data());
  Ctx ctx = engine.ctx();
  store.refresh_compute(ctx);
  EXPECT_EQ(engine.host(store.var(three.weight).value), std::vector<double>(15, 1.0));
}

TEST(Parameters, FirstWriterStoresLaterOnesAddUnwrittenOnesBecomeZero) {
  Engine engine;
  ParameterStore store;
  Three three(store);
  store.allocate(*engine.device, DType::f64, 1, true, false);
  const auto gradient = [&](Param p) { return engine.host(store.var(p).gradient->tensor); };
  const auto step = [&](int passes) {
    store.begin_step();
    for (int i = 0; i < passes; ++i) {
      Tape tape;
      Ctx ctx = engine.ctx(&tape);
      const Var x{engine.tensor({2, 5}, normals(10, 3)), nullptr};
      backward(ctx, mean(ctx, linear(ctx, x, store.var(three.weight), store.var(three.bias))));
    }
    Ctx ctx = engine.ctx();
    store.finish_gradients(ctx);
  };
  step(1);
  const std::vector<double> once = gradient(three.weight);
  EXPECT_NEAR(gradient(three.bias)[0], 1.0 / 3, 1e-12);
  step(2);
  for (std::size_t i = 0; i < once.size(); ++i)
    EXPECT_NEAR(gradient(three.weight)[i], 2 * once[i], 1e-12);
  step(1);
  EXPECT_EQ(gradient(three.weight), once);
  EXPECT_EQ(gradient(three.norm), std::vector<double>(5, 0.0));
  engine.device->upload(store.var(three.norm).gradient->tensor, once.data());
  step(1);
  EXPECT_EQ(gradient(three.norm), std::vector<double>(5, 0.0));
}

TEST(Parameters, RefuseMisuse) {
  const auto device = make_device("cpu");
  ParameterStore store;
  Three three(store);
  EXPECT_THROW(store.add("weight", {2}, Init::constant(0)), Error);
  EXPECT_THROW(store.add("empty", {2, 0}, Init::constant(0)), Error);
  EXPECT_THROW(store.var(three.weight), Error);
  store.allocate(*device, DType::f32, 1, false, false);
  EXPECT_THROW(store.add("late", {2}, Init::constant(0)), Error);
  EXPECT_THROW(store.allocate(*device, DType::f32, 1, false, false), Error);
  EXPECT_THROW(store.var(Param{}), Error);
}
}  // namespace
}  // namespace weft
