// SPDX-License-Identifier: MIT
// Order, skipping and freeing on the tape; recompute against keeping everything, bit for bit.
#include "src/tape.h"

#include "src/ops.h"
#include "tests/src/engine_testing.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
TEST(Tape, RunsBackwardsSkipsAndFrees) {
  Engine engine;
  Tape tape;
  Ctx ctx = engine.ctx(&tape);
  std::vector<std::string> ran;
  auto kept = std::make_shared<int>(1);
  const auto var = [] { return Var{Tensor(), std::make_shared<Gradient>()}; };
  const Var a = var(), b = var(), unused = var();
  tape.record("a", a, [&ran, kept](Ctx&, const Tensor&) { ran.push_back("a"); });
  tape.record("unused", unused, [&ran](Ctx&, const Tensor&) { ran.push_back("unused"); });
  tape.record("b", b, [&](Ctx&, const Tensor&) {
    ran.push_back("b");
    EXPECT_EQ(kept.use_count(), 2);
    a.gradient->written = true;
  });
  b.gradient->written = true;
  tape.run_backward(ctx);
  EXPECT_EQ(ran, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(tape.size(), 0u);
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_FALSE(a.gradient->written);
}

TEST(Tape, AMarkIsPassedAfterAllThatIsRecordedBehindIt) {
  Engine engine;
  Tape tape;
  Ctx ctx = engine.ctx(&tape);
  std::vector<std::string> ran;
  const GradientsComplete complete = [&](Ctx&, int32_t first) {
    ran.push_back(str("mark ", first));
  };
  const Var a{Tensor(), std::make_shared<Gradient>()}, b{Tensor(), std::make_shared<Gradient>()};
  ctx.gradients_complete_from(9);
  EXPECT_EQ(tape.size(), 0u) << "nobody listens";
  ctx.complete = &complete;
  tape.record("a", a, [&](Ctx&, const Tensor&) { ran.push_back("a"); });
  ctx.gradients_complete_from(1);
  tape.record("unused", a, [&](Ctx&, const Tensor&) { ran.push_back("unused"); });
  ctx.gradients_complete_from(2);
  tape.record("b", b, [&](Ctx&, const Tensor&) { ran.push_back("b"); });
  b.gradient->written = true;
  tape.run_backward(ctx);
  EXPECT_EQ(ran, (std::vector<std::string>{"b", "mark 2", "mark 1"}));
}

TEST(Tape, AnOpWithTwoOutputsGetsWhatEachWasGiven) {
  Engine engine;
  Tape tape;
  Ctx ctx = engine.ctx(&tape);
  const auto var = [] { return Var{Tensor(), std::make_shared<Gradient>()}; };
  const Var first = var(), second = var(), unused[2] = {var(), var()};
  int runs = 0;
  const auto record = [&](const Var& y, const Var& z) {
    tape.record("two", y, z, [&](Ctx&, const Tensor& dy, const Tensor& dz) {
      ++runs;
      EXPECT_FALSE(dy);
      EXPECT_EQ(engine.host(dz), (std::vector<double>{1, 2}));
    });
  };
  record(first, second);
  record(unused[0], unused[1]);
  ctx.pass_gradient(second, engine.tensor({2}, {1, 2}, DType::f32));
  tape.run_backward(ctx);
  EXPECT_EQ(runs, 1);
}

TEST(Tape, PassGradientHandsOverThenAdds) {
  Engine engine;
  Ctx ctx = engine.ctx();
  const Var v{engine.tensor({2}, {0, 0}), std::make_shared<Gradient>()};
  const Tensor first = engine.tensor({2}, {1, 2}), second = engine.tensor({2}, {10, 20});
  ctx.pass_gradient(v, first);
  EXPECT_EQ(v.gradient->tensor.view().data, first.view().data);
  ctx.pass_gradient(v, second);
  EXPECT_EQ(engine.host(v.gradient->tensor), (std::vector<double>{11, 22}));
  EXPECT_EQ(engine.host(second), (std::vector<double>{10, 20}));
  // A gradient with memory of its own (a parameter's) keeps it.
  const Tensor own = engine.tensor({2}, {5, 5});
  const Var p{engine.tensor({2}, {0, 0}), std::make_shared<Gradient>(Gradient{own, false})};
  ctx.pass_gradient(p, second);
  EXPECT_EQ(p.gradient->tensor.view().data, own.view().data);
  EXPECT_EQ(engine.host(own), (std::vector<double>{10, 20}));
  ctx.pass_gradient(Var{own, nullptr}, second);
}

TEST(Tape, BackwardWantsAnObjective) {
  Engine engine;
  Tape tape;
  Ctx ctx = engine.ctx(&tape);
  EXPECT_THROW(backward(ctx, Var{engine.tensor({1}, {0}), nullptr}), Error);
  EXPECT_THROW(backward(ctx, Var{engine.tensor({2}, {0, 0}), std::make_shared<Gradient>()}), Error);
}

// Six blocks x += dropout(w2 gelu(w1 norm(x))), kept or recomputed.
struct Toy {
  static constexpr int64_t kRows = 64, kWidth = 24, kBlocks = 6;
  Engine engine;
  std::vector<Var> weights;
  int calls = 0;

  Toy() {
    engine.set({.seed = 11, .draw = 4});
    const auto add = [&](const Shape& shape) {
      const auto seed = static_cast<unsigned>(weights.size());
      weights.push_back({engine.tensor(shape, normals(elements(shape), seed, 0.3), DType::f32),
                         std::make_shared<Gradient>()});
    };
    for (int i = 0; i < kBlocks; ++i) {
      add({kWidth}), add({kWidth}), add({3 * kWidth, kWidth}), add({kWidth, 3 * kWidth});
    }
  }

  Var block(Ctx& ctx, int i, const Var& x) {
    ++calls;
    const Var* w = &weights[static_cast<std::size_t>(4 * i)];
    const Var h =
        activation(ctx, linear(ctx, dropout(ctx, layernorm(ctx, x, w[0], w[1]), 0.1), w[2], Var{}));
    return residual_dropout(ctx, x, linear(ctx, h, w[3], Var{}), 0.4);
  }

  // Loss, then the gradients of the input and of all weights.
  std::vector<std::vector<double>> run(bool recomputed) {
    Tape tape;
    Ctx ctx = engine.ctx(&tape, true);
    const Var input{engine.tensor({kRows, kWidth}, normals(kRows * kWidth, 99), DType::f32),
                    std::make_shared<Gradient>()};
    for (const Var& w : weights) *w.gradient = {};
    Var x = input;
    for (int i = 0; i < kBlocks; ++i) {
      const Block body = [this, i](Ctx& c, const Var& in) { return block(c, i, in); };
      x = recomputed ? recompute(ctx, body, x) : body(ctx, x);
    }
    EXPECT_EQ(ctx.site, 2u * kBlocks);
    const Var loss = mean(ctx, activation(ctx, dropout(ctx, x, 0.2)));
    x = {};
    backward(ctx, loss);
    std::vector<std::vector<double>> all = {engine.host(loss.value),
                                            engine.host(input.gradient->tensor)};
    for (const Var& w : weights) all.push_back(engine.host(w.gradient->tensor));
    return all;
  }
};

TEST(Recompute, SameBitsHalfTheMemoryTwoCalls) {
  Toy toy;
  MemoryPool& pool = *toy.engine.device->pool;
  pool.reset_peak();
  const std::size_t before = pool.in_use();
  const auto kept = toy.run(false);
  const std::size_t peak_kept = pool.peak() - before;
  EXPECT_EQ(toy.calls, Toy::kBlocks);
  pool.reset_peak();
  const auto recomputed = toy.run(true);
  const std::size_t peak_recomputed = pool.peak() - before;
  EXPECT_EQ(toy.calls, 3 * Toy::kBlocks);
  EXPECT_EQ(kept, recomputed);
  EXPECT_LT(2 * peak_recomputed, peak_kept);
  EXPECT_NE(kept[1], std::vector<double>(kept[1].size(), 0.0));
}

TEST(Recompute, OfABlockThatReturnsItsInput) {
  Engine engine;
  Tape tape;
  Ctx ctx = engine.ctx(&tape);
  const Var x{engine.tensor({2}, {1, 2}), std::make_shared<Gradient>()};
  const Var y = recompute(
      ctx, [](Ctx&, const Var& v) { return v; }, x);
  backward(ctx, mean(ctx, residual_dropout(ctx, x, y, 0)));
  EXPECT_EQ(engine.host(x.gradient->tensor), (std::vector<double>{1, 1}));
}

TEST(Recompute, WithoutATapeIsJustTheBlock) {
  Engine engine;
  Ctx ctx = engine.ctx();
  int calls = 0;
  const Block block = [&](Ctx& c, const Var& v) {
    ++calls;
    return activation(c, v);
  };
  recompute(ctx, block, Var{engine.tensor({2}, {1, 2}), nullptr});
  EXPECT_EQ(calls, 1);
}
}  // namespace
}  // namespace weft
