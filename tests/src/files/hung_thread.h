// SPDX-License-Identifier: MIT
// Waiting for other processes, and keeping one where it is.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>

namespace weft {
// Waits until `done` says so, at most `seconds`; what it said at last.
bool eventually(const std::function<bool()>& done, double seconds = 120);

// Keeps the main thread of a descendant of this process where it is, while its other threads go on:
// what a process looks like that hangs in its work.
class HungThread {
 public:
  explicit HungThread(pid_t);  // false where this process may not trace others

  explicit operator bool() const { return pid_ > 0; }

  // Lets it go on until it is about to read, write or sync a file whose name ends in `name`, and
  // keeps it there. False: it has ended. A file that NewFile writes has no name until it is whole:
  // " (deleted)".
  bool runs_to_disk_call(const std::string& name);
  void let_go();
  void wait_for_end();  // of the process; nobody else learns of it before
 private:
  bool at_disk_call(const std::string& name) const;
  pid_t pid_;
};
}  // namespace weft
