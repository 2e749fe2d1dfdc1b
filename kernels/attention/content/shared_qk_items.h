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

template <class T, int P>
WEFT_ITEM void keys_item(const SharedKeysForward& k, int64_t i) {
  using W = wide_t<T>;
  const Place at(i, k.q.time, k.q.heads);
  Row<W, P> row(row_at<const T>(k.q, at), k.q.size);
  const W scale = k.normed ? W(1) : row.inverse_norm();
#pragma unroll
  for (int d = 0; d < P; ++d)
    if (d < row.size) row.at[d] *= scale;
  row.write(row_at<T>(k.k, at));
}

template <class T, int P>
WEFT_ITEM void keys_backward_item(const SharedKeysBackward& k, int64_t i) {
  using W = wide_t<T>;
  const Place at(i, k.q.time, k.q.heads);
  T *dq = row_at<T>(k.dq, at), *dk = row_at<T>(k.dk, at);
  const Row<W, P> q(row_at<const T>(k.q, at), k.q.size);
  Row<W, P> sum(dk, k.q.size);
  if (!k.normed) {
    const W inverse = q.inverse_norm(),  // shorter queries are only scaled
        along = inverse < W(1) / W(kLeastNorm) ? q.dot(sum) * inverse * inverse : W(0);
#pragma unroll
    for (int d = 0; d < P; ++d)
      if (d < sum.size) sum.at[d] = (sum.at[d] - q.at[d] * along) * inverse;
  }
  const W zeros[8] = {};
#pragma unroll
  for (int d = 0; d < P; d += 8)
    if (d < sum.size) {
      W before[8];
      read_eight(before, dq + d);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum.at[d + e] += before[e];
      write_eight(dk + d, zeros);
    }
  sum.write(dq);
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
  for (int64_t d = 0; d < k.y.size; ++d) row_at<T>(k.y, at)[d] = row_at<const T>(k.v, at)[d];
}

template <class T>
WEFT_ITEM void own_backward_item(const OwnValuesBackward& k, int64_t i) {
  using W = wide_t<T>;
  const Place at = place_in(k, i);
  if (!sees_nothing<T>(k, at)) return;
  T* dv = row_at<T>(k.dv, at);
  for (int64_t d = 0; d < k.dv.size; d += 8) {
    W sum[8], dy[8];
    read_eight(sum, dv + d);
    read_eight(dy, row_at<const T>(k.dy, at) + d);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum[e] += dy[e];
    write_eight(dv + d, sum);
  }
}

template <class Queue>
void in_items(Queue& queue, const SharedKeysForward& k) {
  dispatch(queue, k.q.dtype, [&]<class T>() {
    with_row(k.q.size,
             [&]<int P>() { for_items<keys_item<T, P>>(queue, k, k.q.batch * k.q.time * k.q.heads); });
  });
}
template <class Queue>
void in_items(Queue& queue, const SharedKeysBackward& k) {
  dispatch(queue, k.q.dtype, [&]<class T>() {
    with_row(k.q.size, [&]<int P>() {
      for_items<keys_backward_item<T, P>>(queue, k, k.q.batch * k.q.time * k.q.heads);
    });
  });
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
