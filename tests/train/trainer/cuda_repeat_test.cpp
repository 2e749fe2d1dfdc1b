// SPDX-License-Identifier: MIT
// The same launches again and again while the GPU has other work: one bit pattern.
// WEFT_REPEAT_SECONDS says how long each test goes on. What they count is part of the GPU record.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>
#ifdef WEFT_CUDA
#include "kernels/attention/select.h"
#include "kernels/optimizer/reduce.h"
#include "tests/kernels/attention/attention_gpu.h"
#include "tests/train/trainer/repeat.h"

#include <gtest/gtest.h>
#include <set>

namespace weft {
namespace {
using namespace attention_test;
using attention::Kernel;

// Forward and backward of one problem, and which kernels they run. hash(): adds what they wrote to
// *sum.
struct Repeated {
  std::string name;
  std::function<void()> run;
  std::function<void(uint64_t* sum)> hash;
  std::set<Kernel> kernels = {};
};

template <class T>
Repeated repeated(const PatternSpec& spec, const Sizes& size, AttentionForm form, int edge = kTile,
                  bool scratch = true) {
  const auto heads = static_cast<int>(size.heads);
  const auto maps = std::make_shared<GpuMaps>(*make_pattern(spec, heads), heads, size.lengths(),
                                              std::max(size.qk, size.v), edge);
  Data<T> x(size);
  x.form = form;
  const auto d = std::make_shared<OnGpu<T>>(x);
  const AttentionForward f = d->forward(maps->maps);
  const AttentionBackward g =
      scratch ? d->backward_with_scratch(maps->maps) : d->backward(maps->maps);
  const auto matrix = [](const auto& m, int64_t rows) {
    using Value = typename std::decay_t<decltype(m)>::Value;
    return TensorView{m.data(), dtype_of<Value>, 2, {rows, m.columns(), 1, 1, 1}};
  };
  const std::vector<TensorView> outputs{matrix(d->y, d->rows), matrix(d->lse, 1),
                                        matrix(d->dq, d->rows), matrix(d->dk_dv, d->key_rows)};
  const int capability = gpu().compute_capability;
  Repeated r{
      str(spec.kind, ", ", name_of(dtype_of<T>), ": ", attention::kernels_text(f, g, capability)),
      [f, g, maps, d] {
        launch(gpu().queue, f);
        launch(gpu().queue, g);
      },
      [outputs, d](uint64_t* sum) {
        for (const TensorView& output : outputs)
          launch(gpu().queue, Fingerprint{.sum = sum, .x = output});
      }};
  for (int p = 0; p < f.maps.passes; ++p) {
    r.kernels.insert(attention::select(attention::Problem::of(f), f.maps.pass[p], capability));
    r.kernels.insert(attention::select(attention::Problem::of(g), g.maps.pass[p], capability));
  }
  return r;
}

template <class T>
void add_problems(std::vector<Repeated>& all) {
  const Sizes some{2, 400, 4, 64, 64}, large{1, 300, 2, 128, 128};
  using enum AttentionForm;
  for (const AttentionForm form : {simple, general})
    all.push_back(repeated<T>({"fixed", 32, 8}, some, form));
  if (attention::added_kernel(attention::Kernel::general_small_tiles))
    all.push_back(repeated<T>({"fixed", 16, 4}, some, general, kSmallTile));
  if (gpu().compute_capability != 90) return;
  for (const bool scratch : {false, true}) {
    all.push_back(repeated<T>({"all"}, {1, 1500, 8, 64, 64}, hopper, kTile, scratch));
    all.push_back(repeated<T>({"fixed", 128, 32}, {1, 1500, 8, 64, 64}, hopper, kTile, scratch));
  }
  all.push_back(repeated<T>({"all"}, large, hopper));
  all.push_back(repeated<T>({"strided", 32}, {2, 32 * 40, 4, 64, 64}, hopper));
  all.push_back(repeated<T>({"local", 128}, large, hopper));
  all.push_back(repeated<T>({"local", 200}, some, hopper));
  all.push_back(repeated<T>({"strided", 16}, {1, 16 * 300, 4, 64, 64}, hopper));
}

// The sum of n equal hashes is n times the first one, modulo 2^64: nothing is copied to the host in
// between.
TEST(CudaRepeat, AttentionHasOneBitPattern) {
  std::vector<Repeated> problems{
      repeated<float>({"fixed", 32, 8}, {2, 200, 2, 64, 64}, AttentionForm::simple)};
  add_problems<bf16>(problems);
  add_problems<f16>(problems);
  std::set<Kernel> kernels;
  for (const Repeated& problem : problems)
    kernels.insert(problem.kernels.begin(), problem.kernels.end());
  if (gpu().compute_capability == 90) {
    const std::size_t all = 1 + static_cast<std::size_t>(Kernel::hopper_column),
                      absent =
                          attention::added_kernel(attention::Kernel::general_small_tiles) ? 0 : 1;
    EXPECT_EQ(kernels.size(), all - absent) << "each of them";
  }
  const Tensor sums(*gpu().pool, {static_cast<int64_t>(8 * problems.size())}, DType::u8);
  auto* sum = static_cast<uint64_t*>(sums.view().data);
  std::vector<uint64_t> first(problems.size()), found(problems.size());
  const auto run_all = [&](int times, std::vector<uint64_t>& result) {
    gpu().zero(sums);
    for (std::size_t i = 0; i < problems.size(); ++i)
      for (int t = 0; t < times; ++t) {
        problems[i].run();
        problems[i].hash(sum + i);
      }
    gpu().download(result.data(), sums);
  };
  run_all(1, first);
  const Load load;
  constexpr int kTimes = 50;
  int64_t launches = 0, differences = 0;
  repeat([&] {
    run_all(kTimes, found);
    launches += static_cast<int64_t>(2 * kTimes * problems.size());
    for (std::size_t i = 0; i < problems.size(); ++i)
      if (found[i] != kTimes * first[i]) {
        ++differences;
        ADD_FAILURE() << problems[i].name;
      }
  });
  report("launches", launches, differences);
}
}  // namespace
}  // namespace weft
#endif
