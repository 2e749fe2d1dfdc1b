// SPDX-License-Identifier: MIT
#include "src/ops/content.h"

#include "kernels/attention/documents.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

namespace weft {
namespace {
int64_t ceil_of(int64_t n, int64_t step) { return (n + step - 1) / step; }

// Passes with a map for each sequence and head.
AttentionMaps maps_of(const AttentionPass& pass, const TileMap* made, int64_t passes, int64_t batch,
                      int64_t heads, const MapCache& cache) {
  AttentionMaps maps;
  maps.passes = static_cast<int32_t>(passes);
  maps.groups = maps.of_sequence = static_cast<int32_t>(heads);
  maps.group_of_head = cache.numbers();
  for (int64_t p = 0; p < passes; ++p) {
    maps.pass[p] = pass;
    maps.pass[p].maps = made + p * batch * heads;
    maps.pass[p].band = {};
    maps.pass[p].accumulate = p > 0;
    maps.pass[p].visited = 0;  // no kernel takes turns that are static
  }
  return maps;
}

void add_centroids(Ctx& ctx, ContentMaps& made, const Labels& labels, const Var& centroids) {
  const int64_t* shape = labels.directions.shape;
  const DType w = centroids.dtype();
  made.centroids = centroids, made.moved = ctx.empty({shape[0], shape[1], shape[2]}, w);
  const Tensor partial = ctx.empty({labels.q.batch * made.moved.size() * kClusterPieces}, w);
  ctx.launch(CentroidGradient{made.moved, centroids.value.reshaped(made.moved.shape()), partial,
                              labels.q, labels.order, labels.starts, ctx.step});
}

void add_labels(Ctx& ctx, const ContentLayer& layer, const ContentHeads& content, MapCache& cache,
                const HeadsView& q, const Var& centroids, ContentMaps& made) {
  const int64_t rounds = rounds_of(content.spec), batch = q.batch, sets = rounds * batch * q.heads,
                time = q.time, count = labels_of(content.spec, layer.context);
  const auto table = [&](int64_t columns) { return ctx.empty({sets, columns}, DType::i32); };
  std::vector<Tensor> memory;
  Labels labels = labels_of(ctx, layer, content, q, centroids.value, memory);
  const Tensor order = table(ceil_of(time, kTile) * kTile), sorted = table(time),
               starts = table(count + 1);
  labels.order = order, labels.sorted = sorted, labels.starts = starts;
  ctx.launch(labels);
  if (!ctx.tape) made.labels = memory[0], made.directions = memory[1];
  if (ctx.tape && centroids.gradient) add_centroids(ctx, made, labels, centroids);
  const KeptMaps windows = segment_maps(ctx, cache.get(*slots_of(content.spec), time, kTile).maps(),
                                        sorted, false, order, batch * q.heads);
  AttentionPass pass = windows.maps.pass[0];
  pass.query_run = pass.key_run = 0;  // positions of a label do not follow each other
  made.maps = maps_of(pass, pass.maps, rounds, batch, q.heads, cache);
  made.memory = windows.memory;
  made.shared_qk = true;
}

void add_blocks(Ctx& ctx, const PatternSpec& spec, MapCache& cache, const HeadsView& q,
                const HeadsView& k, ContentMaps& made) {
  const int64_t blocks = ceil_of(q.time, spec.block), sets = q.batch * q.heads;
  const AttentionPass& pass = cache.get(*slots_of(spec), q.time, kTile).maps().pass[0];
  const auto table = [&](int64_t columns) {
    return made.memory.emplace_back(ctx.empty({sets, columns}, DType::i32));
  };
  const Tensor maps = made.memory.emplace_back(
                   ctx.empty({sets * int64_t{sizeof(TileMap)}}, DType::u8)),
               chosen =
                   ctx.empty({q.batch, q.heads, blocks, std::min(spec.blocks, blocks)}, DType::i32),
               sums = ctx.empty({q.batch, q.heads, blocks, q.size}, DType::f32),
               gates = ctx.empty({q.batch, q.heads, blocks, blocks}, DType::f32);
  auto* of_heads = static_cast<TileMap*>(maps.view().data);
  const Tensor row_tile = table(pass.visited), col_start = table(pass.key_tiles + 1),
               col_tile = table(pass.visited), col_mask = table(pass.visited);
  ctx.launch(BlockMaps{row_tile, col_start, col_tile, col_mask, of_heads, pass.maps, chosen, sums,
                       gates, q, k, spec.block});
  made.maps = maps_of(pass, of_heads, 1, q.batch, q.heads, cache);
}
}  // namespace

Labels labels_of(Ctx& ctx, const ContentLayer& layer, const ContentHeads& content,
                 const HeadsView& q, const Tensor& centroids, std::vector<Tensor>& memory) {
  const auto& [spec, heads] = content;
  const int64_t rounds = rounds_of(spec), columns = hash_columns(spec, layer.context);
  const Tensor labels = ctx.empty({rounds, q.batch, heads.count, q.time}, DType::i32),
               directions = ctx.empty(centroids ? Shape{heads.count, spec.clusters, q.size}
                                                : Shape{rounds, columns, q.size},
                                      DType::f32);
  memory.insert(memory.end(), {labels, directions});
  Labels k{labels, directions, q, centroids, layer.seed};
  k.site = ~layer.layer;  // dropout counts its sites from 0
  k.step = ctx.training ? ctx.step : nullptr;
  return k;
}

std::vector<ContentMaps> content_maps(Ctx& ctx, const ContentLayer& layer, MapCache& cache,
                                      const Tensor& qkv, const AttentionShape& shape,
                                      const std::vector<Var>& centroids) {
  const auto [all_q, all_k, v] = packed_heads(qkv, shape.heads, shape.qk_size, shape.v_size);
  std::vector<ContentMaps> all;
  for (std::size_t i = 0; i < layer.heads.size(); ++i) {
    const ContentHeads& content = layer.heads[i];
    const HeadsView q = heads_in(all_q, content.heads), k = heads_in(all_k, content.heads);
    ContentMaps& made = all.emplace_back();
    made.heads = content.heads, made.normed = layer.normed;
    has_labels(content.spec) ? add_labels(ctx, layer, content, cache, q, centroids.at(i), made)
                             : add_blocks(ctx, content.spec, cache, q, k, made);
  }
  return all;
}

void share_keys(Ctx& ctx, const KeptMaps& maps, const Tensor& qkv, const AttentionShape& shape) {
  const auto [q, k, v] = packed_heads(qkv, shape.heads, shape.qk_size, shape.v_size);
  for (const ContentMaps& content : maps.content)
    if (content.shared_qk)
      ctx.launch(SharedKeys{
          .k = heads_in(k, content.heads),
          .q = heads_in(q, content.heads),
          .normed = content.normed,
      });
}

SeenKeys seen_keys(const KeptMaps& kept, int head, int64_t time) {
  SeenKeys seen;
  seen.keys.resize(static_cast<std::size_t>(time));
  const auto look = [&](const TileMap& m, int edge) {
    for (int32_t slot = 0; slot < m.query_tiles * edge; ++slot)
      for (int32_t e = m.row_start[slot / edge];
           e < m.row_start[slot / edge + 1] && m.query_order[slot] >= 0; ++e)
        for (int c = 0; c < edge && m.row_mask[e] != kSkip; ++c, ++seen.executed)
          if (m.row_mask[e] < 0 || m.masks[int64_t{m.row_mask[e]} * edge + slot % edge] >> c & 1)
            seen.keys[static_cast<std::size_t>(m.query_order[slot])].push_back(
                m.key_order[int64_t{m.row_tile[e]} * edge + c]);
  };
  std::vector<ContentMaps> parts = kept.content;
  parts.insert(parts.begin(), ContentMaps{{0, 1, head + 1}, kept.maps});
  for (const ContentMaps& part : parts)
    for (int64_t h = 0; h < part.heads.count; ++h) {
      if (part.heads.head(h) != head) continue;
      for (int p = 0; p < part.maps.passes; ++p)
        look(part.maps.pass[p].maps[part.maps.map_of(0, h)], part.maps.pass[p].edge);
      const Shape shape = part.labels ? part.labels.shape() : Shape{0, 0, 0, 0};  // (R, B, H, T)
      for (int64_t r = 0; r < shape[0]; ++r) {
        const int32_t* labels =
            part.labels.view().as<int32_t>() + (r * shape[1] * shape[2] + h) * shape[3];
        std::map<int32_t, int64_t> sizes;
        for (int64_t t = 0; t < shape[3]; ++t) ++sizes[labels[t]];
        for (seen.label_sizes.emplace_back(); const auto& [label, size] : sizes)
          seen.label_sizes.back().push_back(size);
      }
    }
  return seen;
}

int64_t content_bytes(const AttentionPattern& pattern, int64_t heads, int64_t qk_size,
                      int64_t batch, int64_t time, int64_t context, bool training) {
  int64_t bytes = 0;
  for (const auto& [spec, range] : content_of(pattern, static_cast<int>(heads))) {
    const AttentionPass pass =
        PackedMaps(*slots_of(spec), 1, time, qk_size, kTile).write(nullptr, nullptr).pass[0];
    const int64_t of_set = has_labels(spec) ? segment_table_size(pass) + pass.query_tiles * kTile
                                            : 3 * pass.visited + pass.key_tiles + 1;
    bytes += rounds_of(spec) * batch * range.count * (4 * of_set + int64_t{sizeof(TileMap)});
    if (training && spec.kind == "routing")
      bytes += 4 * range.count * labels_of(spec, context) * qk_size;
  }
  return bytes;
}
}  // namespace weft
