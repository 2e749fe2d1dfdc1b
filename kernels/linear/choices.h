// SPDX-License-Identifier: MIT
// Which of several algorithms was fastest for a GEMM, kept from run to run in a file of the user's cache
// folder. A choice changes time, never results: a file that is lost, foreign or broken costs a measurement.
#pragma once

#include <map>
#include <string>

struct cublasLtContext;

namespace weft {

class LinearChoices {
 public:
  // `environment`: one line of text with all that choices depend on besides their key (GPU, driver, library);
  // each has its own file in `folder`. An empty folder: nothing is read or written.
  LinearChoices(const std::string& folder, std::string environment);

  // The choice for `key` (without spaces), or -1.
  int find(const std::string& key) const;
  // Notes it, and writes the file again with what other processes have added to it since; beside it, then
  // renamed. A folder that cannot be written to is no error.
  void add(const std::string& key, int choice);
  const std::string& path() const { return path_; }

 private:
  std::map<std::string, int> read() const;
  void write() const;

  std::string path_, environment_;
  std::map<std::string, int> choices_;
};

// $XDG_CACHE_HOME/weft, or ~/.cache/weft; "" where neither variable is an absolute path.
std::string cache_folder();

// CUDA: to be called before a handle of the library is destroyed, since the next one may get its address.
void forget_algorithms(cublasLtContext*);

// WEFT_TUNE from the environment, read once: 1 (or unset) measures and keeps choices, 0 takes the library's
// own.
bool tuning_enabled();

}  // namespace weft
