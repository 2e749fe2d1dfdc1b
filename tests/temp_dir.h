// SPDX-License-Identifier: MIT
// A folder of its own for a test, removed afterwards; whole files as strings; the text of the Error
// that a call throws.
#pragma once

#include "kernels/view.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace weft {
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "weft_test_XXXXXX").string();
    if (!mkdtemp(name.data())) fail("no temporary folder for a test: " + name);
    path_ = name;
  }

  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  std::vector<std::string> names() const {  // of all that is in it, sorted
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path << " is missing";
  return {std::istreambuf_iterator<char>(in), {}};
}

// The text of the Error that `call` throws; "" when it throws none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
}  // namespace weft

#define EXPECT_CONTAINS(text, part)                          \
  EXPECT_NE(std::string(text).find(part), std::string::npos) \
      << "text: " << (text) << "\nlacks: " << (part)
