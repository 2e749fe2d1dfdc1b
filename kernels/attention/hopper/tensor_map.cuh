// SPDX-License-Identifier: MIT
// Tensor maps of heads (CUDA Driver API, "Tensor Map Object Management").
#pragma once

#include "kernels/attention/direction.cuh"
#include "kernels/device/tma.cuh"

namespace weft::attention::hopper {

// select() asks first whether TMA takes the strides of the tensors.
inline constexpr const char* kTmaRefuses =
    "attention: TMA does not take these tensors, or the driver is older than CUDA 12";

// The tensors of a launch, in boxes of `own_run` and `run` rows of 64 columns: the stationary and the
// streamed side.
struct TensorMaps {
  CUtensorMap own_x, own_y, x, y;
  int own_run, run;
};

// Boxes of `run` rows and 64 columns of one (batch, head); what lies outside reads as zeros. false: TMA does
// not take these strides.
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
inline bool describe(TensorMaps& tensor_maps, int own_run, const HeadsView& own_x, const HeadsView& own_y,
                     int run, const HeadsView& x, const HeadsView& y) {
  tensor_maps.own_run = own_run;
  tensor_maps.run = run;
  return describe(tensor_maps.own_x, own_x, own_run) && describe(tensor_maps.own_y, own_y, own_run) &&
         describe(tensor_maps.x, x, run) && describe(tensor_maps.y, y, run);
}

}  // namespace weft::attention::hopper
