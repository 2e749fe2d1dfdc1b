// SPDX-License-Identifier: MIT
// build_tile_tables: the attended pairs of one head as square tiles of slots, in both directions.
// One query tile at a time: each query's runs of keys become runs of key slots, and those become bits.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "src/tile_tables.h"

namespace weft {
namespace {

using Mask = std::array<std::uint64_t, kTile>;  // word r: row r of the tile; of small tiles the first words

struct MaskHash {
  std::size_t operator()(const Mask& mask) const {
    std::uint64_t h = 0;
    for (const std::uint64_t word : mask) h = (std::rotl(h, 5) ^ word) * 0x9e3779b97f4a7c15u;
    return static_cast<std::size_t>(h ^ (h >> 32));
  }
};

Mask transposed(const Mask& mask) {
  Mask out{};
  for (std::size_t r = 0; r < mask.size(); ++r)
    for (std::uint64_t bits = mask[r]; bits != 0; bits &= bits - 1)
      out[std::countr_zero(bits)] |= std::uint64_t{1} << r;
  return out;
}

// slot -> position (-1: empty), whole tiles, from position -> slot.
std::vector<std::int32_t> order_of(const std::vector<std::int64_t>& slots, int edge,
                                   const std::string& what) {
  const std::int64_t last = *std::max_element(slots.begin(), slots.end());
  WEFT_CHECK(last < std::numeric_limits<std::int32_t>::max() - edge, what, ": too many slots: ", last + 1);
  std::vector<std::int32_t> order(static_cast<std::size_t>(last / edge + 1) * edge, -1);
  for (std::size_t position = 0; position < slots.size(); ++position) {
    WEFT_CHECK(slots[position] >= 0, what, ": position ", position, " has the negative slot ",
               slots[position]);
    std::int32_t& entry = order[static_cast<std::size_t>(slots[position])];
    WEFT_CHECK(entry == -1, what, ": positions ", entry, " and ", position, " share slot ", slots[position]);
    entry = static_cast<std::int32_t>(position);
  }
  return order;
}

// 0, 1, ... ordered by falling number of entries, start[t + 1] - start[t]; equal ones ascending.
std::vector<std::int32_t> most_work_first(const std::vector<std::int32_t>& start) {
  std::vector<std::int32_t> schedule(start.size() - 1);
  std::iota(schedule.begin(), schedule.end(), 0);
  const auto work = [&](std::int32_t t) { return start[t + 1] - start[t]; };
  std::stable_sort(schedule.begin(), schedule.end(), [&](auto a, auto b) { return work(a) > work(b); });
  return schedule;
}

class Builder {
 public:
  Builder(const AttentionPattern& pattern, int head, Lengths n, int edge)
      : pattern_(pattern), head_(head), n_(n), edge_(edge) {
    out_.edge = edge;
    const auto slots = [](std::int64_t count, auto&& slot_of) {
      std::vector<std::int64_t> slots(static_cast<std::size_t>(count));
      for (std::int64_t t = 0; t < count; ++t) slots[static_cast<std::size_t>(t)] = slot_of(t);
      return slots;
    };
    key_slot_ = slots(n.keys, [&](std::int64_t j) { return pattern.key_slot(head, j, n.keys); });
    out_.query_order =
        order_of(slots(n.queries, [&](std::int64_t i) { return pattern.query_slot(head, i, n.queries); }),
                 edge, pattern.name() + ", queries");
    out_.key_order = order_of(key_slot_, edge, pattern.name() + ", keys");
    in_step_.assign(key_slot_.size(), 1);
    for (std::int64_t j = n.keys - 2; j >= 0; --j)
      if (key_slot_[j + 1] == key_slot_[j] + 1) in_step_[j] = in_step_[j + 1] + 1;
    bits_.resize(out_.key_tiles());
    touched_.assign(out_.key_tiles(), 0);
  }

  TileTables build() {
    out_.row_start.push_back(0);
    for (std::int32_t tile = 0; tile < out_.query_tiles(); ++tile) {
      for (int r = 0; r < edge_; ++r)
        if (const std::int32_t i = out_.query_order[std::int64_t{edge_} * tile + r]; i >= 0) add_query(i, r);
      finish_query_tile();
    }
    transpose();
    out_.row_schedule = most_work_first(out_.row_start);
    out_.col_schedule = most_work_first(out_.col_start);
    out_.pairs.executed = static_cast<std::int64_t>(out_.row_tile.size()) * edge_ * edge_;
    return std::move(out_);
  }

 private:
  void add_query(std::int64_t i, int row) {
    runs_.clear();
    pattern_.key_runs(head_, i, runs_);
    for (const KeyRun& run : runs_) {
      const std::int64_t end = std::min(run.end, n_.keys);
      if (run.begin >= end) continue;
      WEFT_CHECK(run.begin >= 0 && run.step >= 1, pattern_.name(), ": query ", i, " names keys ", run.begin,
                 " .. ", run.end - 1, " in steps of ", run.step);
      for (std::int64_t j = run.begin; j < end;) {
        const std::int64_t count = run.step == 1 ? std::min<std::int64_t>(in_step_[j], end - j) : 1;
        set_bits(row, key_slot_[j], count);
        j += count * run.step;
      }
    }
  }

  // Key slots first .. first + count - 1 are attended by this row.
  void set_bits(int row, std::int64_t first, std::int64_t count) {
    for (const std::int64_t end = first + count; first < end;) {
      const auto tile = static_cast<std::int32_t>(first / edge_);
      const int offset = static_cast<int>(first % edge_);
      const int here = static_cast<int>(std::min<std::int64_t>(edge_ - offset, end - first));
      bits_[tile][row] |= (~std::uint64_t{0} >> (64 - here)) << offset;
      if (!touched_[tile]) tiles_.push_back(tile);
      touched_[tile] = 1;
      first += here;
    }
  }

  // Turns the collected bits into entries of the row tables, and clears them.
  void finish_query_tile() {
    std::sort(tiles_.begin(), tiles_.end());
    for (const std::int32_t tile : tiles_) {
      Mask& mask = bits_[tile];
      std::int64_t pairs = 0;
      for (const std::uint64_t word : mask) pairs += std::popcount(word);
      out_.pairs.needed += pairs;
      out_.row_tile.push_back(tile);
      out_.row_mask.push_back(pairs == edge_ * edge_ ? -1 : number_of(mask));
      mask.fill(0);
      touched_[tile] = 0;
    }
    tiles_.clear();
    WEFT_CHECK(out_.row_tile.size() < std::numeric_limits<std::int32_t>::max(), pattern_.name(),
               ": too many tiles for ", n_.queries,
               " queries; shorten the sequence or choose a sparser pattern");
    out_.row_start.push_back(static_cast<std::int32_t>(out_.row_tile.size()));
  }

  std::int32_t number_of(const Mask& mask) {
    const auto [known, is_new] = masks_.try_emplace(mask, static_cast<std::int32_t>(masks_.size()));
    if (is_new) {
      const Mask flipped = transposed(mask);
      out_.masks.insert(out_.masks.end(), mask.begin(), mask.begin() + edge_);
      out_.masks_transposed.insert(out_.masks_transposed.end(), flipped.begin(), flipped.begin() + edge_);
    }
    return known->second;
  }

  // The column tables from the row tables, by counting: queries of a column stay ascending.
  void transpose() {
    out_.col_start.assign(out_.key_tiles() + 1, 0);
    for (const std::int32_t tile : out_.row_tile) ++out_.col_start[tile + 1];
    std::partial_sum(out_.col_start.begin(), out_.col_start.end(), out_.col_start.begin());
    std::vector<std::int32_t> next(out_.col_start.begin(), out_.col_start.end() - 1);
    out_.col_tile.resize(out_.row_tile.size());
    out_.col_mask.resize(out_.row_tile.size());
    for (std::int32_t query = 0; query < out_.query_tiles(); ++query)
      for (std::int32_t entry = out_.row_start[query]; entry < out_.row_start[query + 1]; ++entry) {
        const std::int32_t at = next[out_.row_tile[entry]]++;
        out_.col_tile[at] = query;
        out_.col_mask[at] = out_.row_mask[entry];
      }
  }

  const AttentionPattern& pattern_;
  const int head_;
  const Lengths n_;
  const int edge_;
  TileTables out_;
  std::vector<std::int64_t> key_slot_;
  std::vector<std::int32_t> in_step_;  // how many positions from here on have slots that follow each other
  std::unordered_map<Mask, std::int32_t, MaskHash> masks_;
  // The query tile at hand: bits of each key tile, which key tiles have any, and a list of those.
  std::vector<Mask> bits_;
  std::vector<char> touched_;
  std::vector<std::int32_t> tiles_;
  std::vector<KeyRun> runs_;
};

}  // namespace

TileTables build_tile_tables(const AttentionPattern& pattern, int head, Lengths n, int edge) {
  for (const std::int64_t length : {n.queries, n.keys})
    WEFT_CHECK(length >= 1 && length <= kMaxPositions, "a sequence has 1 to ", kMaxPositions,
               " positions, got ", length);
  const Lengths made_for = pattern.lengths();
  WEFT_CHECK((made_for.queries == 0 || n.queries <= made_for.queries) &&
                 (made_for.keys == 0 || n.keys <= made_for.keys),
             pattern.name(), " is made for ", made_for.queries, " queries and ", made_for.keys, " keys, got ",
             n.queries, " and ", n.keys);
  WEFT_CHECK(edge == kTile || edge == kSmallTile, "tiles have an edge of ", kTile, " or ", kSmallTile,
             ", got ", edge);
  return Builder(pattern, head, n, edge).build();
}

TileTables build_best_tables(const AttentionPattern& part, int head, Lengths n, std::int64_t) {
  return build_tile_tables(part, head, n, kTile);
}

}  // namespace weft
