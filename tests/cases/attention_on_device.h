// SPDX-License-Identifier: MIT
// Problems on a device, in guarded memory: forms that cover a case, and what they may err.
#pragma once

#include "kernels/attention/documents.h"
#include "kernels/attention/select.h"
#include "tests/cases/attention_problem.h"
#include "tests/cases/guarded.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace weft::attention_test {
inline Tensor on_device(Device& device, const std::vector<int32_t>& values) {
  Tensor t(*device.pool, {std::ssize(values)}, DType::i32);
  device.upload(t, values.data());
  return t;
}

// `x` on a device, with spare columns; k and v (and their gradients) lie side by side.
template <class T>
struct OnDevice {
  static constexpr int64_t kSpare = 8;
  Device& device;
  Sizes s;
  int64_t keys = s.lengths().keys, rows = s.batch * s.time, key_rows = s.batch * keys;
  int64_t qk = s.heads * s.qk, v = s.heads * s.v;  // columns
  GuardedMatrix<T> q{device, rows, qk + kSpare}, k_v{device, key_rows, qk + v + kSpare},
      dq{device, rows, qk + kSpare}, dk_dv{device, key_rows, qk + v + kSpare},
      y{device, rows, v + kSpare}, dy{device, rows, v + kSpare};
  GuardedMatrix<wide_t<T>> lse{device, 1, s.batch* s.heads* s.time},
      delta{device, 1, s.batch* s.heads* s.time};
  Tensor query_segments, key_segments, tables, made;
  bool starts;  // the segments are starts of documents
  std::optional<GuardedMatrix<float>> scratch;
  AttentionForm form;

  OnDevice(Device& on, const Data<T>& x)
      : device(on),
        s(x.size),
        starts(x.segments_are_starts()),
        form(x.form) {
    q.put(0, qk, x.q);
    k_v.put(0, qk, x.k);
    k_v.put(qk, v, x.v);
    dy.put(0, v, x.dy);
    if (!x.query_segments.empty())
      query_segments = on_device(device, x.query_segments),
      key_segments = on_device(device, x.key_segments);
  }

  HeadsView heads(const GuardedMatrix<T>& m, int64_t time, int64_t first, int64_t size) const {
    return {m.data() + first,   dtype_of<T>, s.batch, time, s.heads, size,
            time * m.columns(), m.columns(), size};
  }

  TensorView scalars(const GuardedMatrix<wide_t<T>>& m) const {
    return {m.data(), wide(dtype_of<T>), 3, {s.batch, s.heads, s.time, 1, 1}};
  }

  Segments segments() const {
    if (!query_segments || tables) return {};
    return {{query_segments.view().data, DType::i32, 2, {s.batch, s.time, 1, 1, 1}},
            {key_segments.view().data, DType::i32, 2, {s.batch, keys, 1, 1, 1}}};
  }

  // Maps of each sequence's own, which stand for the segments from here on. For as many keys as
  // queries.
  AttentionMaps part(const AttentionMaps& maps) {
    const TensorView numbers = segments().queries;
    tables = Tensor(*device.pool, {SegmentMaps::table_size(maps, s.batch, starts ? s.time : 0)},
                    DType::i32);
    made = Tensor(*device.pool, {maps.passes * s.batch * maps.groups * int64_t{sizeof(TileMap)}},
                  DType::u8);
    const SegmentMaps k{tables, static_cast<TileMap*>(made.view().data), maps, numbers, starts};
    launch(device.queue, k);
    return k.result();
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
    return backward_of(forward(maps), heads(dq, s.time, 0, s.qk), heads(dk_dv, keys, 0, s.qk),
                       heads(dk_dv, keys, qk, s.v), scalars(delta), heads(dy, s.time, 0, s.v));
  }

  // The same with scratch where that makes a difference, whether it gains or loses time.
  AttentionBackward backward_with_scratch(const AttentionMaps& maps) {
    AttentionBackward g = backward(maps);
    if (!device.is_cuda()) return g;
    const int64_t elements =
        attention::wanted_scratch(g, device.compute_capability, attention::Scratch::kWhereUsed);
    if (elements == 0) return g;
    scratch.emplace(device, 1, elements);
    g.scratch = {scratch->data(), DType::f32, 1, {elements, 1, 1, 1, 1}};
    return g;
  }

  // Takes the results over into x.
  void fetch(Data<T>& x) const {
    x.y = y.get(0, v), x.dq = dq.get(0, qk), x.dk = dk_dv.get(0, qk), x.dv = dk_dv.get(qk, v);
    x.lse = lse.get(0, lse.columns());
  }

  // The outputs around which something was written; "" as it should be.
  std::string written_beside() const {
    std::string names;
    const auto look = [&](const char* name, const auto& m, int64_t used) {
      if (!m.kept_outside(used)) names += str(names.empty() ? "" : ", ", name);
    };
    look("y", y, v), look("dq", dq, qk), look("dk, dv", dk_dv, qk + v);
    look("lse", lse, lse.columns()), look("delta", delta, delta.columns());
    if (scratch) look("scratch", *scratch, scratch->columns());
    return names;
  }
};

template <class T>
bool same_results(const Data<T>& a, const Data<T>& b) {
  return same_bits(a.y, b.y) && same_bits(a.lse, b.lse) && same_bits(a.dq, b.dq) &&
         same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv);
}

// The forms other than `automatic` that cover all passes of a case; the CPU has one.
inline std::vector<AttentionForm> forms_on(const Device& device, DType dtype, const Sizes& size,
                                           const AttentionMaps& maps, bool segments) {
  if (!device.is_cuda()) return {AttentionForm::automatic};
  std::vector<AttentionForm> forms;
  for (const AttentionForm form :
       {AttentionForm::simple, AttentionForm::general, AttentionForm::hopper}) {
    const attention::Problem problem{
        .form = form,
        .dtype = dtype,
        .batch = size.batch,
        .heads = size.heads,
        .time = size.time,
        .qk_size = size.qk,
        .v_size = size.v,
        .segments = segments,
    };
    try {
      for (int p = 0; p < maps.passes; ++p)
        static_cast<void>(attention::select(problem, maps.pass[p], device.compute_capability));
      forms.push_back(form);
    } catch (const Error&) {}
  }
  return forms;
}

// What a form may err beyond twice the CPU form's error in the same type, relative to the largest
// number: f32 sums in another order, 2^-24 for some tens of terms. Tensor-core forms also round
// probabilities and score gradients to T: three units of 2^-11 or 2^-9 where one key has nearly all
// the weight.
template <class T>
double floor_of(AttentionForm form) {
  if (dtype_of<T> == DType::f64) return 1e-13;
  if (form == AttentionForm::simple || form == AttentionForm::automatic ||
      dtype_of<T> == DType::f32)
    return 3e-6;  // automatic: the CPU's
  return dtype_of<T> == DType::f16 ? 1.5e-3 : 6e-3;
}
}  // namespace weft::attention_test
