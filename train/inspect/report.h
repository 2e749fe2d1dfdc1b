// SPDX-License-Identifier: MIT
// The program `inspect`: what a config means, before anything is trained.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace weft {
struct InspectOptions {
  std::string config;
  std::vector<std::string> overrides;  // --set
  std::string attention;               // a pattern as in a config, looked at without one
  // with `attention`; one, of 64 numbers
  std::optional<int64_t> heads, head_size;
  // "LAYER,HEAD"; empty: the report, or with `attention` the first head
  std::string pattern;
  std::string tiles;                // the same: its tiles in place of its drawing
  std::string explain;              // the same: how kernels find the keys of `query`
  std::optional<int64_t> query;     // with `explain`; about 5/8 of the length
  std::optional<int64_t> edge;      // of these tiles; the one that kernels would get
  std::optional<int64_t> length;    // of the sequences looked at; the config's context
  std::optional<int64_t> keys;      // another number of keys than of queries
  std::optional<int64_t> position;  // whose receptive field is drawn; about 5/8 of the length
  std::optional<int64_t> columns;   // positions in a row of the receptive field; the stride
  std::vector<int64_t> grid;        // H, W or H, W, C: the field is drawn on an image, too
  std::string arch;                 // in place of the report: the kernels on such a GPU
  std::optional<int64_t> batch;     // with `arch`: sequences at once; those of the config
  std::string png, mask_out;        // files to write, with a picture
  std::string device = "auto";      // whose kernels are named
  // in place of a config: what a head of this model sees of this text. A run folder stands for its
  // best checkpoint.
  std::string checkpoint, text;
};

// A head's pattern as text and files; without `pattern` and `attention` parameters, memory, FLOPs,
// patterns.
void inspect(const InspectOptions&, std::ostream&);
}  // namespace weft
