// SPDX-License-Identifier: MIT
// Bytes that go to the disk, and what goes wrong on the way.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>

namespace weft {

// What a system call returns that no signal interrupted: file systems of programs, as of cloud storage, let
// signals end any call, those included that ask a process to save and leave.
template <class Call>
auto uninterrupted(Call call) {
  for (;;)
    if (const auto result = call(); result >= 0 || errno != EINTR) return result;
}

// "No space left on device; free some space there or write to another disk", of an errno.
std::string disk_error(int error);

// Both return 0, or the errno of what went wrong, after which the file is good for nothing. After the second
// all that was written to the file is on the disk.
int write_all(int file, const char* bytes, std::size_t size);
int sync_to_disk(int file);

}  // namespace weft
