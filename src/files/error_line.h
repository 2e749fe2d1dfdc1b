// SPDX-License-Identifier: MIT
// The line with which a process fails.
#pragma once

#include <string>

namespace weft {
// Writes "error: <what>" as one line, with "; " for line ends. It goes to stderr, or to the file
// descriptor WEFT_ERROR_FD, from which a launcher reads the lines of its processes.
void print_error_line(const std::string& what) noexcept;
}  // namespace weft
