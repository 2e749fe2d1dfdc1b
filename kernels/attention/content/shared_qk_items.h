// SPDX-License-Identifier: MIT
// The definitions of shared_qk.h, for CPU and CUDA: an item is a row, numbered (B, T, H).
#pragma once

#include "kernels/attention/content/items.h"
#include "kernels/attention/content/shared_qk.h"

namespace weft::content {

struct Place {
  int64_t b, t, h;
  WEFT_ITEM Place(int64_t i, int64_t time, int64_t heads)
      : b(i / heads / time), t(i / heads % time), h(i % heads) {}
};
template <class T>
WEFT_ITEM T* row_at(const HeadsView& x, const Place& at) {
  return row_at<T>(x, at.b, at.t, at.h);
}

template <class T>
WEFT_ITEM void keys_item(const SharedKeysForward& k, int64_t i) {
  using W = wide_t<T>;
  const Place at(i, k.q.time, k.q.heads);
  const T* q = row_at<const T>(k.q, at);
  const W scale = k.normed ? W(1) : inverse_norm<W>(q, k.q.size);
  combine_rows<W>(row_at<T>(k.k, at), q, q, k.q.size, [scale](W x, W) { return x * scale; });
}

template <class T>
WEFT_ITEM void keys_backward_item(const SharedKeysBackward& k, int64_t i) {
  using W = wide_t<T>;
  const Place at(i, k.q.time, k.q.heads);
  T *dq = row_at<T>(k.dq, at), *dk = row_at<T>(k.dk, at);
  const T* q = row_at<const T>(k.q, at);
  const W inverse = k.normed ? W(1) : inverse_norm<W>(q, k.q.size);
  const bool scaled = k.normed || inverse >= 1 / W(kLeastNorm);  // by a constant
  const W along = scaled ? W(0) : dot_rows<W>(q, dk, k.q.size) * inverse * inverse;
  combine_rows<W>(dk, dk, q, k.q.size, [=](W du, W x) { return (du - x * along) * inverse; });
  combine_rows<W>(dq, dq, dk, k.q.size, [](W a, W b) { return a + b; });
  combine_rows<W>(dk, dk, dk, k.q.size, [](W, W) { return W(0); });
}

template <class T, class K>
WEFT_ITEM bool sees_nothing(const K& k, const Place& at) {
  return data_of<const wide_t<T>>(k.lse)[(at.b * k.lse.shape[1] + at.h) * k.lse.shape[2] + at.t] ==
         -wide_t<T>(INFINITY);
}
template <class K>
WEFT_ITEM Place place_in(const K& k, int64_t i) {
  Place at(i, k.lse.shape[2], k.heads.count);
  at.h = k.heads.head(at.h);
  return at;
}

template <class T>
WEFT_ITEM void own_item(const OwnValuesForward& k, int64_t i) {
  const Place at = place_in(k, i);
  if (!sees_nothing<T>(k, at)) return;
  const T* v = row_at<const T>(k.v, at);
  for (int64_t d = 0; d < k.y.size; ++d) row_at<T>(k.y, at)[d] = v[d];
}

template <class T>
WEFT_ITEM void own_backward_item(const OwnValuesBackward& k, int64_t i) {
  using W = wide_t<T>;
  const Place at = place_in(k, i);
  if (!sees_nothing<T>(k, at)) return;
  combine_rows<W>(row_at<T>(k.dv, at), row_at<const T>(k.dv, at), row_at<const T>(k.dy, at), k.dv.size,
                  [](W a, W b) { return a + b; });
}

template <class Queue>
void in_items(Queue& queue, const SharedKeysForward& k) {
  dispatch(queue, k.q.dtype,
           [&]<class T>() { for_items<keys_item<T>>(queue, k, k.q.batch * k.q.time * k.q.heads); });
}
template <class Queue>
void in_items(Queue& queue, const SharedKeysBackward& k) {
  dispatch(queue, k.q.dtype,
           [&]<class T>() { for_items<keys_backward_item<T>>(queue, k, k.q.batch * k.q.time * k.q.heads); });
}
template <class Queue>
void in_items(Queue& queue, const OwnValuesForward& k) {
  dispatch(queue, k.y.dtype,
           [&]<class T>() { for_items<own_item<T>>(queue, k, k.y.batch * k.y.time * k.heads.count); });
}
template <class Queue>
void in_items(Queue& queue, const OwnValuesBackward& k) {
  dispatch(queue, k.dv.dtype, [&]<class T>() {
    for_items<own_backward_item<T>>(queue, k, k.dv.batch * k.dv.time * k.heads.count);
  });
}

}  // namespace weft::content
