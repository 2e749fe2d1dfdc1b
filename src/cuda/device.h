// SPDX-License-Identifier: MIT
// What device.cpp needs of the CUDA side, without CUDA's headers.
#pragma once

#include <memory>

#include "src/device.h"

namespace weft {

int cuda_device_count();  // 0 without a GPU or a driver
std::unique_ptr<Device> make_cuda_device(int index);

}  // namespace weft
