// SPDX-License-Identifier: MIT
// The communicator of GPUs, without NCCL's headers.
#pragma once

#include <memory>

#include "src/ranks/communicator.h"

namespace weft {

// `device` is a CUDA device, `group` has two processes or more.
std::unique_ptr<Communicator> make_nccl_communicator(Device& device, ProcessGroup& group);

}  // namespace weft
