// SPDX-License-Identifier: MIT
// Members of archives: zip (numpy's .npz is one), tar and tar.gz, through libarchive. Links,
// folders and devices are skipped; nothing is unpacked to a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace weft {
struct ArchiveLimits {
  int64_t member = int64_t{4} << 30, total = int64_t{64} << 30;  // bytes, unpacked
  int64_t count = 10000000;                                      // members
  // A file unpacks to so many bytes and 100 times its own: images shrink to a tenth, bombs to a
  // thousandth.
  int64_t small = int64_t{1} << 30;
};

// By the first bytes of a file (512 are enough): zip, tar or gzip.
bool is_archive(std::string_view beginning);
// Whether this build has libarchive. Without it for_each_member says what to install.
bool has_archives();

// Calls use(name, bytes) for each file whose name is wanted, in order. Error when the archive is
// damaged, truncated, encrypted or beyond the limits; `use` may have had members by then.
void for_each_member(const std::string& path,
                     const std::function<bool(const std::string& name)>& wanted,
                     const std::function<void(const std::string& name, std::string bytes)>& use,
                     const ArchiveLimits& limits = {});
}  // namespace weft
