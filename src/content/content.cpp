// SPDX-License-Identifier: MIT
#include "src/content/content.h"

#include "kernels/attention/documents.h"
#include "src/config/names.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
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

void add_labels(Ctx& ctx, const ContentLayer& layer, const DynamicRange& content, MapCache& cache,
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
  const KeptMaps windows = segment_maps(ctx, cache.get(*content.tiles, time, kTile).maps(), sorted,
                                        false, order, batch * q.heads);
  AttentionPass pass = windows.maps.pass[0];
  pass.query_run = pass.key_run = 0;  // positions of a label do not follow each other
  made.maps = maps_of(pass, pass.maps, rounds, batch, q.heads, cache);
  made.memory = windows.memory;
  made.shared_qk = true;
}

void add_blocks(Ctx& ctx, const DynamicRange& content, MapCache& cache, const HeadsView& q,
                const HeadsView& k, ContentMaps& made) {
  const PatternSpec& spec = content.spec;
  const int64_t blocks = ceil_of(q.time, spec.block), sets = q.batch * q.heads;
  const AttentionPass& pass = cache.get(*content.tiles, q.time, kTile).maps().pass[0];
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

Labels labels_of(Ctx& ctx, const ContentLayer& layer, const DynamicRange& content,
                 const HeadsView& q, const Tensor& centroids, std::vector<Tensor>& memory) {
  const PatternSpec& spec = content.spec;
  const HeadRange& heads = content.heads;
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

std::vector<std::shared_ptr<ContentMaps>> content_maps(Ctx& ctx, const ContentLayer& layer,
                                                       MapCache& cache, const Tensor& qkv,
                                                       const AttentionShape& shape,
                                                       const std::vector<Var>& centroids) {
  const auto [all_q, all_k, v] = packed_heads(qkv, shape.heads, shape.qk_size, shape.v_size);
  std::vector<std::shared_ptr<ContentMaps>> all;
  for (std::size_t i = 0; i < layer.heads.size(); ++i) {
    const DynamicRange& content = layer.heads[i];
    const HeadsView q = heads_in(all_q, content.heads), k = heads_in(all_k, content.heads);
    ContentMaps& made = *all.emplace_back(std::make_shared<ContentMaps>());
    made.heads = content.heads, made.normed = layer.normed;
    has_labels(content.spec) ? add_labels(ctx, layer, content, cache, q, centroids.at(i), made)
                             : add_blocks(ctx, content, cache, q, k, made);
  }
  return all;
}

void share_keys(Ctx& ctx, const ContentLayer& layer, const Tensor& qkv,
                const AttentionShape& shape) {
  const auto [q, k, v] = packed_heads(qkv, shape.heads, shape.qk_size, shape.v_size);
  for (const DynamicRange& content : layer.heads)
    if (has_labels(content.spec))
      ctx.launch(SharedKeys{
          .k = heads_in(k, content.heads),
          .q = heads_in(q, content.heads),
          .normed = layer.normed,
      });
}

DynamicMaps::Backward ContentMaps::attend(Ctx& ctx, const AttentionForward& all) const {
  AttentionForward f = all;
  for (HeadsView* x : {&f.y, &f.q, &f.k, &f.v}) *x = heads_in(*x, heads);
  f.maps = maps;
  const AttendedHeads attended = weft::attend(ctx, f);
  if (shared_qk) ctx.launch(OwnValues{.y = f.y, .x = f.v, .lse = attended.lse});
  if (!ctx.tape) return {};
  return [this, attended](Ctx& c, const HeadGradients& of_all) {
    const HeadGradients g{heads_in(of_all.dq, heads), heads_in(of_all.dk, heads),
                          heads_in(of_all.dv, heads), heads_in(of_all.dy, heads)};
    attend_backward(c, attended, g);
    if (shared_qk) {
      c.launch(OwnValues{.y = g.dv, .x = g.dy, .lse = attended.lse, .add = true});
      c.launch(SharedKeys{.k = g.dk, .q = attended.forward.q, .dq = g.dq, .normed = normed});
    }
    if (moved) c.pass_gradient(centroids, moved);
  };
}

void ContentMaps::add_seen(int head, SeenKeys& seen) const {
  for (int64_t h = 0; h < heads.count; ++h) {
    if (heads.head(h) != head) continue;
    weft::add_seen(maps, maps.map_of(0, h), seen);
    const Shape shape = labels ? labels.shape() : Shape{0, 0, 0, 0};  // (R, B, H, T)
    for (int64_t r = 0; r < shape[0]; ++r) {
      const int32_t* of_head =
          labels.view().as<int32_t>() + (r * shape[1] * shape[2] + h) * shape[3];
      std::map<int32_t, int64_t> members;
      for (int64_t t = 0; t < shape[3]; ++t) ++members[of_head[t]];
      std::vector<int64_t> sizes;
      for (const auto& [label, size] : members) sizes.push_back(size);
      seen.notes += str(sizes.size(), " labels in use, sizes ", joined(sizes, " "), "\n");
    }
  }
}

int64_t content_bytes(const ContentLayer& layer, const AttentionShape& shape, int64_t batch,
                      int64_t time, bool training) {
  int64_t bytes = 0;
  for (const DynamicRange& range : layer.heads) {
    const PatternSpec& spec = range.spec;
    const AttentionPass pass =
        PackedMaps(*range.tiles, 1, time, shape.qk_size, kTile).write(nullptr, nullptr).pass[0];
    const int64_t of_set = has_labels(spec) ? segment_table_size(pass) + pass.query_tiles * kTile
                                            : 3 * pass.visited + pass.key_tiles + 1;
    bytes += range.passes * batch * range.heads.count * (4 * of_set + int64_t{sizeof(TileMap)});
    if (training && spec.kind == "routing")
      bytes += 4 * range.heads.count * labels_of(spec, layer.context) * shape.qk_size;
  }
  return bytes;
}
}  // namespace weft
