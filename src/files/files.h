// SPDX-License-Identifier: MIT
// Files that appear whole or not at all.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

namespace weft {

// Lets `write` fill "<path>.tmp", then renames it over `path`, when its bytes are on the disk. Throws Error
// when that cannot be done (no such folder, a full disk), and when `write` throws; nothing is left of the new
// file then, and an earlier one stays.
void write_whole_file(const std::string& path, const std::function<void(std::ostream&)>& write);
// The same with what is in the file `from`, a piece at a time (src/files/disk_writer.h).
void copy_whole_file(const std::string& from, const std::string& path);

// The folder that `path` is in.
std::string parent_folder(const std::string& path);
// A new name is on the disk only when its folder is: waits until that of `path` is there, names that were
// given to other files of it included. Folders that cannot be synced (some network disks) are let pass.
void sync_names_beside(const std::string& path);

}  // namespace weft
