// SPDX-License-Identifier: MIT
// HostMemory: memory of the host that all processes of a group have mapped, and that copy engines reach.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>

#include "src/ranks/process_group.h"

namespace weft {

class HostMemory {
 public:
  // Collective: `bytes` for each rank. Null where ranks are on several hosts, or one does not see what
  // another one has.
  static std::unique_ptr<HostMemory> make(ProcessGroup&, std::size_t bytes);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  char* of(int rank) const { return memory_ + bytes_ * static_cast<std::size_t>(rank); }
  // Seconds that a GPU takes to copy a byte there or back while all others do the same: of the slowest.
  double seconds_per_byte() const { return seconds_per_byte_; }

 private:
  HostMemory(std::size_t bytes, int ranks) : bytes_(bytes), all_(bytes * static_cast<std::size_t>(ranks)) {}
  void map(int file);
  void pin();
  double time_copies(int rank) const;

  const std::size_t bytes_, all_;
  char* memory_ = nullptr;
  bool pinned_ = false;
  const int exceptions_ = std::uncaught_exceptions();
  double seconds_per_byte_ = 0;
};

}  // namespace weft
