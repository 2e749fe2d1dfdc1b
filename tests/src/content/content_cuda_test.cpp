// SPDX-License-Identifier: MIT
// Attention where content decides, on CUDA: the same sets as on the CPU, values, gradients, bits
// and times.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>
#ifdef WEFT_CUDA
#include "kernels/attention/select.h"
#include "kernels/diagnostics/timer.h"
#include "tests/src/content/content_testing.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <variant>

namespace weft {
namespace {
using namespace content_testing;

struct Outcome {
  std::vector<double> y, dqkv, dcentroids;
};

Outcome pass(Batch& run, DType dtype, AttentionForm form = AttentionForm::automatic) {
  run.engine.set({.seed = 3, .draw = 4, .loss_gradient = 3});
  for (Var& c : run.centroids)
    if (c.gradient) c.gradient = std::make_shared<Gradient>();
  Tape tape;
  Ctx ctx = run.engine.ctx(&tape, true);
  const Var qkv{run.qkv(dtype), std::make_shared<Gradient>()};
  const Var y = run.attend(ctx, qkv, run.made(ctx, qkv.value), form);
  const Tensor dy = ctx.empty(y.shape(), dtype);
  const std::vector<double> random = normals(dy.size(), 6);
  const Tensor whole = run.engine.tensor(y.shape(), random, wide(dtype));
  ctx.launch(Cast{.y = dy, .x = whole});
  ctx.pass_gradient(y, dy);
  tape.run_backward(ctx);
  Outcome out = {run.engine.host(y.value), run.engine.host(qkv.gradient->tensor), {}};
  for (const Var& c : run.centroids)
    if (c.gradient) out.dcentroids = run.engine.host(c.gradient->tensor);
  return out;
}

PatternSpec with(PatternSpec spec, int64_t window) {
  spec.window = window;
  return spec;
}

const std::vector<PatternSpec> kSpecs = {with(kRouting, 70), with(kLsh, 40), kBlocks,
                                         heads_of_kinds({with(kRouting, 20), {"local", 30}}),
                                         heads_of_kinds({kBlocks, with(kLsh, 20)})};

TEST(CudaContent, AgreesWithTheCpu) {
  for (const PatternSpec& spec : kSpecs)
    for (const int64_t n : {1, 65, 300, 1000})
      for (const int64_t size : {8, 64, 128, 136}) {
        if (size != 64 && n != 300) continue;
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
          for (const AttentionForm form :
               {AttentionForm::automatic, AttentionForm::general, AttentionForm::simple}) {
            if (form == AttentionForm::general && (dtype == DType::f32 || size > 128)) continue;
            Batch cpu(spec, 2, n, 4, size), cuda(spec, 2, n, 4, size, "cuda");
            for (Var& c : cpu.centroids)  // as CUDA has them
              if (c.gradient)
                c.value = cpu.engine.tensor(c.shape(), cpu.engine.host(c.value), DType::f32);
            SCOPED_TRACE(str(cpu.pattern->name(), ", n ", n, ", D ", size, ", ", name_of(dtype),
                             ", ", name_of(form)));
            const double bound = dtype == DType::f32 ? 1e-4 : dtype == DType::f16 ? 2e-2 : 8e-2;
            const Outcome want = pass(cpu, dtype), got = pass(cuda, dtype, form);
            expect_near(got.y, want.y, bound, "y");
            expect_near(got.dqkv, want.dqkv, bound, "dqkv");
            expect_near(got.dcentroids, want.dcentroids, 1e-4, "centroids");
            if (testing::Test::HasFailure()) return;
          }
      }
}

TEST(CudaContent, LabelsAndChoicesAreTheBitsOfTheCpu) {
  for (const PatternSpec& spec : kSpecs)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Batch cpu(spec, 2, 1000, 4, 64), cuda(spec, 2, 1000, 4, 64, "cuda");
      for (Var& c : cpu.centroids)
        if (c.gradient)
          c.value = cpu.engine.tensor(c.shape(), cpu.engine.host(c.value), DType::f32);
      Ctx there = cpu.engine.ctx(), here = cuda.engine.ctx();
      const Batch::Made want = cpu.made(there, cpu.qkv(dtype)),
                        got = cuda.made(here, cuda.qkv(dtype));
      for (std::size_t i = 0; i < want.size(); ++i) {
        const ContentMaps &a = *want[i], &b = *got[i];
        const auto looked_at = [](const ContentMaps& c) {
          return c.labels ? c.labels : c.memory[1];
        };
        EXPECT_EQ(cpu.engine.host(looked_at(a)), cuda.engine.host(looked_at(b)));
      }
    }
}

TEST(CudaContent, TwoRunsGiveTheSameBits) {
  for (const PatternSpec& spec : kSpecs) {
    Batch run(spec, 2, 2000, 4, 64, "cuda");
    const Outcome first = pass(run, DType::bf16);
    for (int repeat = 0; repeat < 20; ++repeat) {
      const Outcome again = pass(run, DType::bf16);
      ASSERT_TRUE(first.y == again.y && first.dqkv == again.dqkv &&
                  first.dcentroids == again.dcentroids);
    }
  }
}

// Median of 50 runs that start with cold caches.
double cold_ms(Device& device, const std::function<void()>& work) {
  const Tensor flush(*device.pool, {int64_t{256} << 20}, DType::u8);  // more than any cache holds
  for (int warm_up = 0; warm_up < 3; ++warm_up) work();
  std::vector<double> ms = std::visit(
      [&](auto& queue) {
        return time_runs(
            queue, 50, [&] { device.zero(flush); }, work);
      },
      device.queue);
  std::ranges::nth_element(ms, ms.begin() + 25);
  return ms[25];
}

// WEFT_CONTENT_SPEED=1, or part of a pattern's name: times at B 4, H 8, n 12,288, D 64, bf16,
// beside what they may be.
TEST(CudaContent, Speed) {
  const char* wanted = std::getenv("WEFT_CONTENT_SPEED");
  if (!wanted) GTEST_SKIP() << "set WEFT_CONTENT_SPEED=1";
  PatternSpec routing = with(kRouting, 256), lsh = with(kLsh, 128), blocks = kBlocks;
  routing.clusters = 48, lsh.rounds = 4, lsh.buckets = 192, blocks.blocks = 8;

  struct Target {
    PatternSpec spec;
    double forward, both;
  };

  for (const auto& [spec, forward, both] : std::vector<Target>{{{"local", 256}, 0, 0},
                                                               {{"all"}, 0, 0},
                                                               {routing, 0.34, 1.2},
                                                               {blocks, 0.31, 1.2},
                                                               {lsh, 0.8, 3.0}}) {
    if (wanted != std::string("1") && spec.kind.find(wanted) == std::string::npos) continue;
    Batch run(spec, 4, 12288, 8, 64, "cuda");
    const Tensor qkv = run.qkv(DType::bf16);
    const auto work = [&](bool backward) {
      Tape tape;
      Ctx ctx = run.engine.ctx(backward ? &tape : nullptr, true);
      const Var x{qkv, std::make_shared<Gradient>()};
      const Var y = run.attend(ctx, x, run.made(ctx, qkv));
      if (!backward) return;
      ctx.pass_gradient(y, y.value);
      tape.run_backward(ctx);
    };
    const double f = cold_ms(*run.engine.device, [&] { work(false); }),
                 b = cold_ms(*run.engine.device, [&] { work(true); });
    std::printf("%-40s forward %7.3f ms (%.2f)   forward + backward %7.3f ms (%.2f)\n",
                run.pattern->name().c_str(), f, forward, b, both);
  }
}
}  // namespace
}  // namespace weft
#endif
