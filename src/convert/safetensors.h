// SPDX-License-Identifier: MIT
// safetensors (https://github.com/huggingface/safetensors): the length of the header in 8 bytes,
// the header in JSON, the arrays. Our metadata: the config, the step and which weights these are.
#pragma once

#include "src/files/checkpoint.h"

#include <string>

namespace weft {
// F32 or BF16. Every number of the header is checked against the file before any is used.
WeightsFile safetensors_weights(const std::string& path);

// All arrays of `weights` as f32 or, rounded to nearest even, as bf16. The file appears whole or
// not at all.
void save_safetensors(const std::string& path, const WeightsFile& weights, DType dtype);
}  // namespace weft
