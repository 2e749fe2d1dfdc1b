// SPDX-License-Identifier: MIT
// Sparse attention on CUDA against the CPU in f64, on strided views with poison around everything that is
// written.
#ifdef WEFT_CUDA
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/attention_case.h"

namespace weft {
namespace {

using namespace attention_test;

Device& gpu() {
  static const std::unique_ptr<Device> device = make_device("cuda");
  return *device;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// A (rows, columns) matrix on the GPU between two guard bands; what is not put() is NaN.
template <class T>
class Guarded {
 public:
  Guarded(std::int64_t rows, std::int64_t columns)
      : rows_(rows),
        columns_(columns),
        poison_(static_cast<std::size_t>(rows * columns + 2 * kGuard)),
        memory_(*gpu().pool, {static_cast<std::int64_t>(poison_.size())}, dtype_of<T>) {
    std::memset(static_cast<void*>(poison_.data()), 0xff, poison_.size() * sizeof(T));
    upload(poison_);
  }
  T* data() const { return static_cast<T*>(memory_.view().data) + kGuard; }
  void put(std::int64_t first_column, std::int64_t count, const std::vector<T>& values) {
    std::vector<T> all = download();
    for (std::int64_t r = 0; r < rows_; ++r)
      std::copy_n(&values[r * count], count, &all[kGuard + r * columns_ + first_column]);
    upload(all);
  }
  std::vector<T> get(std::int64_t first_column, std::int64_t count) const {
    const std::vector<T> all = download();
    std::vector<T> values(static_cast<std::size_t>(rows_ * count));
    for (std::int64_t r = 0; r < rows_; ++r)
      std::copy_n(&all[kGuard + r * columns_ + first_column], count, &values[r * count]);
    return values;
  }
  // Nothing was written outside of the first `used` columns.
  bool kept_outside(std::int64_t used) const {
    std::vector<T> all = download();
    for (std::int64_t r = 0; r < rows_; ++r)
      std::memset(static_cast<void*>(&all[kGuard + r * columns_]), 0xff, used * sizeof(T));
    return same_bits(all, poison_);
  }

 private:
  static constexpr std::int64_t kGuard = 256;
  void upload(const std::vector<T>& values) { gpu().upload(memory_, values.data()); }
  std::vector<T> download() const {
    std::vector<T> values(poison_.size());
    gpu().download(values.data(), memory_);
    return values;
  }
  std::int64_t rows_, columns_;
  std::vector<T> poison_;
  Tensor memory_;
};

// The inputs of `x` on the GPU: q, k, v side by side, their gradients too, y and dy alone, all with spare
// columns.
template <class T>
struct OnGpu {
  static constexpr std::int64_t kSpare = 8;
  Sizes s;
  std::int64_t rows = s.batch * s.time, q = s.heads * s.qk, v = s.heads * s.v;
  Guarded<T> inputs{rows, 2 * q + v + kSpare}, gradients{rows, 2 * q + v + kSpare}, y{rows, v + kSpare},
      dy{rows, v + kSpare};
  Guarded<float> lse{1, s.batch*s.heads*s.time}, delta{1, s.batch*s.heads*s.time};

  explicit OnGpu(const Data<T>& x) : s(x.size) {
    inputs.put(0, q, x.q);
    inputs.put(q, q, x.k);
    inputs.put(2 * q, v, x.v);
    dy.put(0, v, x.dy);
  }
  HeadsView heads(const Guarded<T>& m, std::int64_t columns, std::int64_t first, std::int64_t size) const {
    return {m.data() + first, dtype_of<T>, s.batch, s.time, s.heads, size, s.time * columns, columns, size};
  }
  HeadsView packed(const Guarded<T>& m, std::int64_t first, std::int64_t size) const {
    return heads(m, 2 * q + v + kSpare, first, size);
  }
  TensorView scalars(const Guarded<float>& m) const {
    return {m.data(), wide(dtype_of<T>), 3, {s.batch, s.heads, s.time, 1, 1}};
  }
  AttentionForward forward(const AttentionMaps& maps) const {
    return {heads(y, v + kSpare, 0, s.v),
            scalars(lse),
            packed(inputs, 0, s.qk),
            packed(inputs, q, s.qk),
            packed(inputs, 2 * q, s.v),
            maps,
            1 / std::sqrt(static_cast<double>(s.qk))};
  }
  AttentionBackward backward(const AttentionMaps& maps) const {
    const AttentionForward f = forward(maps);
    return {packed(gradients, 0, s.qk),
            packed(gradients, q, s.qk),
            packed(gradients, 2 * q, s.v),
            scalars(delta),
            heads(dy, v + kSpare, 0, s.v),
            f.y,
            f.lse,
            f.q,
            f.k,
            f.v,
            maps,
            f.scale};
  }
};

// Runs forward and backward of x on the GPU, twice: what comes back is in x; same bits, nothing written
// beside.
template <class T>
void run_on_gpu(Data<T>& x, const AttentionPattern& pattern) {
  const DeviceMaps maps(gpu(), pattern, static_cast<int>(x.size.heads), x.size.time,
                        std::max(x.size.qk, x.size.v));
  for (int repeat = 0; repeat < 2; ++repeat) {
    OnGpu<T> d(x);
    launch(gpu().queue, d.forward(maps.maps()));
    launch(gpu().queue, d.backward(maps.maps()));
    gpu().synchronize();
    EXPECT_TRUE(d.y.kept_outside(d.v));
    EXPECT_TRUE(d.gradients.kept_outside(2 * d.q + d.v));
    EXPECT_TRUE(d.lse.kept_outside(x.lse.size()));
    EXPECT_TRUE(d.delta.kept_outside(x.delta.size()));
    const auto y = d.y.get(0, d.v), dq = d.gradients.get(0, d.q), dk = d.gradients.get(d.q, d.q),
               dv = d.gradients.get(2 * d.q, d.v);
    const auto lse = d.lse.get(0, static_cast<std::int64_t>(x.lse.size()));
    if (repeat == 1) {
      EXPECT_TRUE(same_bits(y, x.y) && same_bits(lse, x.lse) && same_bits(dq, x.dq) && same_bits(dk, x.dk) &&
                  same_bits(dv, x.dv))
          << "another run, other bits";
    }
    x.y = y, x.lse = lse, x.dq = dq, x.dk = dk, x.dv = dv;
  }
}

// What rounding of probabilities to T costs beyond the rounding of results, which the CPU form has too.
template <class T>
constexpr double kFloor = 1e-5;
template <>
constexpr double kFloor<f16> = 1.5e-3;
template <>
constexpr double kFloor<bf16> = 1e-2;

template <class T>
void expect_agreement(const AttentionPattern& pattern, const Sizes& size, const std::string& what) {
  SCOPED_TRACE(
      str(what, ", ", name_of(dtype_of<T>), ", n ", size.time, ", heads of ", size.qk, " and ", size.v));
  Data<T> x(size), same(size);
  Data<double> exact(x);
  const HostMaps maps(pattern, static_cast<int>(size.heads), size.time);
  CpuQueue cpu;
  run(cpu, same.forward(maps.maps));
  run(cpu, same.backward(maps.maps));
  run(cpu, exact.forward(maps.maps));
  run(cpu, exact.backward(maps.maps));
  run_on_gpu(x, pattern);
  const auto expect_near = [](const char* name, const auto& got, const auto& rounded, const auto& right) {
    EXPECT_LE(difference(got, right), 3 * difference(rounded, right) + kFloor<T>) << name;
  };
  expect_near("y", x.y, same.y, exact.y);
  EXPECT_LE(difference(x.lse, exact.lse), 1e-5) << "lse";
  expect_near("dq", x.dq, same.dq, exact.dq);
  expect_near("dk", x.dk, same.dk, exact.dk);
  expect_near("dv", x.dv, same.dv, exact.dv);
}

template <class T>
void for_all_patterns() {
  for (const std::int64_t n : {1, 63, 64, 65, 129, 200, 333})
    for (const auto& [name, pattern] : sample_patterns(n, 2))
      expect_agreement<T>(*pattern, {2, n, 2, 64, 64}, name);
}
TEST(CudaAttention, Float32Patterns) { for_all_patterns<float>(); }
TEST(CudaAttention, Float16Patterns) { for_all_patterns<f16>(); }
TEST(CudaAttention, BFloat16Patterns) { for_all_patterns<bf16>(); }

template <class T>
void for_all_sizes() {
  const std::int64_t n = 150;
  const auto pattern = make_pattern({"fixed", 32, 8, 2}, 2);
  for (std::int64_t d = 8; d <= 128; d += 8) expect_agreement<T>(*pattern, {1, n, 2, d, d}, "sizes");
  for (const auto& [qk, v] :
       {std::pair{64, 128}, {32, 64}, {16, 128}, {128, 64}, {128, 24}, {72, 40}, {24, 48}})
    expect_agreement<T>(*pattern, {1, n, 2, qk, v}, "sizes");
}
TEST(CudaAttention, Float32Sizes) { for_all_sizes<float>(); }
TEST(CudaAttention, Float16Sizes) { for_all_sizes<f16>(); }
TEST(CudaAttention, BFloat16Sizes) { for_all_sizes<bf16>(); }

// Walks of many tiles, several blocks, an odd number of tiles.
TEST(CudaAttention, LongWalks) {
  const auto all = make_pattern({"all"}, 1);
  for (const int d : {32, 64, 128}) {
    expect_agreement<bf16>(*all, {1, 1500, 1, d, d}, "long");
    expect_agreement<f16>(*all, {1, 1500, 1, d, d}, "long");
  }
  expect_agreement<float>(*all, {1, 700, 1, 64, 64}, "long");
  expect_agreement<bf16>(*make_pattern({"strided", 96}, 4), {1, 1536, 4, 64, 128}, "columns");
}

// Scores that grow along the row move the reference of the online softmax; large ones must not overflow.
TEST(CudaAttention, LargeGrowingScores) {
  const std::int64_t n = 400;
  const auto pattern = make_pattern({"all"}, 1);
  Data<f16> x({1, n, 1, 32, 32});
  for (std::int64_t t = 0; t < n; ++t)
    for (int d = 0; d < 32; ++d) {
      x.q[t * 32 + d] = f16(2.0f);
      x.k[t * 32 + d] = f16(static_cast<float>(t % 200) / 16 - 4);
    }
  Data<double> exact(x);
  const HostMaps maps(*pattern, 1, n);
  CpuQueue cpu;
  run(cpu, exact.forward(maps.maps));
  run_on_gpu(x, *pattern);
  EXPECT_LE(difference(x.y, exact.y), 3e-3);
  EXPECT_LE(difference(x.lse, exact.lse), 1e-5);
}

template <class T>
void decode_is_the_last_row(double tolerance) {
  const std::int64_t batch = 3, n = 517, heads = 4;
  for (const auto& [name, pattern] : sample_patterns(n, heads)) {
    Data<T> x({batch, n, heads, 24, 72});
    run_on_gpu(x, *pattern);
    OnGpu<T> d(x);
    std::vector<std::int32_t> keys, key_start{0}, group_of_head;
    for (int h = 0; h < heads; ++h) group_of_head.push_back(pattern->group(h));
    for (int g = 0; g < pattern->groups(heads); ++g) {
      int head = 0;
      while (pattern->group(head) != g) ++head;
      pattern->keys_of(head, n - 1, n, keys);
      key_start.push_back(static_cast<std::int32_t>(keys.size()));
    }
    keys.push_back(0);  // so that there is memory to point to
    const auto on_gpu = [](const std::vector<std::int32_t>& values) {
      Tensor t(*gpu().pool, {static_cast<std::int64_t>(values.size())}, DType::i32);
      gpu().upload(t, values.data());
      return t;
    };
    const Tensor key_list = on_gpu(keys), starts = on_gpu(key_start), groups = on_gpu(group_of_head);
    const auto pointer = [](const Tensor& t) { return static_cast<const std::int32_t*>(t.view().data); };
    const AttentionForward f = d.forward({});
    Guarded<T> y(batch, heads * 72), alone(1, heads * 72);
    AttentionDecode decode{{y.data(), dtype_of<T>, batch, 1, heads, 72, heads * 72, heads * 72, 72},
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
    const std::vector<T> together = y.get(0, heads * 72);
    EXPECT_TRUE(y.kept_outside(heads * 72));
    std::vector<T> last;
    for (std::int64_t b = 0; b < batch; ++b)
      last.insert(last.end(), &x.y[(b * n + n - 1) * heads * 72],
                  &x.y[(b * n + n - 1) * heads * 72] + heads * 72);
    EXPECT_LE(difference(together, last), tolerance) << name;
    decode.y.data = alone.data();  // the second sequence alone: the same bits
    for (HeadsView* view : {&decode.q, &decode.k, &decode.v}) view->data = view->template row<T>(1, 0, 0);
    for (HeadsView* view : {&decode.y, &decode.q, &decode.k, &decode.v}) view->batch = 1;
    launch(gpu().queue, decode);
    EXPECT_TRUE(
        same_bits(alone.get(0, heads * 72), {&together[heads * 72], &together[heads * 72] + heads * 72}))
        << name;
  }
}
TEST(CudaAttention, DecodeIsTheLastRowOfForward) {
  decode_is_the_last_row<float>(1e-5);
  decode_is_the_last_row<f16>(5e-3);
  decode_is_the_last_row<bf16>(3e-2);
}

TEST(CudaAttention, WhatDoesNotWorkIsSaid) {
  const auto pattern = make_pattern({"all"}, 1);
  const DeviceMaps maps(gpu(), *pattern, 1, 70, 64);
  const auto message = [&](const AttentionForward& f) -> std::string {
    try {
      launch(gpu().queue, f);
    } catch (const Error& e) { return e.what(); }
    return "";
  };
  const Data<double> f64({1, 70, 1, 16, 16});
  EXPECT_NE(message(OnGpu<double>(f64).forward(maps.maps())).find("takes f32, f16 and bf16"),
            std::string::npos);
  const Data<bf16> odd({1, 70, 1, 20, 20}), large({1, 70, 1, 264, 264}), good({1, 70, 1, 16, 16});
  EXPECT_NE(message(OnGpu<bf16>(odd).forward(maps.maps())).find("the nearest is 24"), std::string::npos);
  EXPECT_NE(message(OnGpu<bf16>(large).forward(maps.maps())).find("the nearest is 256"), std::string::npos);
  const OnGpu<bf16> d(good);
  AttentionForward f = d.forward(maps.maps());
  EXPECT_EQ(message(f), "");
  f.k.data = static_cast<bf16*>(f.k.data) + 1;
  EXPECT_NE(message(f).find("multiples of 16 bytes"), std::string::npos);
}

}  // namespace
}  // namespace weft
#endif
