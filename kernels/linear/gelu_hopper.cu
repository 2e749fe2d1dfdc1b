// SPDX-License-Identifier: MIT
// The Hopper form of LinearGelu, by element type and length of the inner axis.
#include "kernels/linear/gelu_hopper.cuh"

#include "kernels/linear/forms.h"

namespace weft::linear_gelu {
namespace {

// Calls f.operator()<T, kChunks>() with the shortest inner axis that has a kernel.
template <class F>
void with_kernel(DType t, std::int64_t inner, F&& f) {
  const auto of_type = [&]<class T>() {
    if (inner <= 4 * kChunk) return f.template operator()<T, 4>();
    return f.template operator()<T, 8>();
  };
  t == DType::f16 ? of_type.template operator()<__half>() : of_type.template operator()<__nv_bfloat16>();
}

void set(CUtensorMap& map, const TensorView& x, const char* name) {
  describe(map, x, 64, "linear_gelu", name);
}

}  // namespace

void run_hopper(CudaQueue& q, const LinearGeluForward& k) {
  with_kernel(k.x.dtype, k.x.cols(), [&]<class T, int kChunks>() {
    Arguments<T> a{};
    set(a.x, k.x, "x");
    set(a.w, k.w, "w");
    set(a.y, k.y, "y");
    if (k.h) set(a.h, k.h, "h");
    a.bias = k.b.as<T>();
    a.with_h = static_cast<bool>(k.h);
    a.with_y = true;
    schedule(a, k.y.rows(), k.y.cols());
    start<false, kChunks>(q, a);
  });
}

void run_hopper(CudaQueue& q, const LinearGeluBackward& k) {
  with_kernel(k.dy.dtype, k.dy.cols(), [&]<class T, int kChunks>() {
    Arguments<T> a{};
    set(a.x, k.dy, "dy");
    set(a.w, k.w, "w");
    set(a.h, k.h, "h");
    set(a.dh, k.dh, "dh");
    if (k.y) set(a.y, k.y, "y");
    a.bias = k.b.as<T>();
    a.with_y = static_cast<bool>(k.y);
    schedule(a, k.dh.rows(), k.dh.cols());
    std::size_t offset = 0;
    if (k.db) a.partial = take_workspace<float>(q, offset, a.lanes * k.dh.cols(), LinearGeluBackward::kName);
    start<true, kChunks>(q, a);
    if (k.db) launch_sum_partials<1>(q, {{column_sums(k.db)}}, a.partial, a.lanes, k.dh.cols());
  });
}

}  // namespace weft::linear_gelu
