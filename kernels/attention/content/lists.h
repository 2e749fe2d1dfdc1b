// SPDX-License-Identifier: MIT
// The definitions of content.h, continued: blocks that are chosen, and lists for sampling.
#pragma once

#include "kernels/attention/content/items.h"

namespace weft::content {
// ---- choice of blocks

// A block and its gate. No block: -1.
struct Gate {
  float gate;
  int32_t block;

  // Gates are ordered from the largest on, equal ones by rising block.
  WEFT_ITEM bool ahead_of(const Gate& x) const {
    return x.block < 0 ? block >= 0
                       : block >= 0 && (gate > x.gate || (gate == x.gate && block < x.block));
  }
};

// The first of the lanes' gates.
WEFT_ITEM Gate first_of_lanes(Gate x) {
#ifdef __CUDA_ARCH__
  for (int o = kLanes / 2; o > 0; o /= 2) {
    const Gate other = {__shfl_xor_sync(kFullWarp, x.gate, o),
                        __shfl_xor_sync(kFullWarp, x.block, o)};
    if (other.ahead_of(x)) x = other;
  }
#endif
  return x;
}

// By lanes: chosen[0 .. K - 1] of block t, by gates[g]. One round finds the first behind the last
// one found.
WEFT_ITEM void choose(int32_t* chosen, int64_t most, const float* gates, int32_t t) {
  Gate last = {INFINITY, -1};
  for (int64_t round = 0; round < most - 1 && round < t; ++round) {
    Gate first = {0, -1};
    for (int32_t g = lane(); g < t; g += kLanes) {
      const Gate of_block = {gates[g], g};
      if ((round == 0 || last.ahead_of(of_block)) && of_block.ahead_of(first)) first = of_block;
    }
    last = first_of_lanes(first);
  }
  int32_t count = 0;
  for (int32_t from = 0; from < t && most > 1; from += kLanes) {
    const int32_t g = from + lane();
    const bool yes = g < t && !last.ahead_of({gates[g < t ? g : 0], g});
    const Votes seen = votes(yes);
    if (yes) chosen[count + seen.before] = g;
    count += seen.all;
  }
  for (int64_t place = count + lane(); place < most; place += kLanes)
    chosen[place] = place == count ? t : -1;
  sync_lanes();
}

WEFT_ITEM float number_or_least(float gate) { return gate == gate ? gate : -INFINITY; }

template <class T>
WEFT_ITEM void block_sum_item(const BlockMaps& k, int64_t i) {
  const int64_t blocks = k.sums.shape[2], eights = k.k.size / 8, g = i / eights % blocks,
                set = i / eights / blocks;
  float sum[8] = {};
  for (int64_t j = g * k.block; j < (g + 1) * k.block && j < k.k.time; ++j)
    combine_rows<float>(sum,
                        row_at<const T>(k.k, set / k.k.heads, j, set % k.k.heads) + i % eights * 8,
                        sum, 8, [](float x, float before) { return before + x; });
  write(data_of<float>(k.sums) + 8 * i, sum);
}

// Four gates of a block: by set, g / 4 and t.
template <class T>
WEFT_ITEM void gates_item(const BlockMaps& k, int64_t i) {
  const int64_t blocks = k.sums.shape[2], fours = (blocks + 3) / 4, t = i % blocks,
                g = i / blocks % fours * 4, set = i / blocks / fours;
  if (g >= t) return;
  float gates[1][4];
  dots(gates, row_at<const T>(k.q, set / k.q.heads, t * k.block, set % k.q.heads), 0,
       data_of<const float>(k.sums) + (set * blocks + g) * k.q.size, blocks - g, k.q.size);
  for (int j = 0; j < 4 && g + j < t; ++j)
    data_of<float>(k.gates)[(set * blocks + t) * blocks + g + j] = number_or_least(gates[0][j]);
}

// By lanes. The gates of a block become places of the others among those that are chosen, -1: none.
WEFT_ITEM void choice_item(const BlockMaps& k, int64_t i) {
  const int64_t of_lanes = i / kLanes, blocks = k.sums.shape[2], most = k.chosen.shape[3],
                t = of_lanes % blocks;
  int32_t* chosen = data_of<int32_t>(k.chosen) + of_lanes * most;
  float* gates = data_of<float>(k.gates) + of_lanes * blocks;
  choose(chosen, most, gates, static_cast<int32_t>(t));
  for (int64_t g = lane(); g <= t; g += kLanes) {
    float place = -1;
    for (int64_t p = 0; p < most; ++p)
      if (chosen[p] == g) place = static_cast<float>(p);
    gates[g] = place;
  }
}

// ---- maps

// The lists of one (batch, head).
struct Lists {
  const TileMap& map;
  int32_t *row_tile, *col_start, *col_tile, *col_mask;
  const float* places;  // of choice_item
  int64_t blocks, of_block;

  WEFT_ITEM Lists(const BlockMaps& k, int64_t set)
      : map(*k.map),
        row_tile(data_of<int32_t>(k.row_tile) + set * k.row_tile.shape[1]),
        col_start(data_of<int32_t>(k.col_start) + set * k.col_start.shape[1]),
        col_tile(data_of<int32_t>(k.col_tile) + set * k.row_tile.shape[1]),
        col_mask(data_of<int32_t>(k.col_mask) + set * k.row_tile.shape[1]),
        blocks(k.sums.shape[2]),
        of_block(k.block / kTile) {
    places = data_of<const float>(k.gates) + set * blocks * blocks;
  }

  // By lanes: calls f(query tile, its entry, n) for the n-th query tile that sees a key tile,
  // ascending. Returns how many there are.
  template <class F>
  WEFT_ITEM int32_t for_each_query(int64_t key, F&& f) const {
    const int64_t g = key / of_block;
    int32_t count = 0;
    for (int64_t first = key; first < map.query_tiles; first += kLanes) {
      const int64_t tile = first + lane();
      const float place = tile < map.query_tiles ? places[tile / of_block * blocks + g] : -1;
      const Votes seen = votes(place >= 0);
      if (place >= 0)
        f(static_cast<int32_t>(tile),
          static_cast<int32_t>(map.row_start[tile] + static_cast<int64_t>(place) * of_block +
                               key % of_block),
          count + seen.before);
      count += seen.all;
    }
    return count;
  }
};

WEFT_ITEM void row_tiles_item(const BlockMaps& k, int64_t i) {
  const int64_t tiles = k.col_start.shape[1] - 1, of_block = k.block / kTile,
                most = k.chosen.shape[3], set = i / tiles, tile = i % tiles, t = tile / of_block;
  const Lists lists(k, set);
  const int32_t* chosen = data_of<const int32_t>(k.chosen) + (set * k.chosen.shape[2] + t) * most;
  int32_t* out = lists.row_tile + lists.map.row_start[tile];
  for (int64_t place = 0; place < most && chosen[place] >= 0; ++place)
    for (int64_t u = chosen[place] * of_block; u < (chosen[place] + 1) * of_block && u <= tile; ++u)
      *out++ = static_cast<int32_t>(u);
}

// By lanes, like the next two.
WEFT_ITEM void column_count_item(const BlockMaps& k, int64_t i) {
  const int64_t of_lanes = i / kLanes, tiles = k.col_start.shape[1] - 1;
  const Lists lists(k, of_lanes / tiles);
  const int32_t count = lists.for_each_query(of_lanes % tiles, [](int32_t, int32_t, int32_t) {});
  if (lane() == 0) lists.col_start[of_lanes % tiles + 1] = count;
}

WEFT_ITEM void made_item(const BlockMaps& k, int64_t i) {
  const int64_t set = i / kLanes, tiles = k.col_start.shape[1] - 1;
  const Lists lists(k, set);
  int32_t sum = 0;
  for (int64_t first = 0; first <= tiles; first += kLanes) {
    const int64_t tile = first + lane();
    sum += sum_up_to(0 < tile && tile <= tiles ? lists.col_start[tile] : 0);
    if (tile <= tiles) lists.col_start[tile] = sum;
    sum = of_last_lane(sum);
  }
  if (lane() > 0) return;
  TileMap map = lists.map;
  map.row_tile = lists.row_tile;
  map.col_start = lists.col_start, map.col_tile = lists.col_tile, map.col_mask = lists.col_mask;
  map.col_turn = nullptr;
  k.made[set] = map;
}

WEFT_ITEM void column_item(const BlockMaps& k, int64_t i) {
  const int64_t of_lanes = i / kLanes, tiles = k.col_start.shape[1] - 1, key = of_lanes % tiles;
  const Lists lists(k, of_lanes / tiles);
  lists.for_each_query(key, [&](int32_t tile, int32_t entry, int32_t n) {
    const int32_t at = lists.col_start[key] + n;
    lists.col_tile[at] = tile, lists.col_mask[at] = lists.map.row_mask[entry];
  });
}

inline void in_items(AnyQueue& queue, const BlockMaps& k) {
  const int64_t sets = k.q.batch * k.q.heads, blocks = k.sums.shape[2],
                tiles = k.col_start.shape[1] - 1;
  dispatch(k.q.dtype, [&]<class T>() {
    for_items<block_sum_item<T>>(queue, k, k.sums.size() / 8);
    for_items<gates_item<T>>(queue, k, sets * ((blocks + 3) / 4) * blocks);
  });
  for_items<choice_item>(queue, k, sets * blocks * kLanes);
  for_items<row_tiles_item>(queue, k, sets * tiles);
  for_items<column_count_item>(queue, k, sets * tiles * kLanes);
  for_items<made_item>(queue, k, sets * kLanes);
  for_items<column_item>(queue, k, sets * tiles * kLanes);
}

// ---- sampling

// The place of a head's list; sets are (b, h) of the range.
template <class K>
WEFT_ITEM int64_t list_of(const K& k, int64_t set) {
  return set / k.heads.count * k.count.shape[1] + k.heads.head(set % k.heads.count);
}

// By set and place in the window.
WEFT_ITEM void label_list_item(const LabelList& k, int64_t i) {
  const auto window = static_cast<int32_t>(k.members.shape[4]),
             w = static_cast<int32_t>(i % window);
  const int64_t rounds = *k.position > 0 ? k.members.shape[1] : 0,  // at 0 there are no members
      heads = k.heads.count, set = i / window, place = list_of(k, set), b = set / heads,
                h = set % heads;
  int32_t* list = data_of<int32_t>(k.list) + place * k.list.shape[2];
  int32_t count = 0;
  for (int64_t r = 0; r < rounds; ++r) {
    const int32_t label =
        data_of<const int32_t>(k.labels)[(r * k.members.shape[0] + b) * heads + h];
    const int64_t of_label = ((b * rounds + r) * heads + h) * k.members.shape[3] + label;
    const int32_t size = data_of<const int32_t>(k.sizes)[of_label],
                  seen = size < window ? size : window;
    if (w < seen)
      list[count + w] =
          data_of<const int32_t>(k.members)[of_label * window + (size - seen + w) % window];
    count += seen;
  }
  if (w > 0) return;
  if (count == 0) list[0] = *k.position;
  data_of<int32_t>(k.count)[place] = count > 0 ? count : 1;
}

// By round and set.
WEFT_ITEM void member_item(const LabelList& k, int64_t i) {
  const int64_t batch = k.members.shape[0], rounds = k.members.shape[1], heads = k.heads.count,
                labels = k.members.shape[3], window = k.members.shape[4],
                positions = k.labels.shape[3],
                of_set =
                    ((i / heads % batch * rounds + i / heads / batch) * heads + i % heads) * labels;
  int32_t* sizes = data_of<int32_t>(k.sizes) + of_set;
  for (int64_t g = 0; *k.position == 0 && g < labels; ++g) sizes[g] = 0;
  for (int64_t t = 0; t < positions; ++t) {
    const int32_t label = data_of<const int32_t>(k.labels)[i * positions + t];
    data_of<int32_t>(k.members)[(of_set + label) * window + sizes[label]++ % window] =
        *k.position + static_cast<int32_t>(t);
  }
}

inline void in_items(AnyQueue& queue, const LabelList& k) {
  const int64_t sets = k.members.shape[0] * k.heads.count;
  if (k.labels.shape[3] == 1) for_items<label_list_item>(queue, k, sets * k.members.shape[4]);
  for_items<member_item>(queue, k, k.members.shape[1] * sets);
}

// By set, block and feature.
template <class T>
WEFT_ITEM void add_keys_item(const BlockList& k, int64_t i) {
  const int64_t size = k.k.size, d = i % size, g = i / size % k.sums.shape[2],
                set = i / size / k.sums.shape[2];
  const int64_t begin = g * k.block - *k.position, end = begin + k.block;  // among the positions
  if (end <= 0) return;
  float sum = begin < 0 ? data_of<float>(k.sums)[i] : 0;
  for (int64_t t = begin < 0 ? 0 : begin; t < end && t < k.k.time; ++t)
    sum += static_cast<float>(row_at<const T>(k.k, set / k.k.heads, t, set % k.k.heads)[d]);
  data_of<float>(k.sums)[i] = sum;
}

// The block of the last position; where its first query is, among the positions, or less than 0.
WEFT_ITEM int64_t last_block(const BlockList& k) { return (*k.position + k.k.time - 1) / k.block; }

WEFT_ITEM int64_t first_query(const BlockList& k) { return last_block(k) * k.block - *k.position; }

template <class T>
WEFT_ITEM void list_gate_item(const BlockList& k, int64_t i) {
  const int64_t blocks = k.sums.shape[2], set = i / blocks;
  if (first_query(k) >= 0 && i % blocks < last_block(k))
    data_of<float>(k.gates)[i] = number_or_least(
        dot_rows<float>(row_at<const T>(k.q, set / k.q.heads, first_query(k), set % k.q.heads),
                        data_of<const float>(k.sums) + i * k.q.size, k.q.size));
}

// By lanes.
WEFT_ITEM void list_choice_item(const BlockList& k, int64_t i) {
  const int64_t set = i / kLanes, most = k.chosen.shape[2], t = last_block(k),
                earlier = t < most - 1 ? t : most - 1;
  if (first_query(k) >= 0)
    choose(data_of<int32_t>(k.chosen) + set * most, most,
           data_of<const float>(k.gates) + set * k.gates.shape[2], static_cast<int32_t>(t));
  if (lane() == 0)
    data_of<int32_t>(k.count)[list_of(k, set)] =
        static_cast<int32_t>(earlier * k.block + *k.position + k.k.time - t * k.block);
}

WEFT_ITEM void block_list_item(const BlockList& k, int64_t i) {
  const int64_t longest = k.chosen.shape[2] * k.block, set = i / longest, at = i % longest,
                place = list_of(k, set);
  if (at < data_of<const int32_t>(k.count)[place])
    data_of<int32_t>(k.list)[place * k.list.shape[2] + at] = static_cast<int32_t>(
        data_of<const int32_t>(k.chosen)[set * k.chosen.shape[2] + at / k.block] * k.block +
        at % k.block);
}

inline void in_items(AnyQueue& queue, const BlockList& k) {
  const int64_t sets = k.q.batch * k.q.heads;
  dispatch(k.q.dtype, [&]<class T>() {
    for_items<add_keys_item<T>>(queue, k, k.sums.size());
    for_items<list_gate_item<T>>(queue, k, k.gates.size());
  });
  for_items<list_choice_item>(queue, k, sets * kLanes);
  for_items<block_list_item>(queue, k, sets * k.chosen.shape[2] * k.block);
}
}  // namespace weft::content
