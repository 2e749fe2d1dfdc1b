// SPDX-License-Identifier: MIT
// A full disk, as a test can have it.
#pragma once

#include <csignal>
#include <cstddef>
#include <sys/resource.h>

namespace weft {
// While it lives, no file of this process grows beyond `bytes`: a write takes what fits, the next
// one fails.
class FileLimit {
 public:
  explicit FileLimit(std::size_t bytes)
      : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }

  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};
}  // namespace weft
