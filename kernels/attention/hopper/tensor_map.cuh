// SPDX-License-Identifier: MIT
// Descriptions of tensors for the copy engine (CUDA Driver API, "Tensor Map Object Management").
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.h"

namespace weft::attention::hopper {

// What a launch copies in boxes of `own_run` and `run` rows of 64 columns: the owned side and the stream.
struct Boxes {
  CUtensorMap own_x, own_y, x, y;
  int own_run, run;
};

// The driver's encoder, which programs do not link to; null: a driver that is older than the engine.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
  static const auto encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                               cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) function = nullptr;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return encoder;
}

// Boxes of `run` rows and 64 columns of one (batch, head); what lies outside reads as zeros. false: the
// engine does not take these strides.
inline bool describe(CUtensorMap& map, const HeadsView& x, int run) {
  const auto encode = tensor_map_encoder();
  if (!encode || run < 8) return false;
  const auto u64 = [](std::int64_t v) { return static_cast<cuuint64_t>(v); };
  const cuuint64_t sizes[4] = {u64(x.size), u64(x.time), u64(x.heads), u64(x.batch)};
  const std::int64_t steps[3] = {x.time_stride, x.head_stride, x.batch_stride};
  cuuint64_t strides[3];
  for (int i = 0; i < 3; ++i) {
    if (steps[i] <= 0 && sizes[i + 1] > 1) return false;
    strides[i] = sizes[i + 1] > 1 ? u64(steps[i] * 2) : u64(x.size * 2);  // one step that is never taken
  }
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(run), 1, 1}, every[4] = {1, 1, 1, 1};
  return encode(&map,
                x.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
                x.data, sizes, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// false: rows must be gathered one by one.
inline bool describe(Boxes& boxes, int own_run, const HeadsView& own_x, const HeadsView& own_y, int run,
                     const HeadsView& x, const HeadsView& y) {
  boxes.own_run = own_run;
  boxes.run = run;
  return describe(boxes.own_x, own_x, own_run) && describe(boxes.own_y, own_y, own_run) &&
         describe(boxes.x, x, run) && describe(boxes.y, y, run);
}

}  // namespace weft::attention::hopper
