// SPDX-License-Identifier: MIT
// Sparse attention on CUDA against the definition, on strided views with poison around everything
// that is written.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#ifdef WEFT_CUDA
#include "kernels/sampling/decode_attention.h"
#include "tests/kernels/attention/attention_gpu.h"

#include <gtest/gtest.h>

namespace weft {
namespace {
using namespace attention_test;

template <class T>
void for_all_patterns() {
  for (const int64_t n : {1, 15, 16, 17, 63, 64, 65, 100, 200})
    for (const auto& [keys, edge, documents] : {std::tuple{int64_t{0}, kTile, false},
                                                {0, kSmallTile, false},
                                                {n / 2 + 1, kTile, true},
                                                {n + 30, kSmallTile, true},
                                                {n + 70, kBest, false}}) {
      const Sizes size{2, n, 2, 64, 64, keys};
      for (const auto& [name, pattern] : sample_patterns(size.lengths(), 2))
        expect_agreement<T>(*pattern, {size, edge, documents}, name);
    }
}

TEST(CudaAttention, Float32Patterns) { for_all_patterns<float>(); }

TEST(CudaAttention, Float16Patterns) { for_all_patterns<f16>(); }

TEST(CudaAttention, BFloat16Patterns) { for_all_patterns<bf16>(); }

template <class T>
void for_all_sizes() {
  const int64_t n = 150;
  const auto patterns = sample_patterns(n, 2);
  const auto expect = [&](int64_t qk, int64_t v) {
    for (const int edge : {kTile, kSmallTile})
      // groups, fixed, two parts
      for (const auto* sample : {&patterns[7], &patterns[8], &patterns[10]})
        expect_agreement<T>(*sample->pattern, {{1, n, 2, qk, v}, edge, false}, sample->name);
  };
  for (const int64_t d : {8, 16, 24, 40, 64, 72, 96, 128, 136, 192, 256}) expect(d, d);
  for (const auto& [qk, v] : {std::pair{64, 128},
                              {32, 64},
                              {16, 128},
                              {128, 64},
                              {128, 24},
                              {72, 40},
                              {24, 48},
                              {8, 256},
                              {136, 64},
                              {256, 8}})
    expect(qk, v);
}

TEST(CudaAttention, Float32Sizes) { for_all_sizes<float>(); }

TEST(CudaAttention, Float16Sizes) { for_all_sizes<f16>(); }

TEST(CudaAttention, BFloat16Sizes) { for_all_sizes<bf16>(); }

// Walks of many tiles, several blocks, an odd number of tiles.
TEST(CudaAttention, LongWalks) {
  const auto all = make_pattern({"all"}, 1);
  for (const int d : {32, 64, 128}) {
    expect_agreement<bf16>(*all, {{1, 1500, 1, d, d}}, "long");
    expect_agreement<f16>(*all, {{1, 1500, 1, d, d}}, "long");
  }
  expect_agreement<float>(*all, {{1, 700, 1, 64, 64}}, "long");
  expect_agreement<bf16>(*all, {{1, 600, 1, 192, 192}}, "long");
  expect_agreement<bf16>(*make_pattern({"strided", 96}, 4), {{1, 1536, 4, 64, 128}}, "columns");
}

// Query tiles with equally many key tiles, so that they share a block, and hardly one in common:
// the rows that one of them waits for come after many that only the others read.
TEST(CudaAttention, WalksThatPart) {
  const int64_t n = 1500;
  const PredicatePattern apart(n, [](int, int64_t i, int64_t j) {
    const int64_t keys = j / kTile;
    switch (i / kTile % 3) {
      case 0: return keys < 12;
      case 1: return keys == 0 || keys >= 13;
      default: return keys == 0 || (keys >= 5 && keys < 16 && j % 3 != 0);
    }
  });
  for (const auto& [qk, v] : {std::pair{64, 64}, {64, 128}, {128, 128}}) {
    expect_agreement<bf16>(apart, {{1, n, 1, qk, v}}, "walks that part");
    expect_agreement<f16>(apart, {{1, n, 1, qk, v}}, "walks that part");
  }
}

// Scores that grow along the row move the reference of the online softmax; large ones must not
// overflow.
TEST(CudaAttention, LargeGrowingScores) {
  const int64_t n = 400;
  const auto pattern = make_pattern({"all"}, 1);
  for (const int64_t d : {32, 128}) {
    Data<f16> x({1, n, 1, d, d});
    for (int64_t t = 0; t < n; ++t)
      for (int64_t i = 0; i < d; ++i) {
        x.q[t * d + i] = f16(d == 32 ? 2.0f : 1.0f);
        x.k[t * d + i] = f16(static_cast<float>(t % 200) / 16 - 4);
      }
    Data<double> exact(x);
    by_definition(exact.forward({}), *pattern);
    for (const int edge : {kTile, kSmallTile}) {
      const GpuMaps maps(*pattern, 1, n, d, edge);
      for (const AttentionForm form : forms_for(DType::f16, x.size, maps.maps, false)) {
        x.form = form;
        run_on_gpu(x, maps.maps);
        EXPECT_LE(difference(x.y, exact.y), 3e-3)
            << name_of(form) << ", edge " << edge << ", heads of " << d;
        EXPECT_LE(difference(x.lse, exact.lse), 1e-5)
            << name_of(form) << ", edge " << edge << ", heads of " << d;
      }
    }
  }
}

// Every form that covers x, of one sequence and two heads, by the usual rule.
template <class T>
void expect_agreement_of(Data<T>& x, const PatternSpec& spec, int edge) {
  const int64_t n = x.size.time, d = x.size.qk;
  const auto pattern = make_pattern(spec, 2);
  const Expected<T> expected(gpu(), *pattern, x, edge);
  const GpuMaps maps(*pattern, 2, n, d, edge);
  for (const AttentionForm form : forms_for(dtype_of<T>, x.size, maps.maps, false)) {
    SCOPED_TRACE(str(pattern->name(), ", ", name_of(form), ", heads of ", d, ", edge ", edge));
    x.form = form;
    run_on_gpu(x, maps.maps);
    EXPECT_NO_THROW(expected.check(x, floor_of<T>(form)));
  }
}

// All scores near -100 or near 100, and rows whose first tile shows them nothing: what the online
// softmax has before it sees a key must not decide what it sees. Sums of 64 products in f32 leave
// such scores an error of some 2^-16, which is that of each probability, on the CPU as well: the
// usual rule holds.
template <class T>
void expect_agreement_at_scores_of(double score) {
  SCOPED_TRACE(str("scores of ", score));
  const int64_t n = 400, d = 64;
  for (const auto& [edge, spec] : {std::pair{kTile, PatternSpec{"local", 96}},
                                   {kTile, PatternSpec{"all"}},
                                   {kSmallTile, PatternSpec{"local", 24}},
                                   {kBest, PatternSpec{"strided", 96}}}) {
    Data<T> x({1, n, 2, d, d});
    for (std::size_t i = 0; i < x.q.size(); i += static_cast<std::size_t>(d)) {
      x.q[i] = T(static_cast<float>(std::abs(score) / 5));
      x.k[i] = T(score < 0 ? -40.0f : 40.0f);
    }
    expect_agreement_of(x, spec, edge);
  }
}

TEST(CudaAttention, ScoresFarFromZero) {
  for (const double score : {-100.0, 100.0}) {
    expect_agreement_at_scores_of<float>(score);
    expect_agreement_at_scores_of<f16>(score);
    expect_agreement_at_scores_of<bf16>(score);
  }
}

// Keys up to seven times as long as the first, again and again: few keys have nearly all the weight
// of a row, and probabilities of the others vanish in f16.
template <class T>
void expect_agreement_of_growing_keys() {
  for (const auto& [edge, spec, d] : {std::tuple{kTile, PatternSpec{"all"}, 64},
                                      {kTile, PatternSpec{"all"}, 128},
                                      {kTile, PatternSpec{"fixed", 128, 32}, 64},
                                      {kTile, PatternSpec{"local", 128}, 64},
                                      {kSmallTile, PatternSpec{"local", 24}, 64}}) {
    Data<T> x({1, 700, 2, d, d});
    for (int64_t i = 0; i < 700 * 2 * d; ++i)
      x.k[i] = T(static_cast<float>(x.k[i]) * (1 + static_cast<float>(i / (2 * d) % 300) / 50));
    expect_agreement_of(x, spec, edge);
  }
}

TEST(CudaAttention, GrowingKeys) {
  expect_agreement_of_growing_keys<float>();
  expect_agreement_of_growing_keys<f16>();
  expect_agreement_of_growing_keys<bf16>();
}

// How many rows of `x`, of d numbers each, are off by more than 4e-3 of their own largest.
template <class T>
int64_t rows_with_few_digits(const std::vector<T>& x, const std::vector<double>& exact, int64_t d) {
  int64_t count = 0;
  for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(d)) {
    double most = 0, off = 0;
    for (std::size_t i = row; i < row + static_cast<std::size_t>(d); ++i) {
      most = std::max(most, std::abs(exact[i]));
      off = std::max(off, std::abs(static_cast<double>(static_cast<float>(x[i])) - exact[i]));
    }
    count += !(off <= 4e-3 * most);
  }
  return count;
}

// Keys that have small probabilities alone: these have their digits in f16, too, so that nearly
// every row of dV is right by itself. With probabilities that are rounded as they are it is 13 to
// 15 of 100 that are not.
TEST(CudaAttention, Float16KeysOfSmallProbabilities) {
  const int64_t n = 1031, heads = 2;
  const auto pattern = make_pattern({"all"}, heads);
  for (const int64_t d : {64, 128}) {
    Data<f16> x({1, n, heads, d, d});
    for (int64_t i = 0; i < n * heads * d; ++i)
      x.k[i] = f16(static_cast<float>(x.k[i]) *
                   (1 + static_cast<float>(i / (heads * d) % 700) * 6 / 700));
    Data<double> exact(x);
    by_definition(exact.forward({}), *pattern);
    by_definition(exact.backward({}), *pattern);
    const GpuMaps maps(*pattern, heads, n, d, kTile);
    x.form = AttentionForm::hopper;
    const auto forms = forms_for(DType::f16, x.size, maps.maps, false);
    if (std::find(forms.begin(), forms.end(), x.form) == forms.end())
      GTEST_SKIP() << "no Hopper form here";
    for (const bool scratch : {true, false}) {  // with it heads of 64 take one walk, else two
      run_on_gpu(x, maps.maps, scratch);
      EXPECT_LE(rows_with_few_digits(x.dv, exact.dv, d), n * heads / 50)
          << "heads of " << d << (scratch ? "" : ", without scratch");
    }
  }
}

// Two parts, a length that fills no tile: the backward pass a thousand times.
template <class T>
void expect_equal_bits_of_many_runs() {
  const int64_t n = 130;
  const auto patterns = sample_patterns(n, 2);
  for (const int edge : {kTile, kSmallTile}) {
    const GpuMaps maps(*patterns[10].pattern, 2, n, 64, edge);
    Data<T> x({2, n, 2, 64, 64});
    for (const AttentionForm form : forms_for(dtype_of<T>, x.size, maps.maps, false)) {
      x.form = form;
      run_on_gpu(x, maps.maps);
      const OnGpu<T> d(x);
      launch(gpu().queue, d.forward(maps.maps));
      const auto backward = [&] { launch(gpu().queue, d.backward(maps.maps)); };
      EXPECT_EQ(runs_with_other_bits(backward, d.dq, d.dk_dv), 0)
          << name_of(form) << ", edge " << edge;
    }
  }
}

TEST(CudaAttention, AThousandRunsGiveTheSameBits) {
  expect_equal_bits_of_many_runs<float>();
  expect_equal_bits_of_many_runs<f16>();
  expect_equal_bits_of_many_runs<bf16>();
}

// Where keys and values of all heads do not fit into the L2, heads are worked on in groups: here
// two at a time of size 64, one of size 128.
TEST(CudaAttention, HeadsTogetherAndAloneHaveTheSameBits) {
  const int64_t n = 32'768, heads = 4;
  const auto pattern = make_pattern({"fixed", 128}, heads);
  for (const int64_t d : {64, 128}) {
    const auto of_head = [&](const auto& whole, int64_t h) {
      std::decay_t<decltype(whole)> part;
      for (int64_t t = 0; t < n; ++t) {
        const auto row = whole.begin() + (t * heads + h) * d;
        part.insert(part.end(), row, row + d);
      }
      return part;
    };
    Data<bf16> all({1, n, heads, d, d});
    run_on_gpu(all, GpuMaps(*pattern, heads, n, d).maps);
    const GpuMaps maps(*pattern, 1, n, d);
    for (int64_t h = 0; h < heads; ++h) {
      Data<bf16> alone({1, n, 1, d, d});
      alone.q = of_head(all.q, h), alone.k = of_head(all.k, h), alone.v = of_head(all.v, h);
      alone.dy = of_head(all.dy, h);
      run_on_gpu(alone, maps.maps);
      SCOPED_TRACE(str("head ", h, " of size ", d));
      EXPECT_TRUE(same_bits(alone.y, of_head(all.y, h)));
      EXPECT_TRUE(same_bits(alone.dq, of_head(all.dq, h)));
      EXPECT_TRUE(same_bits(alone.dk, of_head(all.dk, h)));
      EXPECT_TRUE(same_bits(alone.dv, of_head(all.dv, h)));
    }
  }
}

TEST(CudaAttention, BatchTimesHeadsOf65536) {
  const auto pattern = make_pattern({"all"}, 8);
  expect_agreement<float>(*pattern, {{8192, 3, 8, 8, 8}}, "65536 heads");
  expect_agreement<bf16>(*pattern, {{65536, 2, 1, 8, 8}}, "65536 sequences");
}

// Positions r, r + stride, ... of a strided pattern are a causal sequence of their own: some of
// these columns of a sequence of 2^20 against f64.
template <class T>
void expect_agreement_at_full_length() {
  const int64_t n = 1 << 20, stride = 1024, d = 16;
  Data<T> x({1, n, 1, d, d});
  const auto strided = make_pattern({"strided", stride}, 1), all = make_pattern({"all"}, 1);
  const GpuMaps maps(*strided, 1, n, d);
  {
    const OnGpu<T> on(x);
    launch(gpu().queue, on.forward(maps.maps));
    launch(gpu().queue, on.backward(maps.maps));
    on.fetch(x);
  }
  for (const int64_t first : {int64_t{0}, int64_t{517}, stride - 1}) {
    const auto column = [&](const auto& whole) {
      const auto width = static_cast<int64_t>(whole.size()) / n;
      std::decay_t<decltype(whole)> part;
      for (int64_t t = first; t < n; t += stride)
        part.insert(part.end(), &whole[t * width], &whole[t * width] + width);
      return part;
    };
    Data<T> got({1, n / stride, 1, d, d});
    got.q = column(x.q), got.k = column(x.k), got.v = column(x.v), got.dy = column(x.dy);
    const Expected<T> expected(gpu(), *all, got);
    got.y = column(x.y), got.lse = column(x.lse);
    got.dq = column(x.dq), got.dk = column(x.dk), got.dv = column(x.dv);
    SCOPED_TRACE(str("column ", first));
    EXPECT_NO_THROW(expected.check(got, floor_of<T>(AttentionForm::general)));
  }
}

TEST(CudaSlowAttention, AMillionPositions) {
  expect_agreement_at_full_length<float>();
  expect_agreement_at_full_length<bf16>();
}

template <class T>
void decode_is_the_last_row(const Sizes& size, double tolerance) {
  const int64_t batch = size.batch, n = size.time, heads = size.heads, width = heads * size.v;
  for (const auto& [name, pattern] : sample_patterns(n, static_cast<int>(heads))) {
    Data<T> x(size);
    const GpuMaps maps(*pattern, static_cast<int>(heads), n, std::max(size.qk, size.v));
    run_on_gpu(x, maps.maps);
    const OnGpu<T> d(x);
    std::vector<int32_t> keys, key_start{0}, group_of_head;
    for (int h = 0; h < heads; ++h) group_of_head.push_back(pattern->group(h));
    for (int g = 0; g < pattern->groups(static_cast<int>(heads)); ++g) {
      int head = 0;
      while (pattern->group(head) != g) ++head;
      pattern->keys_of(head, n - 1, n, keys);
      key_start.push_back(static_cast<int32_t>(keys.size()));
    }
    keys.push_back(0);  // so that there is memory to point to
    const Tensor key_list = on_gpu(keys), starts = on_gpu(key_start),
                 groups = on_gpu(group_of_head);
    const auto pointer = [](const Tensor& t) { return static_cast<const int32_t*>(t.view().data); };
    const AttentionForward f = d.forward({});
    Guarded<T> y(batch, width), alone(1, width);
    AttentionDecode decode{{y.data(), dtype_of<T>, batch, 1, heads, size.v, width, width, size.v},
                           f.q,
                           f.k,
                           f.v,
                           pointer(key_list),
                           pointer(starts),
                           pointer(groups),
                           f.scale};
    decode.q.data = f.q.template row<T>(0, n - 1, 0);
    decode.q.time = 1;
    launch(gpu().queue, decode);
    const std::vector<T> together = y.get(0, width);
    EXPECT_TRUE(y.kept_outside(width));
    std::vector<T> last;
    for (int64_t b = 0; b < batch; ++b)
      last.insert(last.end(), &x.y[(b * n + n - 1) * width], &x.y[(b * n + n - 1) * width] + width);
    EXPECT_LE(difference(together, last), tolerance) << name;
    decode.y.data = alone.data();  // the second sequence alone: the same bits
    for (HeadsView* view : {&decode.q, &decode.k, &decode.v})
      view->data = view->template row<T>(1, 0, 0);
    for (HeadsView* view : {&decode.y, &decode.q, &decode.k, &decode.v}) view->batch = 1;
    launch(gpu().queue, decode);
    EXPECT_TRUE(same_bits(alone.get(0, width), {&together[width], &together[width] + width}))
        << name;
  }
}

TEST(CudaAttention, DecodeIsTheLastRowOfForward) {
  decode_is_the_last_row<float>({3, 517, 4, 24, 72}, 1e-5);
  decode_is_the_last_row<f16>({3, 517, 4, 24, 72}, 5e-3);
  decode_is_the_last_row<bf16>({3, 517, 4, 24, 72}, 3e-2);
  for (const auto& [qk, v] : {std::pair{8, 8}, {128, 136}, {192, 64}, {256, 256}}) {
    decode_is_the_last_row<float>({2, 70, 2, qk, v}, 1e-5);
    decode_is_the_last_row<bf16>({2, 70, 2, qk, v}, 3e-2);
  }
}

TEST(CudaAttention, WhatDoesNotWorkIsSaid) {
  const auto pattern = make_pattern({"all"}, 1);
  const GpuMaps maps(*pattern, 1, 70, 64);
  const auto message = [&](const AttentionForward& f) -> std::string {
    try {
      launch(gpu().queue, f);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const Data<double> f64({1, 70, 1, 16, 16});
  EXPECT_NE(message(OnGpu<double>(f64).forward(maps.maps)).find("takes f32, f16 and bf16"),
            std::string::npos);
  const Data<bf16> odd({1, 70, 1, 20, 20}), large({1, 70, 1, 264, 264}), good({1, 70, 1, 16, 16});
  EXPECT_NE(message(OnGpu<bf16>(odd).forward(maps.maps)).find("the nearest is 24"),
            std::string::npos);
  EXPECT_NE(message(OnGpu<bf16>(large).forward(maps.maps)).find("the nearest is 256"),
            std::string::npos);
  const OnGpu<bf16> d(good);
  AttentionForward f = d.forward(maps.maps);
  EXPECT_EQ(message(f), "");
  f.k.data = static_cast<bf16*>(f.k.data) + 1;
  EXPECT_NE(message(f).find("multiples of 16 bytes"), std::string::npos);
}
}  // namespace
}  // namespace weft
#endif
