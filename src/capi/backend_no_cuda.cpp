// SPDX-License-Identifier: MIT
// In the place of backend_cuda.cpp where there is no CUDA toolkit.
#include "src/capi/backend.h"

namespace weft::capi {

std::unique_ptr<Backend> make_cuda_backend(int device) {
  unsupported("device ", device, ": this library was built without CUDA; WEFT_CPU works");
}

}  // namespace weft::capi
