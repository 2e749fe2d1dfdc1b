// SPDX-License-Identifier: MIT
// Files that appear whole or not at all.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

namespace weft {

// Lets `write` fill "<path>.tmp", then renames it over `path`. Throws Error when that cannot be done (no such
// folder, a full disk), and when `write` throws; nothing is left of the new file then, and an earlier one
// stays.
void write_whole_file(const std::string& path, const std::function<void(std::ostream&)>& write);
// The same with what is in the file `from`, a piece at a time (src/disk_writer.h): `path` is on the disk when
// it is renamed.
void copy_whole_file(const std::string& from, const std::string& path);

}  // namespace weft
