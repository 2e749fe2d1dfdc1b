// SPDX-License-Identifier: MIT
// The line with which a process fails.
#pragma once

#include <string>

namespace weft {
// The last words of a process that fails. Writes "error: <what>" at once, with "; " for line ends:
// to the file descriptor WEFT_ERROR_FD, where a launcher reads the lines of its processes,
// otherwise to stderr.
void print_error_line(const std::string& what) noexcept;
}  // namespace weft
