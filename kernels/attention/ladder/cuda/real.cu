// SPDX-License-Identifier: MIT
// Rungs 9 and 11 to 13: the real kernels in place. attention::select() finds each of them.
#include "kernels/attention/ladder/cuda/rungs.h"
#include "kernels/attention/select.h"
#include "kernels/device/cuda.cuh"

#include <cstddef>
#include <variant>

namespace weft::ladder::cuda {
namespace {
using attention::Scratch;

// The same problem for the kernels of a form, which go through tables even where the pattern is a
// band.
template <class X>
X by_tables(X x, AttentionForm form) {
  x.form = form;
  x.maps.pass[0].band = {};
  return x;
}

// The same with as much scratch as makes the pass faster, of the queue's workspace.
AttentionBackward with_scratch(AttentionBackward g, const Queue& queue) {
  const int64_t count = wanted_scratch(g, compute_capability(), Scratch::kWhereUsed);
  std::size_t offset = 0;
  if (count == 0) return g;
  float* const first =
      take_workspace<float>(std::get<CudaQueue>(queue), offset, count, "ladder: fused");
  g.scratch = {first, DType::f32, 1, {count, 1, 1, 1, 1}};
  return g;
}
}  // namespace

void ampere_forward(Queue& queue, const AttentionForward& f, const Pattern&) {
  run(std::get<CudaQueue>(queue), by_tables(f, AttentionForm::general));
}

void ampere_backward(Queue& queue, const AttentionBackward& g, const Pattern&) {
  run(std::get<CudaQueue>(queue), by_tables(g, AttentionForm::general));
}

void hopper_forward(Queue& queue, const AttentionForward& f, const Pattern&) {
  run(std::get<CudaQueue>(queue), by_tables(f, AttentionForm::hopper));
}

void hopper_backward(Queue& queue, const AttentionBackward& g, const Pattern&) {
  run(std::get<CudaQueue>(queue), by_tables(g, AttentionForm::hopper));
}

void fused_backward(Queue& queue, const AttentionBackward& g, const Pattern&) {
  run(std::get<CudaQueue>(queue), with_scratch(by_tables(g, AttentionForm::hopper), queue));
}

void band_forward(Queue& queue, const AttentionForward& f, const Pattern&) {
  run(std::get<CudaQueue>(queue), f);
}

void band_backward(Queue& queue, const AttentionBackward& g, const Pattern&) {
  run(std::get<CudaQueue>(queue), with_scratch(g, queue));
}
}  // namespace weft::ladder::cuda
