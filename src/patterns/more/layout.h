// SPDX-License-Identifier: MIT
// BlockLayout: an arbitrary pattern, given as 0 and 1 on a grid of square blocks for each head, as
// in blocksparse's transformer, optionally with a predicate for single pairs.
#pragma once

#include "src/patterns/spec.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
struct BlockLayout {
  int64_t heads = 1;  // 1: all heads share it
  int64_t query_blocks = 0, key_blocks = 0;
  int64_t block = 64;           // edge of a block: 8, 16, 32 or 64 positions
  std::vector<uint8_t> active;  // (heads, query_blocks, key_blocks) 0 or 1, any number in each head
  bool causal = false;          // within active blocks only pairs with j <= i
  // Which pairs of the active blocks are attended; empty: all. Asked once, when the pattern is
  // made.
  std::function<bool(int head, int64_t i, int64_t j)> keep{};
  std::string source{};  // where it comes from, for names and errors: a file
};

// Throws Error that names the field when sizes do not fit or `active` holds something else than 0
// and 1.
std::unique_ptr<AttentionPattern> layout_pattern(const BlockLayout&, int heads);

// ---- from files: (query blocks, key blocks) for all heads, or (heads, query blocks, key blocks)

// Fills heads, query_blocks, key_blocks, active and source. `dataset`: of an HDF5 file; "" for
// .npy. Throws Error that names the file and the first value that is neither 0 nor 1.
BlockLayout read_block_layout(const std::string& path, const std::string& dataset);
// The same from the bytes of a .npy file.
BlockLayout parse_block_layout(std::string_view npy, const std::string& source);
// The same from an HDF5 file. Programs without HDF5 (the C library) define it as a refusal.
BlockLayout read_hdf5_layout(const std::string& path, const std::string& dataset);

// For readers: how many numbers an array of this shape holds, and the layout of them.
int64_t layout_size(const std::vector<int64_t>& shape, const std::string& source);
BlockLayout layout_of(const std::vector<int64_t>& shape, const std::string& source,
                      const std::function<int64_t(int64_t index)>& value_at);
}  // namespace weft
