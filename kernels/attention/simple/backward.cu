// SPDX-License-Identifier: MIT
// The simple backward pass: a query-stationary kernel for dQ, a key-stationary one for dK and dV.
#include "kernels/attention/simple/simple.cuh"

#include <algorithm>

namespace weft::attention::simple {
namespace {
template <class S>
__global__ void __launch_bounds__(kSimpleThreads, S::kBlocks)
    rows_kernel(const __grid_constant__ AttentionBackward g, const AttentionPass pass) {
  extern __shared__ __align__(128) float memory[];
  float *q = memory, *dy = q + S::kMatrix, *k = dy + S::kMatrix, *v = k + S::kMatrix,
        *weights = v + S::kMatrix;
  const BlockIndex place(g.q);
  const TileMap& map = pass.maps[g.maps.map_of(place.b, place.h)];
  const Direction rows = Direction::query_stationary(map);
  const Strip<S> own(rows, place.rank);
  if (own.tile < 0 || (map.accumulate && !own.has_pairs())) return;
  gather<S>(q, g.q, place, own.order());
  gather<S>(dy, g.dy, place, own.order());
  const float scale = static_cast<float>(g.scale);
  typename S::RowScalars lse, delta, scales;
#pragma unroll
  for (int i = 0; i < S::kRowsOfThread; ++i) {
    const int position = own.order()[S::first_row() + i];
    lse[i] = scalar(g.lse, place, position);
    delta[i] = scalar(g.delta, place, position);
    scales[i] = scale;
  }
  typename S::RowSums dq;
  clear<S>(dq);
  own.for_each_partner(
      place, g.segments.queries, g.segments.keys, [&](const int32_t* order, auto&& attended) {
        gather<S>(k, g.k, place, order);
        gather<S>(v, g.v, place, order);
        __syncthreads();
        typename S::Scores s, ds;
        multiply_transposed<S>(s, q, k);
        multiply_transposed<S>(ds, dy, v);
#pragma unroll
        for (int i = 0; i < S::kRowsOfThread; ++i)
#pragma unroll
          for (int j = 0; j < S::kColumnsOfThread; ++j)
            ds[i][j] =
                attended(i, j) ? expf(s[i][j] * scale - lse[i]) * (ds[i][j] - delta[i]) : 0.0f;
        put_weights<S>(weights, ds);
        __syncwarp();
        multiply_add<S>(dq, weights, k);
      });
  store_rows<S>(g.dq, place, own.order(), dq, scales, map.accumulate);
}

template <class S>
__global__ void __launch_bounds__(kSimpleThreads, S::kBlocks)
    columns_kernel(const __grid_constant__ AttentionBackward g, const AttentionPass pass) {
  extern __shared__ __align__(128) float memory[];
  float *k = memory, *v = k + S::kMatrix, *q = v + S::kMatrix, *dy = q + S::kMatrix,
        *weights = dy + S::kMatrix;
  const BlockIndex place(g.q);
  const TileMap& map = pass.maps[g.maps.map_of(place.b, place.h)];
  const Direction columns = Direction::key_stationary(map);
  const Strip<S> own(columns, place.rank);
  if (own.tile < 0 || (map.accumulate && !own.has_pairs())) return;
  gather<S>(k, g.k, place, own.order());
  gather<S>(v, g.v, place, own.order());
  const float scale = static_cast<float>(g.scale);
  typename S::RowSums dk, dv;
  clear<S>(dk);
  clear<S>(dv);
  own.for_each_partner(place, g.segments.keys, g.segments.queries,
                       [&](const int32_t* order, auto&& attended) {
                         gather<S>(q, g.q, place, order);
                         gather<S>(dy, g.dy, place, order);
                         __syncthreads();
                         typename S::Scores p, ds;
                         multiply_transposed<S>(p, k, q);
                         multiply_transposed<S>(ds, v, dy);
#pragma unroll
                         for (int j = 0; j < S::kColumnsOfThread; ++j) {
                           const int position = order[column_thread() + j * kColumnThreads];
                           const float lse = scalar(g.lse, place, position),
                                       delta = scalar(g.delta, place, position);
#pragma unroll
                           for (int i = 0; i < S::kRowsOfThread; ++i) {
                             p[i][j] = attended(i, j) ? expf(p[i][j] * scale - lse) : 0.0f;
                             ds[i][j] = attended(i, j) ? p[i][j] * (ds[i][j] - delta) : 0.0f;
                           }
                         }
                         put_weights<S>(weights, p);
                         __syncwarp();
                         multiply_add<S>(dv, weights, dy);
                         __syncwarp();
                         put_weights<S>(weights, ds);
                         __syncwarp();
                         multiply_add<S>(dk, weights, q);
                       });
  typename S::RowScalars scales, ones;
#pragma unroll
  for (int i = 0; i < S::kRowsOfThread; ++i) scales[i] = scale, ones[i] = 1;
  store_rows<S>(g.dk, place, own.order(), dk, scales, map.accumulate);
  store_rows<S>(g.dv, place, own.order(), dv, ones, map.accumulate);
}
}  // namespace

void launch_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  with_simple(g.q.dtype, std::max(g.q.size, g.v.size), pass.edge, [&]<class S>() {
    start(queue, rows_kernel<S>, blocks_for(g.q, int64_t{S::kStrips} * pass.query_tiles, 1),
          kSimpleThreads, S::bytes(4), g, pass);
    start(queue, columns_kernel<S>, blocks_for(g.q, int64_t{S::kStrips} * pass.key_tiles, 1),
          kSimpleThreads, S::bytes(4), g, pass);
  });
}
}  // namespace weft::attention::simple
