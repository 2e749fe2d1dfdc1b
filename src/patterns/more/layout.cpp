// SPDX-License-Identifier: MIT
// layout: arbitrary 0/1 blocks for each head, with a bit mask for blocks that are attended in part:
// S_i = {j : block (floor(i / b), floor(j / b)) is active and its mask holds (i mod b, j mod b)}.
// Positions keep their order. Heads with equal blocks and masks are one group.
#include "src/patterns/more/layout.h"

#include "src/config/names.h"
#include "src/files/hash.h"
#include "src/files/npy.h"
#include "src/patterns/combine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kBlocks[] = {8, 16, 32, 64};
constexpr int32_t kFull = -1;  // instead of the number of a mask: every pair of the block

// The active blocks of one head, row by row.
struct HeadBlocks {
  std::vector<int64_t> row_start;  // (query_blocks + 1)
  std::vector<int32_t> column;     // ascending in a row
  std::vector<int32_t> mask;       // kFull or the number of its mask
  friend bool operator==(const HeadBlocks&, const HeadBlocks&) = default;
};

void check_layout(const BlockLayout& layout, int heads) {
  const std::string where = (layout.source.empty() ? "layout" : layout.source) + ": ";
  if (std::find(std::begin(kBlocks), std::end(kBlocks), layout.block) == std::end(kBlocks))
    fail(where, "block must be 8, 16, 32 or 64, got ", layout.block);
  if (layout.heads != 1 && layout.heads != heads)
    fail(where, "is given for ", layout.heads, " heads; expected 1 (shared by all) or ", heads);
  for (const auto& [what, blocks] :
       {std::pair{"query", layout.query_blocks}, {"key", layout.key_blocks}})
    if (blocks < 1 || blocks > kMaxPositions / layout.block)
      fail(where, "there must be 1 to ", kMaxPositions / layout.block, " ", what, " blocks of ",
           layout.block, ", got ", blocks);
  const auto size = std::ssize(layout.active);
  const int64_t square = layout.query_blocks * layout.key_blocks;  // below 2^54
  if (size % square != 0 || size / square != layout.heads)
    fail(where, "active must hold heads * query blocks * key blocks = ", layout.heads, " * ",
         layout.query_blocks, " * ", layout.key_blocks, " numbers, got ", size);
  const auto wrong = std::ranges::find_if(layout.active, [](auto x) { return x > 1; });
  if (wrong == layout.active.end()) return;
  const int64_t at = wrong - layout.active.begin();
  fail(where, "must hold only 0 and 1, got ", int{*wrong}, " for head ", at / square,
       ", query block ", at % square / layout.key_blocks, ", key block ", at % layout.key_blocks);
}

class Layout : public AttentionPattern {
 public:
  Layout(const BlockLayout& layout, int heads)
      : block_(layout.block),
        lengths_(layout.query_blocks * block_, layout.key_blocks * block_) {
    const bool all_alike = layout.heads == 1 && !layout.keep;
    for (int head = 0; head < heads; ++head) {
      if (head == 0 || !all_alike) add_head(layout, head);
      if (head > 0 && all_alike) group_of_head_.push_back(0);
    }
    known_.clear();
    name_ = name_of(layout);
  }

  std::string name() const override { return name_; }

  bool causal() const override { return causal_; }

  Lengths lengths() const override { return lengths_; }

  int groups(int) const override { return static_cast<int>(tables_.size()); }

  int group(int head) const override { return group_of_head_.at(head); }

  bool attends(int head, int64_t i, int64_t j) const override {
    if (i >= lengths_.queries || j >= lengths_.keys) return false;
    const HeadBlocks& blocks = blocks_of(head);
    const auto row = blocks.column.begin() + blocks.row_start[i / block_],
               end = blocks.column.begin() + blocks.row_start[i / block_ + 1],
               found = std::lower_bound(row, end, j / block_);
    if (found == end || *found != j / block_) return false;
    return word(blocks.mask[found - blocks.column.begin()], i % block_) >> j % block_ & 1;
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    if (i >= lengths_.queries) return;
    const HeadBlocks& blocks = blocks_of(head);
    const std::size_t mine = runs.size();
    for (int64_t at = blocks.row_start[i / block_]; at < blocks.row_start[i / block_ + 1]; ++at) {
      const int64_t first = blocks.column[at] * block_;
      uint64_t bits = word(blocks.mask[at], i % block_);
      for (int key = 0; bits != 0;) {
        const int skipped = std::countr_zero(bits);
        bits >>= skipped;
        const int length = std::countr_one(bits);
        key += skipped + length;
        append_run(first + key - length, first + key, mine, runs);
        bits = length == 64 ? 0 : bits >> length;
      }
    }
  }

 private:
  const HeadBlocks& blocks_of(int head) const { return tables_[group_of_head_.at(head)]; }

  uint64_t full_word() const { return ~uint64_t{0} >> (64 - block_); }

  uint64_t word(int32_t mask, int64_t row) const {
    return mask == kFull ? full_word() : masks_[mask * block_ + row];
  }

  void add_head(const BlockLayout& layout, int head) {
    const int64_t square = layout.query_blocks * layout.key_blocks;
    const uint8_t* active = layout.active.data() + (layout.heads == 1 ? 0 : head * square);
    HeadBlocks blocks;
    blocks.row_start.push_back(0);
    for (int64_t q = 0; q < layout.query_blocks; ++q) {
      for (int64_t k = 0; k < layout.key_blocks; ++k)
        if (active[q * layout.key_blocks + k] && !(layout.causal && k > q))
          add_block(layout, head, q, k, blocks);
      blocks.row_start.push_back(std::ssize(blocks.column));
    }
    const auto known = std::ranges::find(tables_, blocks);
    group_of_head_.push_back(static_cast<int>(known - tables_.begin()));
    if (known == tables_.end()) tables_.push_back(std::move(blocks));
  }

  void add_block(const BlockLayout& layout, int head, int64_t q, int64_t k, HeadBlocks& blocks) {
    Mask mask{};
    const bool triangle = layout.causal && k == q;
    int64_t full_rows = 0;
    bool any = false;
    for (int64_t row = 0; row < block_; ++row) {
      uint64_t bits = triangle ? full_word() >> (block_ - 1 - row) : full_word();
      if (layout.keep)
        for (int64_t key = 0; key < block_; ++key)
          if (bits >> key & 1 && !layout.keep(head, q * block_ + row, k * block_ + key))
            bits &= ~(uint64_t{1} << key);
      mask[row] = bits;
      any = any || bits != 0;
      full_rows += bits == full_word();
      const int64_t last = bits == 0 ? -1 : k * block_ + 63 - std::countl_zero(bits);
      causal_ = causal_ && last <= q * block_ + row;
    }
    if (!any) return;
    blocks.column.push_back(static_cast<int32_t>(k));
    blocks.mask.push_back(full_rows == block_ ? kFull : number_of(mask));
  }

  using Mask = std::array<uint64_t, 64>;

  int32_t number_of(const Mask& mask) {
    const auto [known, is_new] = known_.try_emplace(mask, static_cast<int32_t>(known_.size()));
    if (is_new) masks_.insert(masks_.end(), mask.begin(), mask.begin() + block_);
    return known->second;
  }

  std::string name_of(const BlockLayout& layout) const {
    Hash hash;
    hash.add(group_of_head_);
    hash.add(masks_);
    for (const HeadBlocks& blocks : tables_) {
      hash.add(blocks.row_start);
      hash.add(blocks.column);
      hash.add(blocks.mask);
    }
    return str("layout(", layout.source.empty() ? "" : layout.source + ", ", layout.query_blocks,
               " x ", layout.key_blocks, " blocks of ", block_, layout.causal ? ", causal" : "",
               ", ", hash.text(), ")");
  }

  int64_t block_;
  Lengths lengths_;
  bool causal_ = true;
  std::vector<HeadBlocks> tables_;  // one a group
  std::vector<int> group_of_head_;
  std::vector<uint64_t> masks_;  // (masks, block): bit k of word r: pair (r, k) of the block
  std::map<Mask, int32_t> known_;
  std::string name_;
};
}  // namespace

std::unique_ptr<AttentionPattern> layout_pattern(const BlockLayout& layout, int heads) {
  check_layout(layout, heads);
  return std::make_unique<Layout>(layout, heads);
}

PatternKind layout_kind() {
  return {"layout",
          "active blocks of 8, 16, 32 or 64 positions, from 0 and 1 in a .npy or HDF5 `file`",
          reads({"file", "dataset", "block", "causal"}),
          [](const PatternSpec& spec, int heads) {
            if (spec.file.empty())
              refuse_pattern("layout", "file is required, a .npy or HDF5 file");
            if (spec.block == 0) refuse_pattern("layout", "block is required, 8, 16, 32 or 64");
            BlockLayout layout = read_block_layout(spec.file, spec.dataset);
            layout.block = spec.block;
            layout.causal = spec.causal;
            return layout_pattern(layout, heads);
          },
          {"file"}};
}

// ---- layouts in .npy files: nothing is allocated that the size of the file does not bear out ----

int64_t layout_size(const std::vector<int64_t>& shape, const std::string& source) {
  const std::string text = joined(shape);
  if (shape.size() != 2 && shape.size() != 3)
    fail(source,
         ": a layout is (query blocks, key blocks) or (heads, query blocks, key blocks), got ",
         "shape (", text, ")");
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t size = 1;
  for (const int64_t n : shape) {
    if (n < 1 || n > kMost / size)
      fail(source, ": a layout cannot have the shape (", text, "): it is ",
           n < 1 ? "empty" : "too large");
    size *= n;
  }
  return size;
}

BlockLayout layout_of(const std::vector<int64_t>& shape, const std::string& source,
                      const std::function<int64_t(int64_t)>& value_at) {
  BlockLayout layout;
  layout.source = source;
  layout.active.resize(layout_size(shape, source));
  layout.heads = shape.size() == 3 ? shape[0] : 1;
  layout.query_blocks = shape[shape.size() - 2];
  layout.key_blocks = shape[shape.size() - 1];
  for (std::size_t at = 0; at < layout.active.size(); ++at) {
    const auto index = static_cast<int64_t>(at), value = value_at(index);
    if (value != 0 && value != 1)
      fail(source, ": a layout holds only 0 and 1, got ", value, " for head ",
           index / (layout.query_blocks * layout.key_blocks), ", query block ",
           index / layout.key_blocks % layout.query_blocks, ", key block ",
           index % layout.key_blocks);
    layout.active[at] = static_cast<uint8_t>(value);
  }
  return layout;
}

BlockLayout parse_block_layout(std::string_view npy, const std::string& source) {
  const NpyArray array = parse_npy(npy, source);
  return layout_of(array.shape, source, [&](int64_t at) { return array.value(at); });
}

BlockLayout read_block_layout(const std::string& path, const std::string& dataset) {
  struct stat info {};

  if (::stat(path.c_str(), &info) != 0) fail(path, ": cannot be opened: ", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(path, ": is not a regular file, expected a .npy or HDF5 file");
  std::ifstream in(path, std::ios::binary);
  std::string bytes(std::min<std::size_t>(static_cast<std::size_t>(info.st_size), 8), '\0');
  if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    fail(path, ": cannot be read: ", std::strerror(errno));
  if (!is_npy(bytes)) return read_hdf5_layout(path, dataset);
  if (!dataset.empty())
    fail(path, ": is a .npy file, which holds one array; leave out dataset, got ", dataset);
  bytes.resize(info.st_size);
  in.seekg(0);
  in.read(bytes.data(), info.st_size);
  bytes.resize(in.gcount());
  return parse_block_layout(bytes, path);
}
}  // namespace weft
