// SPDX-License-Identifier: MIT
// Layer normalisation and residual connection on CUDA. One kernel for each direction does both and
// skips what is absent: rows have the same bits fused and alone. A warp holds a row in registers
// and computes its statistics in two passes, in f32. Long or unaligned rows are read again from the
// cache.
#include "kernels/layers/layernorm.h"
#include "kernels/layers/layernorm_backward.cuh"

#include <algorithm>
#include <cstddef>

namespace weft {
using namespace layernorm;

namespace {
constexpr int64_t kMultiprocessors = 132;  // of an H200

// Groups of a lane in a row that a warp holds in registers (1, 2 or 4); 0: the row does not fit.
int groups_of_warp(int64_t cols, bool packed) {
  if (!packed || cols > 4 * kRowOfWarp) return 0;
  return cols <= kRowOfWarp ? 1 : cols <= 2 * kRowOfWarp ? 2 : 4;
}

// Whether the specialised kernel without branches fits: the case of a block in the middle of a
// model.
template <class T>
bool is_whole(const Forward<T>& a, int groups) {
  return a.branch && a.y && a.cols == groups * kRowOfWarp;
}

template <class T>
bool is_whole(const Backward<T>& a, int groups) {
  return a.dy && a.dh && a.dx && !a.add_dx && !a.add_dbranch && a.cols == groups * kRowOfWarp;
}

// f.operator()<kGroups, kWhole>() for rows that a warp holds in registers.
template <class F>
void dispatch_row(int groups, bool whole, F&& f) {
  const auto of = [&]<int kGroups>() {
    if (whole) return f.template operator()<kGroups, true>();
    f.template operator()<kGroups, false>();
  };
  if (groups == 1) of.template operator()<1>();
  if (groups == 2) of.template operator()<2>();
  if (groups == 4) of.template operator()<4>();
}

template <class T>
void launch_forward(CudaQueue& q, const Forward<T>& a) {
  const unsigned blocks = blocks_for(a.rows, kWarps);
  const int groups = groups_of_warp(a.cols, a.packed);
  dispatch_row(groups, is_whole(a, groups), [&]<int kGroups, bool kWhole>() {
    const unsigned resident = kMultiprocessors * kForwardBlocksOfSm<T, kGroups>;
    forward_in_registers<T, kGroups, kWhole>
        <<<std::min(blocks, resident), kThreads, 0, q.stream>>>(a);
  });
  if (groups == 0 && a.packed) forward_any_length<T, true><<<blocks, kThreads, 0, q.stream>>>(a);
  if (groups == 0 && !a.packed) forward_any_length<T, false><<<blocks, kThreads, 0, q.stream>>>(a);
}

template <class T>
void launch_backward(CudaQueue& q, Backward<T> a, const SumTargets<kSums>& sums,
                     const char* kernel) {
  const int groups = groups_of_warp(a.cols, a.packed);
  int64_t of_sm = 4;
  dispatch_row(groups, false, [&]<int kGroups, bool>() { of_sm = kBlocksOfSm<T, kGroups>; });
  const int64_t rows_of_block = groups ? kWarps : 1;
  const int64_t room =  // for partial sums
      static_cast<int64_t>(kWorkspaceBytes / sizeof(float)) / std::max<int64_t>(kSums * a.cols, 1);
  const int64_t blocks =
      std::min({of_sm * kMultiprocessors, (a.rows + rows_of_block - 1) / rows_of_block, room});
  std::size_t offset = 0;
  a.partial = take_workspace<float>(q, offset, blocks * kSums * a.cols, kernel);
  const auto grid = static_cast<unsigned>(blocks);
  if (blocks > 0) {
    dispatch_row(groups, is_whole(a, groups), [&]<int kGroups, bool kWhole>() {
      constexpr int kBytes = sizeof(Ring<T, kGroups>);
      const auto rows = backward_in_registers<T, kGroups, kWhole>;
      WEFT_CUDA_CHECK(
          cudaFuncSetAttribute(rows, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
      rows<<<grid, kThreads, kBytes, q.stream>>>(a);
    });
    if (groups == 0 && a.packed) backward_any_length<T, true><<<grid, kThreads, 0, q.stream>>>(a);
    if (groups == 0 && !a.packed) backward_any_length<T, false><<<grid, kThreads, 0, q.stream>>>(a);
  }
  if (sums.of[0].out || sums.of[1].out || sums.of[2].out)
    launch_sum_partials(q, sums, a.partial, blocks, a.cols);
}

// Without a branch h is x, and is not written.
void start(CudaQueue& q, const ResidualForward& k) {
  if (k.x.size() == 0) return;
  const bool packed =
      k.x.cols() % kGroup == 0 && aligned16(k.x, k.h, k.y, k.branch, k.bias, k.w, k.b);
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    launch_forward(q, Forward<T>{
                          .h = k.h.or_null<T>(),
                          .y = k.y.or_null<T>(),
                          .x = k.x.as<T>(),
                          .branch = k.branch.or_null<T>(),
                          .bias = k.bias.or_null<T>(),
                          .mean = k.mean.or_null<float>(),
                          .rstd = k.rstd.or_null<float>(),
                          .w = k.w.or_null<float>(),
                          .b = k.b.or_null<float>(),
                          .rows = k.x.rows(),
                          .cols = k.x.cols(),
                          .eps = static_cast<float>(k.eps),
                          .dropout = dropout_call(k.p, k.site, k.step, k.x.cols()),
                          .packed = packed,
                      });
  });
}

// residual: whether there is a branch to send the gradient to.
void start(CudaQueue& q, const ResidualBackward& k, bool residual, const char* kernel) {
  const TensorView& shaped = k.dy ? k.dy : k.dh;
  const bool packed = shaped.cols() % kGroup == 0 &&
                      aligned16(k.dy, k.dh, k.h, k.dx.view, k.dbranch.view, k.y, k.w, k.b);
  dispatch_cuda(shaped.dtype, [&]<class T>() {
    const Backward<T> a = {
        .dx = k.dx.view.or_null<T>(),
        .dbranch = k.dbranch.view.or_null<T>(),
        .y = k.y.or_null<T>(),
        .dy = k.dy.or_null<T>(),
        .h = k.h.or_null<T>(),
        .dh = k.dh.or_null<T>(),
        .mean = k.mean.or_null<float>(),
        .rstd = k.rstd.or_null<float>(),
        .w = k.w.or_null<float>(),
        .b = k.b.or_null<float>(),
        .partial = nullptr,
        .rows = shaped.rows(),
        .cols = shaped.cols(),
        .dropout = dropout_call(k.p, k.site, k.step, shaped.cols()),
        .packed = packed,
        .add_dx = k.dx.accumulate,
        .add_dbranch = k.dbranch.accumulate,
        .residual = residual,
    };
    launch_backward(q, a, {{column_sums(k.dw), column_sums(k.db), column_sums(k.dbias)}}, kernel);
  });
}
}  // namespace

void compute(CudaQueue& q, const LayerNormForward& k) {
  ResidualForward fused = {};
  fused.y = k.y, fused.mean = k.mean, fused.rstd = k.rstd;
  fused.x = k.x, fused.w = k.w, fused.b = k.b, fused.eps = k.eps;
  start(q, fused);
}

void compute(CudaQueue& q, const ResidualForward& k) { start(q, k); }

void compute(CudaQueue& q, const LayerNormBackward& k) {
  ResidualBackward fused = {};
  fused.dx = k.dx, fused.dw = k.dw, fused.db = k.db;
  fused.dy = k.dy, fused.h = k.x, fused.mean = k.mean, fused.rstd = k.rstd, fused.w = k.w;
  start(q, fused, false, LayerNormBackward::kName);
}

void compute(CudaQueue& q, const ResidualBackward& k) {
  start(q, k, true, ResidualBackward::kName);
}
}  // namespace weft
