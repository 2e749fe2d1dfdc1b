// SPDX-License-Identifier: MIT
#include "src/files/error_line.h"

#include <cstdlib>
#include <string>
#include <unistd.h>

namespace weft {
void print_error_line(const std::string& what) noexcept {
  std::string line = "error: ";
  for (const char c : what) line += c == '\n' ? std::string("; ") : std::string(1, c);
  while (line.ends_with("; ")) line.resize(line.size() - 2);
  line += '\n';
  const char* of_launcher = std::getenv("WEFT_ERROR_FD");
  if (of_launcher && write(std::atoi(of_launcher), line.data(), line.size()) > 0) return;
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
}
}  // namespace weft
