// SPDX-License-Identifier: MIT
// Every op against central differences, what it refuses, and what it keeps.
#include "src/ops.h"

#include "src/attention_maps.h"
#include "src/patterns/pattern.h"
#include "tests/src/engine_testing.h"

#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace weft {
namespace {
TEST(Ops, LinearGradients) {
  check_gradients({{2, 3, 5}, {4, 5}, {4}},
                  [](Ctx& c, const auto& v) { return linear(c, v[0], v[1], v[2]); });
  check_gradients({{3, 5}, {4, 5}},
                  [](Ctx& c, const auto& v) { return linear(c, v[0], v[1], Var{}); });
}

TEST(Ops, LayerNormGradients) {
  check_gradients({{2, 3, 7}, {7}, {7}},
                  [](Ctx& c, const auto& v) { return layernorm(c, v[0], v[1], v[2]); });
}

TEST(Ops, CanonGradients) {
  for (const int64_t time : {1, 2, 3, 4, 9})
    check_gradients({{3, time, 5}, {20}},
                    [](Ctx& c, const auto& v) { return canon(c, v[0], v[1]); });
}

TEST(Ops, CanonSumsOverAPositionAndTheThreeBefore) {
  Engine engine("cpu");
  Ctx ctx = engine.ctx();
  const Var x{engine.tensor({2, 5, 1}, {1, 2, 3, 4, 5, 10, 20, 30, 40, 50}, DType::f64), nullptr};
  const Var w{engine.tensor({4}, {1, 0.5, 0.25, 0.125}, DType::f64), nullptr};
  expect_near(engine.host(canon(ctx, x, w).value),
              {2, 4.5, 7.25, 10.125, 13, 20, 45, 72.5, 101.25, 130}, 1e-12, "canon");
}

TEST(Ops, MixGradients) {
  check_gradients({{2, 3, 5}, {5}}, [](Ctx& c, const auto& v) { return mix(c, {v[0]}, {v[1]}); });
  check_gradients({{2, 3, 5}, {2, 3, 5}, {5}, {5}}, [](Ctx& c, const auto& v) {
    return mix(c, {v[0], v[1]}, {v[2], v[3]});
  });
  // one tensor twice
  check_gradients({{2, 3, 5}, {2, 3, 5}, {5}, {5}, {5}}, [](Ctx& c, const auto& v) {
    return mix(c, {v[0], v[1], v[0]}, {v[2], v[3], v[4]});
  });
}

TEST(Ops, ActivationGradients) {
  for (const Activation f : {Activation::gelu, Activation::relu2}) {
    check_gradients({{3, 11}}, [=](Ctx& c, const auto& v) { return activation(c, v[0], f); });
    check_gradients({{2, 3, 5}, {5}}, [=](Ctx& c, const auto& v) {
      return activation(c, {v[0], v[1]}, f);
    });
  }
}

TEST(Ops, MlpGradients) {
  for (const Activation f : {Activation::gelu, Activation::relu2}) {
    check_gradients({{2, 3, 5}, {7, 5}, {7}, {5, 7}},
                    [=](Ctx& c, const auto& v) { return mlp(c, v[0], v[1], v[2], v[3], f); });
    check_gradients({{4, 6}, {3, 6}, {3}, {6, 3}}, [=](Ctx& c, const auto& v) {
      return mlp(c, mlp(c, v[0], v[1], v[2], v[3], f), v[1], v[2], v[3], f);
    });
  }
}

TEST(Ops, DropoutGradients) {
  check_gradients(
      {{3, 33}}, [](Ctx& c, const auto& v) { return dropout(c, v[0], 0.4); }, true);
}

TEST(Ops, ResidualGradients) {
  const auto op = [](double p) {
    return [p](Ctx& c, const std::vector<Var>& v) { return residual_dropout(c, v[0], v[1], p); };
  };
  check_gradients({{3, 17}, {3, 17}}, op(0.3), true);
  check_gradients({{3, 17}, {3, 17}}, op(0.3), false);
  check_gradients({{3, 17}, {3, 17}}, op(0.0), true);
}

TEST(Ops, ResidualGradientsOfABias) {
  check_gradients(
      {{2, 3, 5}, {2, 3, 5}, {5}},
      [](Ctx& c, const auto& v) {
        return residual_dropout(c, v[0], {v[1], v[2]}, 0.3);
      },
      true);
}

// Of what follows, the sum, the norm, or both are used.
TEST(Ops, ResidualAndNormGradients) {
  const std::vector<Shape> shapes = {{2, 3, 5}, {2, 3, 5}, {5}, {5}, {5}};
  const auto op = [](Ctx& c, const auto& v) {
    return residual_layernorm(c, v[0], {v[1], v[2]}, 0.3, v[3], v[4]);
  };
  check_gradients(
      shapes, [&](Ctx& c, const auto& v) { return op(c, v).norm; }, true);
  check_gradients(
      shapes,
      [&](Ctx& c, const auto& v) {
        const SumAndNorm y = op(c, v);
        return residual_dropout(c, y.sum, activation(c, y.norm), 0.2);
      },
      true);
  check_gradients(
      {{2, 3, 5}, {2, 3, 5}, {5}},
      [&](Ctx& c, const auto& v) {
        const Var ones{v[2].value, nullptr};
        return residual_layernorm(c, v[0], {v[1], v[2]}, 0.3, ones, ones).sum;
      },
      true);
}

// Products of the norm wait for it; others have kept it.
TEST(Ops, GradientsOfWhatReadsANorm) {
  const std::vector<Shape> shapes = {{2, 3, 5}, {2, 3, 5}, {5}, {5},   {5, 5},
                                     {5},       {7, 5},    {7}, {5, 7}};
  const auto op = [](Ctx& c, const auto& v) {
    return residual_layernorm(c, v[0], v[1], 0.3, v[2], v[3]);
  };
  check_gradients(
      shapes,
      [&](Ctx& c, const auto& v) {
        const SumAndNorm y = op(c, v);
        const Var sum = residual_dropout(c, y.sum, linear(c, y.norm, v[4], v[5]), 0.0);
        return residual_dropout(c, sum, mlp(c, y.norm, v[6], v[7], v[8]), 0.0);
      },
      true);
  check_gradients(
      {shapes.begin(), shapes.begin() + 6},
      [&](Ctx& c, const auto& v) {
        const Var norm = op(c, v).norm;
        return residual_dropout(c, activation(c, norm), linear(c, norm, v[4], v[5]), 0.0);
      },
      true);
}

TEST(Ops, ANormThatIsMadeAgainIsNotKept) {
  Engine engine;
  const auto var = [&](const Shape& shape) {
    return Var{engine.tensor(shape, normals(elements(shape), 3)), std::make_shared<Gradient>()};
  };
  const Var x = var({8, 32}), branch = var({8, 32}), w = var({32}), b = var({32}),
            up = var({64, 32}), up_bias = var({64});
  Tape tape;
  Ctx ctx = engine.ctx(&tape);
  SumAndNorm y = residual_layernorm(ctx, x, branch, 0, w, b);
  const Var z = linear(ctx, y.norm, up, up_bias);
  const std::size_t before = engine.device->pool->in_use();
  y.norm = {};
  EXPECT_EQ(engine.device->pool->in_use(), before - 8 * 32 * sizeof(double));
}

TEST(Ops, ResidualOfATensorWithItself) {
  const auto op = [](double p) {
    return [p](Ctx& c, const std::vector<Var>& v) { return residual_dropout(c, v[0], v[0], p); };
  };
  check_gradients({{2, 9}}, op(0.3), true);
  check_gradients({{2, 9}}, op(0.0), true);
  check_gradients(
      {{2, 9}, {9}, {9}},
      [](Ctx& c, const auto& v) { return residual_layernorm(c, v[0], v[0], 0.3, v[1], v[2]).norm; },
      true);
}

// x's gradient is added to after residual_dropout has handed dy on; h's must not change with it.
TEST(Ops, ResidualGradientsDoNotShareMemory) {
  check_gradients({{2, 5}, {5, 5}}, [](Ctx& c, const auto& v) {
    const Var h = linear(c, v[0], v[1], Var{});
    const Var y = residual_dropout(c, v[0], h, 0.0);
    return residual_dropout(c, activation(c, y), h, 0.0);
  });
}

// Without dropout the sum and its branch share one gradient; x's is added to while the branch's is
// read.
TEST(Ops, SharedGradientsAreCopiedBeforeTheyAreAddedTo) {
  const std::vector<Shape> shapes = {{2, 5}, {5, 5}, {5}, {5}};
  check_gradients(shapes, [](Ctx& c, const auto& v) {
    const Var branch = linear(c, v[0], v[1], Var{});
    return residual_layernorm(c, v[0], branch, 0.0, v[2], v[3]).norm;
  });
  check_gradients(shapes, [](Ctx& c, const auto& v) {
    const SumAndNorm y = residual_layernorm(c, v[0], linear(c, v[0], v[1], Var{}), 0.0, v[2], v[3]);
    return residual_dropout(c, y.sum, linear(c, y.norm, v[1], Var{}), 0.0);
  });
}

TEST(Ops, CrossEntropyGradients) {
  Engine engine;
  const Tensor targets = engine.tensor({2, 3}, {0, 4, 2, -1, 1, 4}, DType::i32);
  check_gradients({{2, 3, 5}},
                  [&](Ctx& c, const auto& v) { return cross_entropy(c, v[0], targets); });
}

TEST(Ops, MeanGradients) {
  check_gradients({{2, 3}}, [](Ctx& c, const auto& v) { return mean(c, v[0]); });
}

TEST(Ops, EmbeddingGradients) {
  Engine engine;
  const Tensor tokens =
      engine.tensor({2, 7}, {0, 4, 2, 2, 2, 1, 4, 3, 3, 0, 1, 2, 4, 0}, DType::i32);
  check_gradients({{5, 3}, {3}, {4, 3}, {2, 3}, {5, 3}}, [&](Ctx& c, const auto& v) {
    return embedding(c, tokens, {v[0], v[1], {{v[2], 2}, {v[3], 1}}, v[4]});
  });
  // Places in any order; a start table of four rows, one named twice in a sequence and one not at
  // all.
  const Tensor positions =
      engine.tensor({2, 7}, {3, 0, 7, 7, 1, 6, 2, 0, 5, 4, 1, 1, 2, 3}, DType::i32);
  const Tensor conditions = engine.tensor({2, 3}, {0, 3, 1, 1, 3, 1}, DType::i32);
  check_gradients({{5, 3}, {4, 3}, {4, 3}, {2, 3}}, [&](Ctx& c, const auto& v) {
    const Sequences told(tokens, {}, positions, conditions);
    return embedding(c, told, {v[0], v[1], {{v[2], 2}, {v[3], 1}}});
  });
}

TEST(Ops, AttentionGradients) {
  for (const PatternSpec& spec : {PatternSpec{"all", 4, 2, 1}, PatternSpec{"local", 4, 2, 1},
                                  PatternSpec{"strided", 4, 2, 1}, PatternSpec{"fixed", 4, 1, 2}}) {
    SCOPED_TRACE(spec.kind);
    Engine engine;
    const AttentionShape shape{2, 3, 4};
    const int64_t n = 13;
    const DeviceMaps maps(*engine.device, *make_pattern(spec, 2), 2, n, 4);
    check_gradients({{2, n, shape.columns()}}, [&](Ctx& c, const auto& v) {
      return sparse_attention(c, v[0], shape, maps.maps());
    });
  }
}

// Behind a matmul, which does not need what it computed. Then as a branch whose sum shares its
// gradient.
TEST(Ops, NormAndRotateGradients) {
  const AttentionShape shape{2, 8, 4};
  Engine engine;
  std::vector<double> turns;
  for (const double angle : normals(9 * 4, 40))
    turns.insert(turns.end(), {std::cos(angle), std::sin(angle)});
  const Tensor table = engine.tensor({9, 4, 2}, turns);
  const Tensor positions = engine.tensor({2, 3}, {5, 0, 7, 2, 7, 1}, DType::i32);
  const auto rotated = [&](Ctx& c, const auto& v, const QkOptions& options) {
    return norm_and_rotate(c, linear(c, v[0], v[1], Var{}), shape, options);
  };
  check_gradients({{2, 3, 2}, {40, 2}, {2}}, [&](Ctx& c, const auto& v) {
    return rotated(c, v, {0.1, table, {}, positions, v[2]});
  });
  const std::vector<Shape> shapes = {{2, 3, 2}, {40, 2}, {2, 3, 40}, {40}, {40}};
  for (const QkOptions& options :
       {QkOptions{0.1}, QkOptions{0, table}, QkOptions{0.1, table, {}, positions}}) {
    check_gradients({shapes[0], shapes[1]},
                    [&](Ctx& c, const auto& v) { return rotated(c, v, options); });
    check_gradients(shapes, [&](Ctx& c, const auto& v) {
      return residual_layernorm(c, v[2], rotated(c, v, options), 0.0, v[3], v[4]).norm;
    });
  }
}

// Two documents and padding, in one sequence and in the other.
Tensor some_segments(Engine& engine) {
  return engine.tensor({2, 6}, {0, 0, 0, 1, 1, 1, 7, 7, -1, 3, 3, -1}, DType::i32);
}

TEST(Ops, AttentionGradientsOfDocuments) {
  Engine engine;
  const AttentionShape shape{2, 3, 4};
  const DeviceMaps maps(*engine.device, *make_pattern({"all"}, 2), 2, 6, 4);
  for (const bool recompute : {false, true})
    check_gradients({{2, 6, shape.columns()}}, [&](Ctx& c, const auto& v) {
      return sparse_attention(c, v[0], shape, segment_maps(c, maps.maps(), some_segments(engine)),
                              {.recompute = recompute});
    });
}

// Results of attention and its gradient, and the bytes in use between the two passes.
struct AttentionRun {
  std::vector<double> y, dqkv;
  std::size_t kept = 0;
};

AttentionRun run_attention(bool recompute) {
  Engine engine;
  engine.set({.loss_gradient = 1});
  const AttentionShape shape{2, 8, 16};
  const DeviceMaps maps(*engine.device, *make_pattern({"local", 3}, 2), 2, 6, 16);
  Tape tape;
  Ctx ctx = engine.ctx(&tape);
  const Var qkv{
      engine.tensor({2, 6, shape.columns()}, normals(2 * 6 * shape.columns(), 3), DType::f32),
      std::make_shared<Gradient>()};
  const KeptMaps parted = segment_maps(ctx, maps.maps(), some_segments(engine));
  const std::size_t before = engine.device->pool->in_use();
  AttentionRun run;
  Var objective;
  {
    const Var y = sparse_attention(ctx, qkv, shape, parted, {.recompute = recompute});
    run.y = engine.host(y.value);
    objective = mean(ctx, y);
  }
  run.kept = engine.device->pool->in_use() - before;
  backward(ctx, objective);
  run.dqkv = engine.host(qkv.gradient->tensor);
  return run;
}

TEST(Ops, RecomputedAttentionGivesTheSameBitsAndKeepsLess) {
  const AttentionRun kept = run_attention(false), recomputed = run_attention(true);
  EXPECT_EQ(kept.y, recomputed.y);
  EXPECT_EQ(kept.dqkv, recomputed.dqkv);
  EXPECT_GE(kept.kept, recomputed.kept + 2 * 6 * 2 * (16 + 1) * sizeof(float));  // y and lse
}

// Results of an MLP and its gradients, and the bytes in use between the two passes.
struct MlpRun {
  std::vector<std::vector<double>> values;
  std::size_t kept = 0;
};

MlpRun run_mlp(const std::function<Var(Ctx&, const std::vector<Var>&)>& op) {
  Engine engine;
  engine.set({.loss_gradient = 1});
  Tape tape;
  Ctx ctx = engine.ctx(&tape);
  std::vector<Var> inputs;
  for (const Shape& shape : {Shape{2, 8, 16}, Shape{48, 16}, Shape{48}, Shape{16, 48}})
    inputs.push_back({engine.tensor(shape, normals(elements(shape), inputs.size() + 1), DType::f32),
                      std::make_shared<Gradient>()});
  const std::size_t before = engine.device->pool->in_use();
  MlpRun run;
  Var objective;
  {
    const Var y = op(ctx, inputs);
    run.values.push_back(engine.host(y.value));
    objective = mean(ctx, y);
  }
  run.kept = engine.device->pool->in_use() - before;
  backward(ctx, objective);
  for (const Var& input : inputs) run.values.push_back(engine.host(input.gradient->tensor));
  return run;
}

TEST(Ops, MlpGivesTheBitsOfItsPartsAndKeepsLess) {
  const MlpRun whole =
      run_mlp([](Ctx& c, const auto& v) { return mlp(c, v[0], v[1], v[2], v[3]); });
  const MlpRun parts = run_mlp([](Ctx& c, const auto& v) {
    return linear(c, activation(c, {linear(c, v[0], v[1], Var{}), v[2]}), v[3], Var{});
  });
  EXPECT_EQ(whole.values, parts.values);
  EXPECT_EQ(whole.kept + 2 * 8 * 48 * sizeof(float), parts.kept);  // what the GELU makes
}

TEST(Ops, MeanSetsTheLossAndTakesTheLossGradient) {
  Engine engine;
  engine.set({.loss_gradient = 8});
  Tape tape;
  Ctx ctx = engine.ctx(&tape);
  const Var x{engine.tensor({4}, {1, 2, 3, 6}), std::make_shared<Gradient>()};
  const Var y = mean(ctx, x);
  EXPECT_EQ(engine.host(y.value)[0], 3);
  EXPECT_EQ(engine.results().loss, 3);
  backward(ctx, y);
  EXPECT_EQ(engine.host(x.gradient->tensor), std::vector<double>(4, 2.0));
}

// Each call of a forward pass draws its own mask; the same call of another pass with the same draw
// repeats it.
TEST(Ops, DropoutMasks) {
  Engine engine;
  engine.set({.seed = 1, .draw = 0});
  const int64_t n = 4096;
  const Var ones{engine.tensor({n}, std::vector<double>(n, 1.0)), nullptr};
  const auto pass = [&](bool training) {
    Ctx ctx = engine.ctx(nullptr, training);
    const Var a = dropout(ctx, ones, 0.25), b = dropout(ctx, ones, 0.25);
    return std::pair{engine.host(a.value), engine.host(b.value)};
  };
  const auto [a, b] = pass(true);
  EXPECT_NE(a, b);
  EXPECT_EQ(pass(true), (std::pair{a, b}));
  EXPECT_EQ(pass(false).first, std::vector<double>(n, 1.0));
  engine.set({.seed = 1, .draw = 1});
  EXPECT_NE(pass(true).first, a);
  engine.set({.seed = 2, .draw = 0});
  EXPECT_NE(pass(true).first, a);
  int64_t kept = 0;
  for (const double v : a) {
    if (v != 0) {
      ++kept;
      EXPECT_NEAR(v, 1 / 0.75, 1e-12);
    }
  }
  EXPECT_NEAR(static_cast<double>(kept) / n, 0.75, 0.03);
}

// What is not kept is free as soon as nobody else holds it.
TEST(Ops, ResidualKeepsNothing) {
  Engine engine;
  engine.set({.seed = 1});
  Tape tape;
  Ctx ctx = engine.ctx(&tape, true);
  const std::size_t before = engine.device->pool->in_use();
  Var y;
  {
    const Var x{ctx.empty({1024}, DType::f32), std::make_shared<Gradient>()};
    const Var h{ctx.empty({1024}, DType::f32), std::make_shared<Gradient>()};
    engine.device->zero(x.value);
    engine.device->zero(h.value);
    y = residual_dropout(ctx, x, h, 0.5);
  }
  EXPECT_EQ(engine.device->pool->in_use() - before, 4096u);
}

TEST(Ops, RefuseWrongShapes) {
  Engine engine;
  Ctx ctx = engine.ctx();
  const auto var = [&](const Shape& shape, DType dtype = DType::f32) {
    return Var{ctx.empty(shape, dtype), nullptr};
  };
  EXPECT_THROW(linear(ctx, var({2, 3}), var({4, 5}), Var{}), Error);
  EXPECT_THROW(linear(ctx, var({2, 3}), var({4, 3}), var({5})), Error);
  EXPECT_THROW(linear(ctx, var({2, 3}), var({4, 3}, DType::bf16), Var{}), Error);
  EXPECT_THROW(layernorm(ctx, var({2, 3}), var({4}), var({3})), Error);
  EXPECT_THROW(layernorm(ctx, var({2, 3}, DType::bf16), var({3}, DType::bf16), var({3})), Error);
  EXPECT_THROW(residual_dropout(ctx, var({2, 3}), var({3, 2}), 0.1), Error);
  EXPECT_THROW(residual_dropout(ctx, var({2, 3}), {var({2, 3}), var({2})}, 0.1), Error);
  EXPECT_THROW(residual_layernorm(ctx, var({2, 3}), var({2, 3}), 0, var({3}), var({2})), Error);
  EXPECT_THROW(activation(ctx, {var({2, 3}), var({3}, DType::bf16)}), Error);
  EXPECT_THROW(mlp(ctx, var({2, 3}), var({5, 3}), var({5}), var({5, 3})), Error);
  EXPECT_THROW(mlp(ctx, var({2, 3}), var({5, 3}), var({3}), var({3, 5})), Error);
  EXPECT_THROW(mlp(ctx, var({2, 3}), var({5, 4}), var({5}), var({3, 5})), Error);
  EXPECT_THROW(sparse_attention(ctx, var({2, 3, 10}), {2, 2, 2}, AttentionMaps{}), Error);
  EXPECT_THROW(cross_entropy(ctx, var({2, 3}), ctx.empty({3}, DType::i32)), Error);
  EXPECT_THROW(embedding(ctx, ctx.empty({2, 3}, DType::f32), {var({4, 3}), var({3})}), Error);
  EXPECT_THROW(embedding(ctx, ctx.empty({2, 3}, DType::i32), {var({4, 3}), var({4})}), Error);
}
}  // namespace
}  // namespace weft
