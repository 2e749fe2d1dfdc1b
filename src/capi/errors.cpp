// SPDX-License-Identifier: MIT
#include "src/capi/errors.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace weft::capi {
namespace {
thread_local char text_of_thread[2048] = "";
}  // namespace

weft_status failed(weft_status status, const char* text) noexcept {
  const std::size_t length = std::min(std::strlen(text), sizeof(text_of_thread) - 1);
  std::memcpy(text_of_thread, text, length);
  text_of_thread[length] = 0;
  return status;
}

const char* last_error() noexcept { return text_of_thread; }
}  // namespace weft::capi
