// SPDX-License-Identifier: MIT
// The definition: softmax over the listed rows of the cache, in wide(T).
#include "kernels/attention/check.h"
#include "kernels/cpu.h"
#include "kernels/sampling/decode_list.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace weft {
namespace {
template <class T>
void put_own_row(const AttentionDecode& d, int64_t b, int64_t h) {
  if (!d.own_row || d.own_row[h] < 0) return;
  std::copy_n(d.new_k.row<const T>(b, 0, h), d.new_k.size, d.k.row<T>(b, d.own_row[h], h));
  std::copy_n(d.new_v.row<const T>(b, 0, h), d.new_v.size, d.v.row<T>(b, d.own_row[h], h));
}

template <class T>
void decode_row(const AttentionDecode& d, int64_t b, int64_t h) {
  using W = wide_t<T>;
  const DecodeList list(d, b, h);
  std::vector<int64_t> keys;
  for (int32_t i = 0; i < list.count; ++i)
    if (!d.first_key || d.key_positions[list.keys + i - d.keys] >= d.first_key.as<int32_t>()[b])
      keys.push_back((d.first_row ? d.first_row[h] : 0) + list.keys[i]);
  std::vector<W> p(keys.size()), y(static_cast<std::size_t>(d.v.size));
  const T* q = d.q.row<const T>(b, 0, h);
  W top = -std::numeric_limits<W>::infinity(), sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const T* k = d.k.row<const T>(b, keys[i], h);
    W s = 0;
    for (int64_t c = 0; c < d.q.size; ++c) s += static_cast<W>(q[c]) * static_cast<W>(k[c]);
    p[i] = static_cast<W>(d.scale) * s;
    top = std::max(top, p[i]);
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    p[i] = std::exp(p[i] - top);
    sum += p[i];
    const T* v = d.v.row<const T>(b, keys[i], h);
    for (int64_t c = 0; c < d.v.size; ++c)
      y[static_cast<std::size_t>(c)] += p[i] * static_cast<W>(v[c]);
  }
  T* out = d.y.row<T>(b, 0, h);
  for (int64_t c = 0; c < d.v.size; ++c)
    out[c] = static_cast<T>(sum == 0 ? W(0) : y[static_cast<std::size_t>(c)] / sum);
}
}  // namespace

void check(const AttentionDecode& d) {
  const auto expect = [&](const char* name, const HeadsView& x, int64_t time, int64_t size) {
    check_heads(name, x, d.q.batch, time, d.q.heads, size, d.q.dtype);
  };
  expect("q", d.q, 1, d.q.size);
  expect("y", d.y, 1, d.v.size);
  expect("k", d.k, d.k.time, d.q.size);
  expect("v", d.v, d.k.time, d.v.size);
  WEFT_CHECK(static_cast<bool>(d.new_k) == static_cast<bool>(d.new_v) &&
                 static_cast<bool>(d.new_k) == static_cast<bool>(d.own_row),
             "attention: new_k, new_v and own_row come together");
  if (d.new_k) expect("new_k", d.new_k, 1, d.q.size);
  if (d.new_v) expect("new_v", d.new_v, 1, d.v.size);
  WEFT_CHECK(!d.first_key || (d.key_positions && d.first_key.size() == d.q.batch &&
                              d.first_key.dtype == DType::i32),
             "attention: first_key must be (", d.q.batch, ") of i32 beside key_positions, got ",
             shape_text(d.first_key), " of ", name_of(d.first_key.dtype));
  WEFT_CHECK(!d.own_list || (!d.first_key && d.own_list.rows() == d.q.batch * d.q.heads &&
                             d.own_count.size() == d.own_list.rows()),
             "attention: own_list ", shape_text(d.own_list), " and own_count ",
             shape_text(d.own_count));
  WEFT_CHECK(d.key_start && d.group_of_head,
             "attention: no lists of keys (key_start, group_of_head)");
}

void compute(CpuQueue&, const AttentionDecode& d) {
  dispatch_float(d.q.dtype, [&]<class T>() {
#pragma omp parallel for collapse(2) if (d.k.batch * d.k.time * d.k.heads * d.k.size > \
                                             kParallelElements)
    for (int64_t b = 0; b < d.q.batch; ++b)
      for (int64_t h = 0; h < d.q.heads; ++h) {
        put_own_row<T>(d, b, h);
        decode_row<T>(d, b, h);
      }
  });
}

void check(const GatherRows& k) {
  WEFT_CHECK(k.y.rank == 3 && k.y.cols() == k.x.size && k.y.dtype == k.x.dtype,
             "gather_rows: y must be (B, R, ", k.x.size, ") of ", name_of(k.x.dtype), ", got ",
             shape_text(k.y), " of ", name_of(k.y.dtype));
  WEFT_CHECK(k.x.batch == 1 && k.x.time * k.x.heads <= INT32_MAX,
             "gather_rows: x must be one text with less than 2^31 rows of heads, got ", k.x.batch,
             " of ", k.x.time, " x ", k.x.heads);
  WEFT_CHECK(k.source || k.y.shape[1] == 0, "gather_rows: no source");
}

void compute(CpuQueue&, const GatherRows& k) {
  const int64_t rows = k.y.shape[1], heads = k.x.heads;
  dispatch_float(k.y.dtype, [&]<class T>() {
    for (int64_t i = 0; i < k.y.rows(); ++i)
      if (const int32_t from = k.source[i % rows]; from >= 0)
        std::copy_n(k.x.row<const T>(0, from / heads, from % heads), k.x.size,
                    k.y.as<T>() + i * k.x.size);
  });
}
}  // namespace weft
