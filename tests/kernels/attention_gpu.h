// SPDX-License-Identifier: MIT
// What the attention tests on CUDA share: buffers with poison and guard bands, the same problem on the GPU in
// strided views, which forms cover a case, and the comparison with the CPU.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/attention_forms.h"
#include "src/attention_maps.h"
#include "tests/kernels/attention_case.h"

namespace weft::attention_test {

inline Device& gpu() {
  static const std::unique_ptr<Device> device = make_device("cuda");
  return *device;
}

// 80, 90, ...
inline int compute_capability() {
  int device = 0, major = 0, minor = 0;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), cudaSuccess);
  return 10 * major + minor;
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
  std::int64_t columns() const { return columns_; }
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

inline Tensor on_gpu(const std::vector<std::int32_t>& values) {
  Tensor t(*gpu().pool, {static_cast<std::int64_t>(values.size())}, DType::i32);
  gpu().upload(t, values.data());
  return t;
}

// PackedMaps on the GPU, with tiles of a given edge.
struct GpuMaps {
  Tensor memory;
  AttentionMaps maps;
  GpuMaps(const AttentionPattern& pattern, int heads, Lengths n, std::int64_t head_size, int edge = kBest) {
    const PackedMaps packed(pattern, heads, n, head_size, edge);
    std::vector<char> image(packed.bytes());
    memory = Tensor(*gpu().pool, {static_cast<std::int64_t>(packed.bytes())}, DType::u8);
    maps = packed.write(image.data(), memory.view().data);
    gpu().upload(memory, image.data());
  }
};

// The inputs of `x` on the GPU: k and v (and their gradients) side by side, q, y and dy alone, all with spare
// columns.
template <class T>
struct OnGpu {
  static constexpr std::int64_t kSpare = 8;
  Sizes s;
  std::int64_t keys = s.lengths().keys, rows = s.batch * s.time, key_rows = s.batch * keys;
  std::int64_t qk = s.heads * s.qk, v = s.heads * s.v;  // columns
  Guarded<T> q{rows, qk + kSpare}, k_v{key_rows, qk + v + kSpare}, dq{rows, qk + kSpare},
      dk_dv{key_rows, qk + v + kSpare}, y{rows, v + kSpare}, dy{rows, v + kSpare};
  Guarded<float> lse{1, s.batch*s.heads*s.time}, delta{1, s.batch*s.heads*s.time};
  Tensor query_segments, key_segments;
  AttentionForm form;

  explicit OnGpu(const Data<T>& x) : s(x.size), form(x.form) {
    q.put(0, qk, x.q);
    k_v.put(0, qk, x.k);
    k_v.put(qk, v, x.v);
    dy.put(0, v, x.dy);
    if (!x.query_segments.empty())
      query_segments = on_gpu(x.query_segments), key_segments = on_gpu(x.key_segments);
  }
  HeadsView heads(const Guarded<T>& m, std::int64_t time, std::int64_t first, std::int64_t size) const {
    return {m.data() + first,   dtype_of<T>, s.batch, time, s.heads, size,
            time * m.columns(), m.columns(), size};
  }
  TensorView scalars(const Guarded<float>& m) const {
    return {m.data(), wide(dtype_of<T>), 3, {s.batch, s.heads, s.time, 1, 1}};
  }
  Segments segments() const {
    if (!query_segments) return {};
    return {{query_segments.view().data, DType::i32, 2, {s.batch, s.time, 1, 1, 1}},
            {key_segments.view().data, DType::i32, 2, {s.batch, keys, 1, 1, 1}}};
  }
  AttentionForward forward(const AttentionMaps& maps) const {
    return {heads(y, s.time, 0, s.v),
            scalars(lse),
            heads(q, s.time, 0, s.qk),
            heads(k_v, keys, 0, s.qk),
            heads(k_v, keys, qk, s.v),
            maps,
            1 / std::sqrt(static_cast<double>(s.qk)),
            segments(),
            form};
  }
  AttentionBackward backward(const AttentionMaps& maps) const {
    const AttentionForward f = forward(maps);
    return {heads(dq, s.time, 0, s.qk),
            heads(dk_dv, keys, 0, s.qk),
            heads(dk_dv, keys, qk, s.v),
            scalars(delta),
            heads(dy, s.time, 0, s.v),
            f.y,
            f.lse,
            f.q,
            f.k,
            f.v,
            maps,
            f.scale,
            f.segments,
            form};
  }
  // Takes the results over into x.
  void fetch(Data<T>& x) const {
    x.y = y.get(0, v), x.dq = dq.get(0, qk), x.dk = dk_dv.get(0, qk), x.dv = dk_dv.get(qk, v);
    x.lse = lse.get(0, lse.columns());
  }
  void expect_nothing_written_beside() const {
    EXPECT_TRUE(y.kept_outside(v));
    EXPECT_TRUE(dq.kept_outside(qk));
    EXPECT_TRUE(dk_dv.kept_outside(qk + v));
    EXPECT_TRUE(lse.kept_outside(lse.columns()));
    EXPECT_TRUE(delta.kept_outside(delta.columns()));
  }
};

template <class T>
bool same_results(const Data<T>& a, const Data<T>& b) {
  return same_bits(a.y, b.y) && same_bits(a.lse, b.lse) && same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) &&
         same_bits(a.dv, b.dv);
}

// Runs forward and backward of x on the GPU, twice: what comes back is in x; same bits, nothing written
// beside.
template <class T>
void run_on_gpu(Data<T>& x, const AttentionMaps& maps) {
  Data<T> first = x;
  for (Data<T>* result : {&first, &x}) {
    const OnGpu<T> d(x);
    launch(gpu().queue, d.forward(maps));
    launch(gpu().queue, d.backward(maps));
    gpu().synchronize();
    d.expect_nothing_written_beside();
    d.fetch(*result);
  }
  EXPECT_TRUE(same_results(first, x)) << "another run, other bits";
}

// The forms other than `automatic` that cover all passes of a case.
inline std::vector<AttentionForm> forms_for(DType dtype, const Sizes& size, const AttentionMaps& maps,
                                            bool segments) {
  std::vector<AttentionForm> forms;
  for (const AttentionForm form : {AttentionForm::simple, AttentionForm::general, AttentionForm::hopper}) {
    try {
      for (int p = 0; p < maps.passes; ++p)
        attention::choose_form(form, dtype, maps.pass[p].edge, size.qk, size.v, segments,
                               compute_capability());
      forms.push_back(form);
    } catch (const Error&) {}
  }
  return forms;
}

// What a form may err beyond twice the error of the CPU form in the same type, relative to the largest
// number. Sums in f32 in another order: units of 2^-24 for each of some tens of terms. The tensor-core forms
// also round probabilities and score gradients to T: three units of 2^-11 or 2^-9 where one key has nearly
// all the weight.
template <class T>
double floor_of(AttentionForm form) {
  if (form == AttentionForm::simple || dtype_of<T> == DType::f32) return 3e-6;
  return dtype_of<T> == DType::f16 ? 1.5e-3 : 6e-3;
}

// How to run a problem: the edge of the tiles, and documents.
struct GpuCase {
  Sizes size;
  int edge = kBest;
  bool documents = false;
};

// y, lse and gradients of each form that covers the case, against f64.
template <class T>
void expect_agreement(const AttentionPattern& pattern, const GpuCase& c, const std::string& what) {
  const int heads = static_cast<int>(c.size.heads);
  Data<T> same(c.size);
  if (c.documents) same.pack_documents();
  Data<double> exact(same);
  const std::int64_t head_size = std::max(c.size.qk, c.size.v);
  const HostMaps host(pattern, heads, c.size.lengths(), head_size, c.edge);
  CpuQueue cpu;
  run(cpu, same.forward(host.maps));
  run(cpu, same.backward(host.maps));
  run(cpu, exact.forward(host.maps));
  run(cpu, exact.backward(host.maps));
  const GpuMaps maps(pattern, heads, c.size.lengths(), head_size, c.edge);
  const auto forms = forms_for(dtype_of<T>, c.size, maps.maps, c.documents);
  EXPECT_FALSE(forms.empty());
  for (const AttentionForm form : forms) {
    SCOPED_TRACE(str(what, ", ", name_of(form), ", ", name_of(dtype_of<T>), ", n ", c.size.time, ", keys ",
                     c.size.lengths().keys, ", heads of ", c.size.qk, " and ", c.size.v, ", edge ", c.edge,
                     c.documents ? ", documents" : ""));
    Data<T> x(c.size);
    x.query_segments = same.query_segments, x.key_segments = same.key_segments, x.form = form;
    run_on_gpu(x, maps.maps);
    const auto expect_near = [&](const char* name, const auto& got, const auto& rounded, const auto& right) {
      EXPECT_LE(difference(got, right), 2 * difference(rounded, right) + floor_of<T>(form)) << name;
    };
    expect_near("y", x.y, same.y, exact.y);
    EXPECT_LE(difference(x.lse, exact.lse), 1e-5) << "lse";
    expect_near("dq", x.dq, same.dq, exact.dq);
    expect_near("dk", x.dk, same.dk, exact.dk);
    expect_near("dv", x.dv, same.dv, exact.dv);
  }
}

}  // namespace weft::attention_test
