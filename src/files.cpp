// SPDX-License-Identifier: MIT
// A file is written under a temporary name and renamed.
#include "src/files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernels/view.h"

namespace weft {

void write_whole_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  const std::string temporary = path + ".tmp";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  if (!out)
    fail(str("cannot write '", path, "': ", std::strerror(errno),
             "; does its folder exist, may you write there?"));
  std::error_code ignored;
  try {
    write(out);
    out.close();
    if (!out) fail(str("could not write '", path, "': ", std::strerror(errno), "; is the disk full?"));
    std::filesystem::rename(temporary, path);
  } catch (const std::filesystem::filesystem_error& error) {
    std::filesystem::remove(temporary, ignored);
    fail(str("could not write '", path, "': ", error.code().message()));
  } catch (...) {
    out.close();
    std::filesystem::remove(temporary, ignored);
    throw;
  }
}

}  // namespace weft
