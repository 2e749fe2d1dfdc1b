// SPDX-License-Identifier: MIT
// One query tile at a time: runs of keys become runs of key slots, and those become bits. Then
// PackedTables: tables of equal edge that do not depend on each other share a pass.
#include "kernels/attention/tile_tables.h"

#include "kernels/attention/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft {
namespace {
// word r: row r of the tile; small tiles use the first words
using Mask = std::array<uint64_t, kTile>;

uint64_t hash_of(const Mask& mask, int edge) {
  uint64_t h = 0;
  for (int r = 0; r < edge; ++r) h = (std::rotl(h, 5) ^ mask[r]) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 32);
}

Mask transposed(const Mask& mask) {
  Mask out{};
  for (std::size_t r = 0; r < mask.size(); ++r)
    for (uint64_t bits = mask[r]; bits != 0; bits &= bits - 1)
      out[std::countr_zero(bits)] |= uint64_t{1} << r;
  return out;
}

// slot -> position (-1: empty), whole tiles, from position -> slot.
std::vector<int32_t> order_of(const std::vector<int64_t>& slots, int edge,
                              const std::string& what) {
  const int64_t last = *std::ranges::max_element(slots);
  WEFT_CHECK(last < std::numeric_limits<int32_t>::max() - edge, what,
             ": too many slots: ", last + 1);
  std::vector<int32_t> order((last / edge + 1) * edge, -1);
  for (std::size_t position = 0; position < slots.size(); ++position) {
    WEFT_CHECK(slots[position] >= 0, what, ": position ", position, " has the negative slot ",
               slots[position]);
    int32_t& entry = order[slots[position]];
    WEFT_CHECK(entry == -1, what, ": positions ", entry, " and ", position, " share slot ",
               slots[position]);
    entry = static_cast<int32_t>(position);
  }
  return order;
}

// Of lists with entries start[t] .. start[t + 1] - 1.
std::vector<int32_t> lengths_of(const std::vector<int32_t>& start) {
  std::vector<int32_t> lengths(start.size() - 1);
  for (std::size_t t = 0; t < lengths.size(); ++t) lengths[t] = start[t + 1] - start[t];
  return lengths;
}

// 0, 1, ... ordered by falling work; equal ones ascending, or descending where `last_first`.
std::vector<int32_t> most_work_first(const std::vector<int32_t>& work, bool last_first = false) {
  std::vector<int32_t> schedule(work.size());
  std::iota(schedule.begin(), schedule.end(), 0);
  if (last_first) std::ranges::reverse(schedule);
  std::ranges::stable_sort(schedule, [&](auto a, auto b) { return work[a] > work[b]; });
  return schedule;
}

// Of each tile of one side, the tiles of the other side that it meets; `others`: how many there
// are.
struct Lists {
  const std::vector<int32_t>&start, &tile;
  int32_t others;

  int32_t tiles() const { return static_cast<int32_t>(start.size()) - 1; }
};

// Of tasks of `owners` tiles in schedule order: how many tiles the tasks meet, each once a task.
int64_t steps_of(const std::vector<int32_t>& schedule, const Lists& lists, int32_t owners) {
  std::vector<int32_t> last_task(lists.others, -1);
  int64_t steps = 0;
  for (int32_t rank = 0; rank < lists.tiles(); ++rank)
    for (int32_t at = lists.start[schedule[rank]]; at < lists.start[schedule[rank] + 1]; ++at) {
      int32_t& last = last_task[lists.tile[at]];
      if (last == rank / owners) continue;
      last = rank / owners;
      ++steps;
    }
  return steps;
}

// Up to `owners` tiles that follow each other in a schedule share the tiles that they meet. Either
// tiles with equal work follow each other, or runs of `run` neighbours, whichever makes fewer
// steps: in fixed attention the tiles of a block share its keys but not its work. A shorter last
// run counts as a whole one, for it often has the longest lists, which must not come late. Of runs
// with equal work the last come first.
std::vector<int32_t> schedule_of(const Lists& lists, int32_t owners, int32_t run) {
  const std::vector<int32_t> lengths = lengths_of(lists.start);
  std::vector<int32_t> of_runs;  // a whole run's work at the mean of its tiles
  for (int32_t first = 0; first < lists.tiles(); first += run) {
    const int32_t end = std::min(first + run, lists.tiles());
    const int64_t entries = lists.start[end] - lists.start[first];  // `run` times that may be 2^31
    of_runs.push_back(static_cast<int32_t>(entries * run / (end - first)));
  }
  std::vector<int32_t> neighbours, alike = most_work_first(lengths);
  for (const int32_t r : most_work_first(of_runs, true))
    for (int32_t t = std::min((r + 1) * run, lists.tiles()); t > r * run; --t)
      neighbours.push_back(t - 1);
  return steps_of(neighbours, lists, owners) < steps_of(alike, lists, owners) ? neighbours : alike;
}

// Runs of key positions become runs of key slots: one, where j, j + step, ... have slots in
// sequence.
class KeySlots {
 public:
  KeySlots(std::vector<int64_t> slots)
      : slots_(std::move(slots)) {}  // NOLINT: a list of slots

  const std::vector<int64_t>& all() const { return slots_; }

  // visit(first, count): key slots first .. first + count - 1.
  template <class Visit>
  void for_each(const KeyRun& run, const Visit& visit) {
    const std::vector<int32_t>* follow = run.size() > 1 ? following(run.step) : nullptr;
    for (int64_t j = run.begin, left = run.size(); left > 0;) {
      const int64_t count = follow ? std::min<int64_t>((*follow)[j], left) : 1;
      visit(slots_[j], count);
      j += count * run.step;
      left -= count;
    }
  }

 private:
  // [j]: how many of j, j + step, ... have slots that follow each other; nullptr: too many steps to
  // know.
  const std::vector<int32_t>* following(int64_t step) {
    for (const auto& [known, follow] : following_)
      if (known == step) return &follow;
    constexpr std::size_t kMostSteps = 4;  // of 4 bytes a key each
    if (following_.size() == kMostSteps) return nullptr;
    const auto keys = std::ssize(slots_);
    std::vector<int32_t> follow(slots_.size(), 1);
    for (int64_t j = keys - 1 - step; j >= 0; --j)
      if (slots_[j + step] == slots_[j] + 1) follow[j] = follow[j + step] + 1;
    return &following_.emplace_back(step, std::move(follow)).second;
  }

  std::vector<int64_t> slots_;  // position -> slot
  std::deque<std::pair<int64_t, std::vector<int32_t>>> following_;
};

std::vector<int64_t> slots_of(int64_t count, const std::function<int64_t(int64_t)>& slot_of) {
  std::vector<int64_t> slots(count);
  for (int64_t t = 0; t < count; ++t) slots[t] = slot_of ? slot_of(t) : t;
  return slots;
}

class Builder {
 public:
  Builder(const AttendedPairs& pairs, int edge)
      : pairs_(pairs),
        edge_(edge),
        key_slots_(slots_of(pairs.keys, pairs.key_slot)) {
    out_.edge = edge;
    out_.query_order =
        order_of(slots_of(pairs.queries, pairs.query_slot), edge, pairs.name + ", queries");
    out_.key_order = order_of(key_slots_.all(), edge, pairs.name + ", keys");
    bits_.resize(out_.key_tiles());
    touched_.assign(out_.key_tiles(), 0);
  }

  TileTables build() {
    out_.row_start.push_back(0);
    for (int32_t tile = 0; tile < out_.query_tiles(); ++tile) {
      add_query_tile(&out_.query_order[int64_t{edge_} * tile]);
      finish_query_tile();
    }
    transpose();
    const Lists rows{out_.row_start, out_.row_tile, out_.key_tiles()},
        columns{out_.col_start, out_.col_tile, out_.query_tiles()};
    // Tasks of the Hopper form: 3 or 4 tiles of queries, 2 of keys. Smaller tiles share nothing.
    const bool shared = edge_ == kTile;
    out_.row_schedule =
        shared ? schedule_of(rows, 4, 12) : most_work_first(lengths_of(out_.row_start));
    out_.col_schedule = shared ? schedule_of(columns, kTaskTiles, kTaskTiles)
                               : most_work_first(lengths_of(out_.col_start));
    take_turns();
    out_.pairs.executed = std::ssize(out_.row_tile) * edge_ * edge_;
    return std::move(out_);
  }

 private:
  // Sets runs_: those of a query inside the sequence, without empty ones.
  void ask(int64_t i) {
    runs_.clear();
    pairs_.key_runs(i, runs_);
    std::size_t kept = 0;
    for (KeyRun run : runs_) {
      run.end = std::min(run.end, pairs_.keys);
      if (run.begin >= run.end) continue;
      WEFT_CHECK(run.begin >= 0 && run.step >= 1, pairs_.name, ": query ", i, " names keys ",
                 run.begin, " .. ", run.end - 1, " in steps of ", run.step);
      runs_[kept++] = run;
    }
    runs_.resize(kept);
  }

  // Neighbouring queries share most runs (earlier summaries): the common beginning of lists is set
  // once.
  void add_query_tile(const int32_t* queries) {
    first_.clear();
    rest_.clear();
    Mask sees{};
    std::array<std::size_t, kTile + 1> rest_begin{};
    std::array<std::size_t, kTile> common{};  // with the list of the first query
    std::size_t common_to_all = 0;
    for (int r = 0; r < edge_; ++r) {
      rest_begin[r + 1] = rest_begin[r];
      if (queries[r] < 0) continue;
      ask(queries[r]);
      if (runs_.empty()) continue;
      if (first_.empty()) first_ = runs_, common_to_all = runs_.size();
      sees[r] = ~uint64_t{0};
      const auto differs =
          std::mismatch(runs_.begin(), runs_.end(), first_.begin(), first_.end()).first;
      common[r] = static_cast<std::size_t>(differs - runs_.begin());
      common_to_all = std::min(common_to_all, common[r]);
      rest_.insert(rest_.end(), differs, runs_.end());
      rest_begin[r + 1] = rest_.size();
    }
    for (std::size_t k = 0; k < common_to_all; ++k)
      set_bits(first_[k], [&](Mask& bits, uint64_t word) {
        for (int r = 0; r < edge_; ++r) bits[r] |= word & sees[r];
      });
    for (int r = 0; r < edge_; ++r) {
      const auto set = [r](Mask& bits, uint64_t word) { bits[r] |= word; };
      for (std::size_t k = common_to_all; k < common[r]; ++k) set_bits(first_[k], set);
      for (std::size_t k = rest_begin[r]; k < rest_begin[r + 1]; ++k) set_bits(rest_[k], set);
    }
  }

  // set(bits of a key tile, word of the keys of the run in it).
  template <class Set>
  void set_bits(const KeyRun& run, const Set& set) {
    key_slots_.for_each(run, [&](int64_t first, int64_t count) {
      for (const int64_t end = first + count; first < end;) {
        const auto tile = static_cast<int32_t>(first / edge_);
        const int offset = static_cast<int>(first % edge_);
        const int here = static_cast<int>(std::min<int64_t>(edge_ - offset, end - first));
        set(bits_[tile], (~uint64_t{0} >> (64 - here)) << offset);
        if (!touched_[tile]) tiles_.push_back(tile);
        touched_[tile] = 1;
        first += here;
      }
    });
  }

  // Turns the collected bits into entries of the row tables, and clears them.
  void finish_query_tile() {
    if (!std::ranges::is_sorted(tiles_)) std::ranges::sort(tiles_);
    for (const int32_t tile : tiles_) {
      Mask& mask = bits_[tile];
      int64_t pairs = 0;
      for (int r = 0; r < edge_; ++r) pairs += std::popcount(mask[r]);
      out_.pairs.needed += pairs;
      out_.row_tile.push_back(tile);
      out_.row_mask.push_back(pairs == edge_ * edge_ ? -1 : number_of(mask));
      std::fill_n(mask.begin(), edge_, 0);
      touched_[tile] = 0;
    }
    tiles_.clear();
    WEFT_CHECK(out_.row_tile.size() < std::numeric_limits<int32_t>::max(), pairs_.name,
               ": too many tiles for ", pairs_.queries, " queries: their tables have more than ",
               out_.row_tile.size() * 4 * sizeof(int32_t),
               " bytes; shorten the sequence or choose a sparser pattern");
    out_.row_start.push_back(static_cast<int32_t>(out_.row_tile.size()));
  }

  int32_t number_of(const Mask& mask) {
    const uint64_t hash = hash_of(mask, edge_);
    for (auto [known, end] = masks_.equal_range(hash); known != end; ++known)
      if (std::equal(mask.begin(), mask.begin() + edge_,
                     out_.masks.begin() + int64_t{edge_} * known->second))
        return known->second;
    const auto number = static_cast<int32_t>(masks_.size());
    const Mask flipped = transposed(mask);
    out_.masks.insert(out_.masks.end(), mask.begin(), mask.begin() + edge_);
    out_.masks_transposed.insert(out_.masks_transposed.end(), flipped.begin(),
                                 flipped.begin() + edge_);
    masks_.emplace(hash, number);
    return number;
  }

  // The key-stationary tables (col_*) from the query-stationary ones (row_*), by counting.
  void transpose() {
    out_.col_start.assign(out_.key_tiles() + 1, 0);
    for (const int32_t tile : out_.row_tile) ++out_.col_start[tile + 1];
    std::partial_sum(out_.col_start.begin(), out_.col_start.end(), out_.col_start.begin());
    std::vector<int32_t> next(out_.col_start.begin(), out_.col_start.end() - 1);
    out_.col_tile.resize(out_.row_tile.size());
    out_.col_mask.resize(out_.row_tile.size());
    for (int32_t query = 0; query < out_.query_tiles(); ++query)
      for (int32_t entry = out_.row_start[query]; entry < out_.row_start[query + 1]; ++entry) {
        const int32_t at = next[out_.row_tile[entry]]++;
        out_.col_tile[at] = query;
        out_.col_mask[at] = out_.row_mask[entry];
      }
  }

  // Of each column entry: the tasks before that have its query tile; the complement in the last of
  // them.
  void take_turns() {
    out_.col_turn.resize(out_.col_tile.size());
    std::vector<int32_t> tasks(out_.query_tiles(), 0);
    std::vector<int32_t> last(out_.query_tiles(), -1);
    for (int32_t rank = 0; rank < out_.key_tiles(); ++rank) {
      const int32_t key = out_.col_schedule[rank], task = rank / kTaskTiles;
      for (int32_t entry = out_.col_start[key]; entry < out_.col_start[key + 1]; ++entry) {
        const int32_t query = out_.col_tile[entry];
        if (last[query] != task) last[query] = task, ++tasks[query];
        out_.col_turn[entry] = tasks[query] - 1;
      }
    }
    for (std::size_t entry = 0; entry < out_.col_turn.size(); ++entry)
      if (out_.col_turn[entry] == tasks[out_.col_tile[entry]] - 1)
        out_.col_turn[entry] = ~out_.col_turn[entry];
  }

  const AttendedPairs& pairs_;
  const int edge_;
  TileTables out_;
  KeySlots key_slots_;
  std::unordered_multimap<uint64_t, int32_t> masks_;  // hash -> number
  // The query tile at hand: bits of each key tile, and which key tiles have any.
  std::vector<Mask> bits_;
  std::vector<char> touched_;
  std::vector<int32_t> tiles_;
  // Runs of one query, of the tile's first query, and where the others go on differently.
  std::vector<KeyRun> runs_, first_, rest_;
};
}  // namespace

TileTables build_tile_tables(const AttendedPairs& pairs, int edge) {
  WEFT_CHECK(edge == kTile || edge == kSmallTile, "tiles have an edge of ", kTile, " or ",
             kSmallTile, ", got ", edge);
  return Builder(pairs, edge).build();
}

TileTables build_best_tables(const AttendedPairs& pairs, int64_t head_size) {
  constexpr int64_t kMostInLargeTiles = 128;  // numbers of a head
  // Large tiles that execute no more than this for each pair needed are taken without a look at
  // small ones.
  constexpr double kGoodWaste = 2.5;
  // Time of an executed pair, in large tiles 1, measured on an H200: a key read serves 16 queries,
  // not 64.
  constexpr int64_t kSmallTileCost = 2;
  if (!attention::added_kernel(attention::Kernel::general_small_tiles))
    return build_tile_tables(pairs, kTile);
  if (head_size > kMostInLargeTiles) return build_tile_tables(pairs, kSmallTile);
  TileTables large = build_tile_tables(pairs, kTile);
  if (large.pairs.waste() <= kGoodWaste) return large;
  TileTables small = build_tile_tables(pairs, kSmallTile);
  return kSmallTileCost * small.pairs.executed < large.pairs.executed ? std::move(small)
                                                                      : std::move(large);
}

// ---- PackedTables ----

namespace {
constexpr std::size_t kAlignment = 16;  // kernels copy 16 bytes at a time

// Lays arrays down one after the other; with no image it only counts.
class Writer {
 public:
  Writer(void* image, void* base)
      : image_(static_cast<char*>(image)),
        base_(static_cast<char*>(base)) {}

  // Where the array lies once the image is at its base.
  template <class T>
  const T* put(const std::vector<T>& values) {
    const std::size_t at = used_, bytes = values.size() * sizeof(T);
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (image_ && bytes) std::memcpy(image_ + at, values.data(), bytes);
    return reinterpret_cast<const T*>(base_ + at);
  }

  std::size_t used() const { return used_; }

 private:
  char *image_, *base_;
  std::size_t used_ = 0;
};

// Whether each aligned group of `run` slots holds successive positions; empty only behind the
// sequence.
bool follows(const std::vector<int32_t>& order, std::size_t run, int64_t n) {
  for (std::size_t first = 0; first < order.size(); first += run)
    for (std::size_t i = 1; i < run; ++i) {
      const int64_t expected = order[first] < 0 ? -1 : order[first] + static_cast<int64_t>(i);
      if (order[first + i] != (expected < n ? expected : -1)) return false;
    }
  return true;
}

// The longest of 64, 32, 16 and 8, up to `longest`, that holds; 0: none.
int32_t run_of(const std::vector<int32_t>& order, int64_t n, int32_t longest) {
  for (int32_t run = longest; run >= 8; run /= 2)
    if (follows(order, static_cast<std::size_t>(run), n)) return run;
  return 0;
}

TileMap put(Writer& out, const TileTables& t) {
  TileMap map;
  map.query_tiles = t.query_tiles();
  map.key_tiles = t.key_tiles();
  map.query_order = out.put(t.query_order);
  map.key_order = out.put(t.key_order);
  map.row_start = out.put(t.row_start);
  map.row_tile = out.put(t.row_tile);
  map.row_mask = out.put(t.row_mask);
  map.col_start = out.put(t.col_start);
  map.col_tile = out.put(t.col_tile);
  map.col_mask = out.put(t.col_mask);
  map.col_turn = out.put(t.col_turn);
  map.row_schedule = out.put(t.row_schedule);
  map.col_schedule = out.put(t.col_schedule);
  map.masks = out.put(t.masks);
  map.masks_transposed = out.put(t.masks_transposed);
  return map;
}
}  // namespace

PackedTables::PackedTables(int64_t queries, int64_t keys, std::vector<int32_t> group_of_head,
                           int groups)
    : queries_(queries),
      keys_(keys),
      groups_(groups),
      group_of_head_(std::move(group_of_head)) {}

// The parts of a group run in order: a part goes into the first pass of its edge after the group's
// last one.
void PackedTables::add(int group, TileTables tables, const Band& band, bool accumulate) {
  const auto g = static_cast<std::size_t>(group);
  std::size_t first = passes_.size();
  while (first > 0 && passes_[first - 1].table_of_group[g] < 0) --first;
  while (first < passes_.size() && passes_[first].edge != tables.edge) ++first;
  if (first == passes_.size())
    passes_.push_back({tables.edge, std::vector<int>(groups_, -1), std::vector<bool>(groups_)});
  WEFT_CHECK(passes_.size() <= AttentionMaps::kMaxPasses, "attention: the heads need more than ",
             AttentionMaps::kMaxPasses, " passes; merge fewer patterns");
  passes_[first].table_of_group[g] = static_cast<int>(tables_.size());
  passes_[first].accumulate[g] = accumulate;
  tables_.push_back(std::move(tables));
  bands_.push_back(band);
}

Band PackedTables::band_of(const Pass& pass) const {
  const std::vector<int>& table = pass.table_of_group;
  for (std::size_t g = 0; g < table.size(); ++g)
    if (table[g] < 0 || pass.accumulate[g] != pass.accumulate[0] ||
        !(bands_[table[g]] == bands_[table[0]]))
      return {};
  return table.empty() ? Band{} : bands_[table[0]];
}

AttentionMaps PackedTables::write(void* image, void* base) const {
  Writer out(image, base);
  std::vector<TileMap> maps;
  for (const TileTables& t : tables_) maps.push_back(put(out, t));
  AttentionMaps result;
  result.passes = static_cast<int32_t>(passes_.size());
  result.groups = groups_;
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    AttentionPass& pass = result.pass[p];
    std::vector<TileMap> of_group(groups_);
    pass.query_run = pass.key_run = passes_[p].edge;
    for (std::size_t g = 0; g < of_group.size(); ++g) {
      if (passes_[p].table_of_group[g] < 0) continue;
      const auto table = static_cast<std::size_t>(passes_[p].table_of_group[g]);
      of_group[g] = maps[table];
      pass.query_run = run_of(tables_[table].query_order, queries_, pass.query_run);
      pass.key_run = run_of(tables_[table].key_order, keys_, pass.key_run);
      of_group[g].accumulate = passes_[p].accumulate[g];
      pass.query_tiles = std::max(pass.query_tiles, of_group[g].query_tiles);
      pass.key_tiles = std::max(pass.key_tiles, of_group[g].key_tiles);
      pass.visited = std::max(pass.visited, std::ssize(tables_[table].row_tile));
    }
    pass.edge = passes_[p].edge;
    pass.band = band_of(passes_[p]);
    pass.accumulate =
        std::all_of(passes_[p].accumulate.begin(), passes_[p].accumulate.end(), std::identity());
    pass.maps = out.put(of_group);
  }
  result.group_of_head = out.put(group_of_head_);
  return result;
}

std::size_t PackedTables::bytes() const {
  Writer count(nullptr, nullptr);
  for (const TileTables& t : tables_) put(count, t);
  const std::vector<TileMap> maps(groups_);
  for (std::size_t p = 0; p < passes_.size(); ++p) count.put(maps);
  count.put(group_of_head_);
  return count.used();
}

const TileTables* PackedTables::tables(int pass, int group) const {
  const int table = passes_.at(pass).table_of_group.at(group);
  return table < 0 ? nullptr : &tables_[table];
}
}  // namespace weft
