// SPDX-License-Identifier: MIT
// The last words of a process that fails.
#pragma once

#include <string>

namespace weft {

// "error: <what>" as one line, written at once: to the open file descriptor that WEFT_ERROR_FD names (a
// launcher reads there and shows one line for all of its processes), otherwise to stderr. Line ends inside
// become "; ".
void print_error_line(const std::string& what) noexcept;

}  // namespace weft
