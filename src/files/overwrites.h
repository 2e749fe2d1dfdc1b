// SPDX-License-Identifier: MIT
// Keeps a program from replacing a file that it reads.
#pragma once

#include <string>
#include <vector>

namespace weft {
// A file to write, and the option that names it.
struct OutputOption {
  std::string option, path;
};

// Throws Error where a file to write is one of `inputs`, or two options name one file, whatever
// the links and spellings. Empty paths and devices are left out.
void check_overwrites(const std::vector<OutputOption>& outputs,
                      const std::vector<std::string>& inputs);

// Throws Error where a file to write is one that `train` keeps in the folder of a run: config,
// options, metrics or a checkpoint.
void check_run_is_kept(const std::vector<OutputOption>& outputs, const std::string& folder);
}  // namespace weft
