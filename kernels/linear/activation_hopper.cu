// SPDX-License-Identifier: MIT
// The Hopper form of LinearActivation, by element type, activation and length of the inner axis.
#include "kernels/linear/activation_hopper.cuh"

#include "kernels/linear/forms.h"

namespace weft::linear_activation {
namespace {

// Calls body.operator()<T, kF, kChunks>() with the shortest inner axis that has a kernel.
template <class Body>
void with_kernel(DType t, Activation f, std::int64_t inner, Body&& body) {
  const auto of_type = [&]<class T>() {
    dispatch_activation(f, [&]<Activation kF>() {
      if (inner <= 4 * kChunk) return body.template operator()<T, kF, 4>();
      return body.template operator()<T, kF, 8>();
    });
  };
  t == DType::f16 ? of_type.template operator()<__half>() : of_type.template operator()<__nv_bfloat16>();
}

void set(CUtensorMap& map, const TensorView& x, const char* name) {
  describe(map, x, 64, "linear_activation", name);
}

}  // namespace

void run_hopper(CudaQueue& q, const LinearActivationForward& k) {
  with_kernel(k.x.dtype, k.f, k.x.cols(), [&]<class T, Activation kF, int kChunks>() {
    Arguments<T> a{};
    set(a.x, k.x, "x");
    set(a.w, k.w, "w");
    set(a.y, k.y, "y");
    if (k.h) set(a.h, k.h, "h");
    a.bias = k.b.as<T>();
    a.with_h = static_cast<bool>(k.h);
    a.with_y = true;
    schedule(a, k.y.rows(), k.y.cols());
    start<kF, false, kChunks>(q, a);
  });
}

void run_hopper(CudaQueue& q, const LinearActivationBackward& k) {
  with_kernel(k.dy.dtype, k.f, k.dy.cols(), [&]<class T, Activation kF, int kChunks>() {
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
    if (k.db)
      a.partial = take_workspace<float>(q, offset, a.lanes * k.dh.cols(), LinearActivationBackward::kName);
    start<kF, true, kChunks>(q, a);
    if (k.db) launch_sum_partials<1>(q, {{column_sums(k.db)}}, a.partial, a.lanes, k.dh.cols());
  });
}

}  // namespace weft::linear_activation
