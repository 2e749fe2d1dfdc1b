// SPDX-License-Identifier: MIT
// Sums over whole tensors, in a fixed order; results stay on the device.
#pragma once

#include "kernels/queue.h"
#include "kernels/step_scalars.h"

#include <cstddef>
#include <vector>

namespace weft {
// y = mean of all elements of x. With `results`, results->loss is set too.
struct MeanForward {
  static constexpr const char* kName = "mean_forward";
  TensorView y;  // (1)  wide type
  TensorView x;  // any shape, wide type
  StepResults* results = nullptr;

  std::vector<TensorView> outputs() const { return {y}; }

  std::vector<TensorView> inputs() const { return {x}; }
};

WEFT_KERNEL(MeanForward);

// dx = dy / size. Without dy, x is the objective, and step->loss_gradient takes the place of dy.
struct MeanBackward {
  static constexpr const char* kName = "mean_backward";
  GradView dx;
  TensorView dy;  // (1) or absent
  const StepScalars* step = nullptr;

  std::vector<TensorView> outputs() const { return {dx.view}; }

  std::vector<TensorView> inputs() const { return {dy}; }
};

WEFT_KERNEL(MeanBackward);

// The order in which CUDA adds up a tensor. SquareSum has it on the CPU too, so f64 bits are equal.
// Lane i of all kBlocks * kLanes lanes adds the groups of kGroup elements i, i + kBlocks * kLanes
// ... A butterfly joins the lanes of each warp; then the warps of a block are added in order. One
// more block adds the sums of the blocks in the same way.
struct SumOrder {
  static constexpr int kGroup = 8, kWarp = 32, kLanes = 256, kBlocks = 1024;
  static constexpr int64_t kTurn = int64_t{kBlocks} * kLanes * kGroup;  // of all lanes at a time
};

// y = sum of x^2 over all elements of all xs. A lane keeps its accumulator from one x to the next.
struct SquareSum {
  static constexpr const char* kName = "square_sum";
  static constexpr std::size_t kMost = 64;
  TensorView y;                // (1)  f64
  std::vector<TensorView> xs;  // flat, wide type, at most kMost

  std::vector<TensorView> outputs() const { return {y}; }

  std::vector<TensorView> inputs() const { return xs; }
};

WEFT_KERNEL(SquareSum);

// Global-norm clipping (Pascanu et al. 2013, arXiv 1211.5063): writes gradient_norm and
// update_scale.
//   norm = gradient_scale * sqrt(sum g^2)
//   update_scale = gradient_scale * min(1, clip / norm), or 0 if norm is not finite
struct ClipCoefficient {
  static constexpr const char* kName = "clip_coefficient";
  StepResults* results = nullptr;
  TensorView gradients = {};  // flat, wide type, or absent
  const StepScalars* step = nullptr;
  double clip = 1.0;        // 0: no clipping
  TensorView squares = {};  // (n)  f64, in place of gradients: sums of g^2 over parts of them

  std::vector<TensorView> inputs() const { return {gradients, squares}; }

  std::vector<TensorView> outputs() const { return {}; }
};

WEFT_KERNEL(ClipCoefficient);

// *sum += the sum of hash(bits, place) over the elements of x, modulo 2^64. As integers are added,
// the order is free. A change of one element always changes the sum; changes of several do except
// with probability 2^-64.
struct Fingerprint {
  static constexpr const char* kName = "fingerprint";
  uint64_t* sum = nullptr;  // in the queue's memory, read and written
  TensorView x;             // any type
  int64_t first = 0;        // place of x[0]

  std::vector<TensorView> outputs() const { return {}; }

  std::vector<TensorView> inputs() const { return {x}; }

  // At each place a bijection of the bits: the finalizer of MurmurHash3 (Appleby 2011).
  static constexpr uint64_t hash(uint64_t bits, uint64_t place) {
    uint64_t h = bits + (place + 1) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
  }
};

WEFT_KERNEL(Fingerprint);

// Calls f.operator()<T>() with the unsigned type of the size of an element.
template <class F>
void dispatch_bits(DType t, F&& f) {
  switch (size_of(t)) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    case 8: return f.template operator()<uint64_t>();
    default: fail("elements of ", size_of(t), " bytes have no type of bits");
  }
}
}  // namespace weft
