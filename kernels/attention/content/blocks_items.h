// SPDX-License-Identifier: MIT
// The definitions of blocks.h, for CPU and CUDA.
#pragma once

#include "kernels/attention/content/blocks.h"
#include "kernels/attention/content/items.h"

namespace weft::content {

// ---- choice

template <class T>
WEFT_ITEM void block_sum_item(const BlockChoice& k, int64_t i) {
  const int64_t blocks = k.sums.shape[3], d = i % k.k.size, g = i / k.k.size % blocks,
                set = i / k.k.size / blocks;
  float sum = 0;
  for (int64_t j = g * k.block; j < (g + 1) * k.block && j < k.count; ++j)
    sum += static_cast<float>(row_at<const T>(k.k, set / k.k.heads, j, set % k.k.heads)[d]);
  data_of<float>(k.sums)[(set * k.k.size + d) * blocks + g] = sum;
}

// q . sums_g; sums have their features `stride` apart. NaN counts as the least number.
template <class T, int P>
WEFT_ITEM float gate_of(const T* query, int64_t size, const float* sums, int64_t stride) {
  const float gate = Query<T, P>(query, size).dot([=](float* x, int64_t d) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = sums[(d + i) * stride];
  });
  return gate == gate ? gate : -INFINITY;
}

template <class T, int P>
WEFT_ITEM void gate_item(const BlockChoice& k, int64_t i) {
  const int64_t blocks = k.sums.shape[3], t = i % blocks, g = i / blocks % blocks, set = i / blocks / blocks;
  if (g >= t) return;
  const T* query = row_at<const T>(k.q, set / k.q.heads, t * k.block, set % k.q.heads);
  data_of<float>(k.gates)[i] =
      gate_of<T, P>(query, k.q.size, data_of<const float>(k.sums) + set * k.q.size * blocks + g, blocks);
}

// Of block t: chosen[0 .. K - 1], by gates[g * stride]. One round finds the best behind the last one found.
WEFT_ITEM void choose(int32_t* chosen, int64_t most, const float* gates, int64_t stride, int32_t t) {
  float last = INFINITY;
  int32_t last_block = -1, count = 0;
  while (count < most - 1 && count < t) {
    float top = -INFINITY;
    int32_t best = -1;
    for (int32_t g = 0; g < t; ++g) {
      const float gate = gates[g * stride];
      if ((gate < last || (gate == last && g > last_block)) && (best < 0 || gate > top)) top = gate, best = g;
    }
    last = top, last_block = best;
    int32_t at = count++;
    for (; at > 0 && chosen[at - 1] > best; --at) chosen[at] = chosen[at - 1];
    chosen[at] = best;
  }
  chosen[count++] = t;
  for (; count < most; ++count) chosen[count] = -1;
}

WEFT_ITEM void choice_item(const BlockChoice& k, int64_t i) {
  const int64_t blocks = k.sums.shape[3], most = k.chosen.shape[3], t = i % blocks, set = i / blocks;
  choose(data_of<int32_t>(k.chosen) + i * most, most,
         data_of<const float>(k.gates) + set * blocks * blocks + t, blocks, static_cast<int32_t>(t));
}

template <class Queue>
void in_items(Queue& queue, const BlockChoice& k) {
  const int64_t sets = k.q.batch * k.q.heads, blocks = k.sums.shape[3];
  dispatch(queue, k.q.dtype, [&]<class T>() {
    for_items<block_sum_item<T>>(queue, k, k.sums.size());
    with_size(k.q.size, [&]<int P>() { for_items<gate_item<T, P>>(queue, k, sets * blocks * blocks); });
  });
  for_items<choice_item>(queue, k, sets * blocks);
}

// ---- maps

// What the items of one (batch, head) go through. Block t chooses min(t, K - 1) earlier ones.
struct Lists {
  const TileMap& map;
  const int32_t* chosen;
  int32_t *row_tile, *col_start, *col_tile, *col_mask;
  int64_t most;
  int32_t of_block, tiles;  // tiles of a block, and of all

  WEFT_ITEM Lists(const BlockMaps& k, int64_t set)
      : map(*k.map),
        chosen(data_of<const int32_t>(k.chosen) + set * k.chosen.shape[1] * k.chosen.shape[2]),
        row_tile(data_of<int32_t>(k.row_tile) + set * k.row_tile.shape[1]),
        col_start(data_of<int32_t>(k.col_start) + set * k.col_start.shape[1]),
        col_tile(data_of<int32_t>(k.col_tile) + set * k.row_tile.shape[1]),
        col_mask(data_of<int32_t>(k.col_mask) + set * k.row_tile.shape[1]),
        most(k.chosen.shape[2]),
        of_block(static_cast<int32_t>(k.block / kTile)),
        tiles(k.map->query_tiles) {}

  WEFT_ITEM int32_t earlier(int32_t t) const { return t < most - 1 ? t : static_cast<int32_t>(most - 1); }
  // Calls f(query tile, its entry) for each query tile that sees a key tile, ascending.
  template <class F>
  WEFT_ITEM void for_each_query(int32_t key, F&& f) const {
    const int32_t g = key / of_block, within = key % of_block, blocks = (tiles + of_block - 1) / of_block;
    for (int32_t t = g; t < blocks; ++t) {
      int32_t place = 0;
      while (place < earlier(t) && chosen[t * most + place] != g) ++place;
      if (t > g && place == earlier(t)) continue;
      for (int32_t tile = t > g ? t * of_block : key; tile < (t + 1) * of_block && tile < tiles; ++tile)
        f(tile, map.row_start[tile] + place * of_block + within);
    }
  }
};

WEFT_ITEM void row_tiles_item(const BlockMaps& k, int64_t i) {
  const int64_t tiles = k.col_start.shape[1] - 1;
  const Lists lists(k, i / tiles);
  const auto tile = static_cast<int32_t>(i % tiles), t = tile / lists.of_block;
  int32_t* out = lists.row_tile + lists.map.row_start[tile];
  for (int32_t place = 0; place < lists.earlier(t); ++place)
    for (int32_t u = 0; u < lists.of_block; ++u)
      *out++ = lists.chosen[t * lists.most + place] * lists.of_block + u;
  for (int32_t own = t * lists.of_block; own <= tile; ++own) *out++ = own;
}

WEFT_ITEM void column_count_item(const BlockMaps& k, int64_t i) {
  const int64_t tiles = k.col_start.shape[1] - 1;
  const Lists lists(k, i / tiles);
  int32_t count = 0;
  lists.for_each_query(static_cast<int32_t>(i % tiles), [&](int32_t, int32_t) { ++count; });
  lists.col_start[i % tiles + 1] = count;
}

WEFT_ITEM void made_item(const BlockMaps& k, int64_t set) {
  const Lists lists(k, set);
  lists.col_start[0] = 0;
  for (int32_t tile = 0; tile < lists.tiles; ++tile) lists.col_start[tile + 1] += lists.col_start[tile];
  TileMap map = lists.map;
  map.row_tile = lists.row_tile;
  map.col_start = lists.col_start, map.col_tile = lists.col_tile, map.col_mask = lists.col_mask;
  map.col_turn = nullptr;
  k.made[set] = map;
}

WEFT_ITEM void column_item(const BlockMaps& k, int64_t i) {
  const int64_t tiles = k.col_start.shape[1] - 1;
  const Lists lists(k, i / tiles);
  int32_t at = lists.col_start[i % tiles];
  lists.for_each_query(static_cast<int32_t>(i % tiles), [&](int32_t tile, int32_t entry) {
    lists.col_tile[at] = tile;
    lists.col_mask[at++] = lists.map.row_mask[entry];
  });
}

template <class Queue>
void in_items(Queue& queue, const BlockMaps& k) {
  const int64_t sets = k.col_start.shape[0], tiles = k.col_start.shape[1] - 1;
  for_items<row_tiles_item>(queue, k, sets * tiles);
  for_items<column_count_item>(queue, k, sets * tiles);
  for_items<made_item>(queue, k, sets);
  for_items<column_item>(queue, k, sets * tiles);
}

WEFT_ITEM void placed_item(const PlaceMaps& k, int64_t i) {
  const int64_t b = i / k.all_heads, h = i % k.all_heads, of_range = (h - k.heads.first) / k.heads.step;
  TileMap map;
  if (h >= k.heads.first && (h - k.heads.first) % k.heads.step == 0 && of_range < k.heads.count) {
    map = k.maps[b * k.of_sequence + (k.group ? k.group[of_range] : of_range)];
    map.accumulate = map.accumulate || k.accumulate;
  }
  k.made[i] = map;
  if (b == 0) k.group_of_head[h] = static_cast<int32_t>(h);
}

template <class Queue>
void in_items(Queue& queue, const PlaceMaps& k) {
  for_items<placed_item>(queue, k, k.batch * k.all_heads);
}

}  // namespace weft::content
