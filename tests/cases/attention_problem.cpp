// SPDX-License-Identifier: MIT
#include "tests/cases/attention_problem.h"

#include "kernels/attention/definition.h"
#include "kernels/sampling/decode_list.h"

#include <cstddef>
#include <vector>

namespace weft::attention_test {
namespace {
using definition::Matrix;
using definition::Row;

Matrix rows_of(const HeadsView& x, int64_t b, int64_t h) {
  Matrix rows(static_cast<std::size_t>(x.time), Row(static_cast<std::size_t>(x.size)));
  dispatch_float(x.dtype, [&]<class T>() {
    for (int64_t t = 0; t < x.time; ++t)
      for (int64_t d = 0; d < x.size; ++d)
        rows[t][d] = static_cast<double>(static_cast<wide_t<T>>(x.row<T>(b, t, h)[d]));
  });
  return rows;
}

void store(const HeadsView& x, int64_t b, int64_t h, const Matrix& rows) {
  dispatch_float(x.dtype, [&]<class T>() {
    for (int64_t t = 0; t < x.time; ++t)
      for (int64_t d = 0; d < x.size; ++d)
        x.row<T>(b, t, h)[d] = static_cast<T>(static_cast<wide_t<T>>(rows[t][d]));
  });
}

// Numbers of one head in a (B, H, T) tensor.
template <class T>
T* scalars(const TensorView& x, int64_t b, int64_t h) {
  return x.as<T>() + (b * x.shape[1] + h) * x.shape[2];
}

// q, k, v and who attends whom; f: either kernel.
template <class Kernel>
definition::Head head_of(const Kernel& f, const AttentionPattern& pattern, int64_t b, int64_t h) {
  const int32_t *of_query = nullptr, *of_key = nullptr;
  if (f.segments) {
    of_query = f.segments.queries.template as<int32_t>() + b * f.q.time;
    of_key = f.segments.keys.template as<int32_t>() + b * f.k.time;
  }
  const auto attends = [=, &pattern](std::size_t i, std::size_t j) {
    if (of_query && (of_query[i] < 0 || of_query[i] != of_key[j])) return false;
    return pattern.attends(static_cast<int>(h), static_cast<int64_t>(i), static_cast<int64_t>(j));
  };
  return {rows_of(f.q, b, h), rows_of(f.k, b, h), rows_of(f.v, b, h), f.scale, attends};
}
}  // namespace

void by_definition(const AttentionForward& f, const AttentionPattern& pattern) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int64_t b = 0; b < f.q.batch; ++b)
    for (int64_t h = 0; h < f.q.heads; ++h) {
      const definition::Output out = definition::forward(head_of(f, pattern, b, h));
      store(f.y, b, h, out.y);
      dispatch_float(f.lse.dtype, [&]<class W>() {
        for (std::size_t i = 0; i < out.lse.size(); ++i)
          scalars<W>(f.lse, b, h)[i] = static_cast<W>(static_cast<wide_t<W>>(out.lse[i]));
      });
    }
}

void by_definition(const AttentionBackward& g, const AttentionPattern& pattern) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int64_t b = 0; b < g.q.batch; ++b)
    for (int64_t h = 0; h < g.q.heads; ++h) {
      const Matrix dy = rows_of(g.dy, b, h);
      definition::Output out{rows_of(g.y, b, h), Row(dy.size())};
      dispatch_float(g.lse.dtype, [&]<class W>() {
        for (std::size_t i = 0; i < dy.size(); ++i) {
          out.lse[i] = static_cast<double>(static_cast<wide_t<W>>(scalars<W>(g.lse, b, h)[i]));
          scalars<W>(g.delta, b, h)[i] =
              static_cast<W>(static_cast<wide_t<W>>(definition::dot(dy[i], out.y[i])));
        }
      });
      const auto [dq, dk, dv] = definition::backward(head_of(g, pattern, b, h), out, dy);
      store(g.dq, b, h, dq);
      store(g.dk, b, h, dk);
      store(g.dv, b, h, dv);
    }
}

void by_definition(const AttentionDecode& d) {
  CpuQueue queue;
  run(queue, d);
  for (int64_t b = 0; b < d.q.batch; ++b)
    for (int64_t h = 0; h < d.q.heads; ++h) {
      const Matrix keys = rows_of(d.k, b, h), values = rows_of(d.v, b, h);
      const DecodeList list(d, b, h);
      definition::Head one{rows_of(d.q, b, h), {}, {}, d.scale, [](auto...) { return true; }};
      for (int32_t i = 0; i < list.count; ++i) {
        const int64_t row = (d.first_row ? d.first_row[h] : 0) + list.keys[i];
        if (d.first_key && d.key_positions[list.keys + i - d.keys] < d.first_key.as<int32_t>()[b])
          continue;
        one.k.push_back(keys[row]);
        one.v.push_back(values[row]);
      }
      const Matrix nothing(1, Row(static_cast<std::size_t>(d.v.size)));
      store(d.y, b, h, one.k.empty() ? nothing : definition::forward(one).y);
    }
}
}  // namespace weft::attention_test
