// SPDX-License-Identifier: MIT
// Calls of the CUDA runtime, checked: a failure is an Error with the statement and CUDA's words.
#pragma once

#include <cuda_runtime.h>

#include "kernels/view.h"

#define WEFT_CUDA_CALL(call)                                                                                \
  do {                                                                                                      \
    if (const cudaError_t result_ = (call); result_ != cudaSuccess)                                         \
      ::weft::fail("CUDA: ", cudaGetErrorString(result_), " (", cudaGetErrorName(result_), ") in ", #call); \
  } while (0)
