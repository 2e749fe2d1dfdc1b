// SPDX-License-Identifier: MIT
#include "src/ops/content.h"

#include <algorithm>

#include "kernels/attention/content/blocks.h"
#include "kernels/attention/content/labels.h"
#include "kernels/attention/content/shared_qk.h"
#include "kernels/attention/documents.h"

namespace weft {
namespace {

using std::int32_t, std::int64_t;

int64_t ceil_of(int64_t n, int64_t step) { return (n + step - 1) / step; }

// Builds the maps of one batch.
class Builder {
 public:
  Builder(Ctx& ctx, const ContentLayer& layer, const TensorView& qkv, const AttentionShape& shape,
          const ContentOptions& options)
      : ctx_(ctx),
        layer_(layer),
        options_(options),
        heads_(shape.heads),
        batch_(qkv.shape[0]),
        time_(qkv.shape[1]),
        q_(heads_of(qkv, 0, shape.heads, shape.qk_size)),
        k_(heads_of(qkv, shape.heads * shape.qk_size, shape.heads, shape.qk_size)) {}

  KeptMaps build(const KeptMaps& fixed, const std::vector<Var>& centroids) {
    kept_ = fixed;
    int32_t passes = fixed.maps.passes;
    for (const ContentHeads& content : layer_.heads) passes += static_cast<int32_t>(rounds_of(content.spec));
    WEFT_CHECK(passes <= AttentionMaps::kMaxPasses, "attention: the heads of a layer need ", passes,
               " passes; at most ", AttentionMaps::kMaxPasses, " work: use fewer rounds or patterns");
    made_ = keep({passes * batch_ * heads_ * int64_t{sizeof(TileMap)}}, DType::u8);
    group_ = keep({heads_}, DType::i32);
    kept_.maps.passes = 0;
    for (int p = 0; p < fixed.maps.passes; ++p) {
      const AttentionPass& pass = fixed.maps.pass[p];
      place(pass, pass.maps, fixed.maps.group_of_head, fixed.maps.of_sequence,
            {0, 1, static_cast<int32_t>(heads_)}, pass.accumulate);
    }
    for (std::size_t i = 0; i < layer_.heads.size(); ++i) {
      if (options_.states) options_.states->emplace_back();
      has_labels(layer_.heads[i].spec) ? add_labels(layer_.heads[i], centroids.at(i))
                                       : add_blocks(layer_.heads[i]);
    }
    kept_.maps.group_of_head = group_.view().as<int32_t>();
    kept_.maps.groups = kept_.maps.of_sequence = static_cast<int32_t>(heads_);
    return std::move(kept_);
  }

 private:
  Tensor keep(const Shape& shape, DType dtype) { return kept_.memory.emplace_back(ctx_.empty(shape, dtype)); }
  static TileMap* maps_in(const Tensor& memory, int64_t first = 0) {
    return static_cast<TileMap*>(memory.view().data) + first;
  }

  // The next pass.
  void place(AttentionPass pass, const TileMap* maps, const int32_t* group, int64_t of_sequence,
             const HeadRange& heads, bool accumulate) {
    TileMap* made = maps_in(made_, kept_.maps.passes * batch_ * heads_);
    ctx_.launch(PlaceMaps{made, group_.view().as<int32_t>(), maps, group, static_cast<int32_t>(of_sequence),
                          heads, accumulate, batch_, heads_});
    pass.maps = made;
    pass.band = {};
    pass.accumulate = accumulate;
    pass.visited = 0;  // no kernel takes turns that are static
    kept_.maps.pass[kept_.maps.passes++] = pass;
  }

  void add_labels(const ContentHeads& content, const Var& centroids) {
    const HeadsView q = heads_in(q_, content.heads);
    const int64_t rounds = rounds_of(content.spec), sets = rounds * batch_ * q.heads,
                  slots = ceil_of(time_, kTile) * kTile, labels = labels_of(content.spec, layer_.context);
    const Tensor label = ctx_.empty({sets, time_}, DType::i32), order = ctx_.empty({sets, slots}, DType::i32),
                 run = ctx_.empty({sets, time_}, DType::i32),
                 starts = ctx_.empty({sets, labels + 1}, DType::i32);
    {
      const Tensor directions = label_directions(ctx_, layer_, content, centroids.value, q.size);
      ctx_.launch(
          Labels{label, q, directions, static_cast<int32_t>(content.spec.kind == "lsh" ? rounds : 0)});
    }
    {
      const Tensor counts = ctx_.empty({sets, ceil_of(time_, kLabelPiece), labels}, DType::i32);
      ctx_.launch(LabelOrder{order, run, starts, counts, label, options_.documents, q.heads});
    }
    if (options_.states) options_.states->back().labels = label.reshaped({rounds, batch_, q.heads, time_});
    if (ctx_.tape && centroids.gradient)
      add_centroids(q, centroids, {q.heads, labels, q.size}, order, starts);
    const KeptMaps windows =
        segment_maps(ctx_, options_.maps->get(*slots_of(content.spec), time_, kTile).maps(), run, order);
    AttentionPass pass = windows.maps.pass[0];
    pass.query_run = pass.key_run = 0;  // positions of a label do not follow each other
    for (int64_t r = 0; r < rounds; ++r)
      place(pass, pass.maps + r * batch_ * q.heads, nullptr, q.heads, content.heads, r > 0);
    kept_.memory.insert(kept_.memory.end(), windows.memory.begin(), windows.memory.end());
    kept_.shared_qk.push_back(content.heads);
  }

  void add_centroids(const HeadsView& q, const Var& centroids, const Shape& shape, const Tensor& order,
                     const Tensor& starts) {
    const Tensor sums = ctx_.empty(shape, centroids.dtype()),
                 partial = ctx_.empty({batch_ * sums.size() * kClusterPieces}, centroids.dtype()),
                 inverse = ctx_.empty({batch_, q.heads, time_}, centroids.dtype());
    ctx_.launch(ClusterSums{sums, partial, inverse, q, order, starts});
    kept_.centroids.push_back({centroids, sums});
  }

  void add_blocks(const ContentHeads& content) {
    WEFT_CHECK(!options_.documents, "topk_blocks takes no documents; leave data.separator out");
    const HeadsView q = heads_in(q_, content.heads), k = heads_in(k_, content.heads);
    const int64_t block = content.spec.block, blocks = ceil_of(time_, block), sets = batch_ * q.heads,
                  most = std::min(content.spec.blocks, blocks);
    const Tensor chosen = ctx_.empty({batch_, q.heads, blocks, most}, DType::i32),
                 sums = ctx_.empty({batch_, q.heads, q.size, blocks}, DType::f32);
    {
      const Tensor gates = ctx_.empty({batch_, q.heads, blocks, blocks}, DType::f32);
      ctx_.launch(BlockChoice{chosen, sums, gates, q, k, block, options_.count ? options_.count : time_});
    }
    if (options_.states) options_.states->back() = {.labels = {}, .chosen = chosen, .sums = sums};
    const AttentionPass& pass = options_.maps->get(*slots_of(content.spec), time_, kTile).maps().pass[0];
    const auto list = [&] { return keep({sets, pass.visited}, DType::i32); };
    const Tensor made = keep({sets * int64_t{sizeof(TileMap)}}, DType::u8);
    ctx_.launch(BlockMaps{.row_tile = list(),
                          .col_start = keep({sets, pass.key_tiles + 1}, DType::i32),
                          .col_tile = list(),
                          .col_mask = list(),
                          .made = maps_in(made),
                          .map = pass.maps,
                          .chosen = chosen.reshaped({sets, blocks, most}),
                          .block = block});
    place(pass, maps_in(made), nullptr, q.heads, content.heads, false);
  }

  Ctx& ctx_;
  const ContentLayer& layer_;
  const ContentOptions& options_;
  int64_t heads_, batch_, time_;
  HeadsView q_, k_;
  KeptMaps kept_{AttentionMaps{}};
  Tensor made_, group_;
};

}  // namespace

Tensor label_directions(Ctx& ctx, const ContentLayer& layer, const ContentHeads& content,
                        const Tensor& centroids, int64_t qk_size) {
  const PatternSpec& spec = content.spec;
  const Tensor directions =
      ctx.empty(centroids ? Shape{content.heads.count, spec.clusters, qk_size}
                          : Shape{rounds_of(spec), hash_columns(spec, layer.context), qk_size},
                DType::f32);
  ctx.launch(LabelDirections{.directions = directions,
                             .centroids = centroids,
                             .seed = layer.seed,
                             .site = ~layer.layer,  // dropout counts its sites from 0
                             .step = ctx.training ? ctx.step : nullptr});
  return directions;
}

KeptMaps content_maps(Ctx& ctx, const ContentLayer& layer, const KeptMaps& fixed, const Tensor& qkv,
                      const AttentionShape& shape, const std::vector<Var>& centroids,
                      const ContentOptions& options) {
  return Builder(ctx, layer, qkv, shape, options).build(fixed, centroids);
}

void share_keys(Ctx& ctx, const KeptMaps& maps, const Tensor& qkv, const AttentionShape& shape) {
  const HeadsView q = heads_of(qkv, 0, shape.heads, shape.qk_size),
                  k = heads_of(qkv, shape.heads * shape.qk_size, shape.heads, shape.qk_size);
  for (const HeadRange& range : maps.shared_qk)
    ctx.launch(SharedKeysForward{.k = heads_in(k, range), .q = heads_in(q, range), .normed = maps.normed});
}

int64_t append_keys(const AttentionMaps& maps, int head, int64_t time,
                    std::vector<std::vector<int32_t>>& keys) {
  keys.resize(static_cast<std::size_t>(time));
  int64_t executed = 0;
  for (int p = 0; p < maps.passes; ++p) {
    const TileMap& m = maps.pass[p].maps[maps.map_of(0, head)];
    const int edge = maps.pass[p].edge;
    for (int32_t slot = 0; slot < m.query_tiles * edge; ++slot)
      for (int32_t e = m.row_start[slot / edge]; e < m.row_start[slot / edge + 1] && m.query_order[slot] >= 0;
           ++e)
        for (int c = 0; c < edge && m.row_mask[e] != kSkip; ++c, ++executed)
          if (m.row_mask[e] < 0 || m.masks[int64_t{m.row_mask[e]} * edge + slot % edge] >> c & 1)
            keys[static_cast<std::size_t>(m.query_order[slot])].push_back(
                m.key_order[int64_t{m.row_tile[e]} * edge + c]);
  }
  return executed;
}

void append_label_sizes(const ContentHeads& content, const ContentState& state, int64_t context, int head,
                        std::vector<std::vector<int64_t>>& sizes) {
  const int64_t of_range = (head - content.heads.first) / content.heads.step;
  if (!state.labels || content.heads.head(of_range) != head || of_range < 0 ||
      of_range >= content.heads.count)
    return;
  const Shape shape = state.labels.shape();  // (R, B, H, T)
  for (int64_t r = 0; r < shape[0]; ++r) {
    std::vector<int64_t>& counts =
        sizes.emplace_back(static_cast<std::size_t>(labels_of(content.spec, context)));
    for (int64_t t = 0; t < shape[3]; ++t)
      ++counts[static_cast<std::size_t>(
          state.labels.view().as<int32_t>()[(r * shape[1] * shape[2] + of_range) * shape[3] + t])];
  }
}

ContentBytes content_bytes(const AttentionPattern& pattern, int64_t heads, int64_t qk_size, int64_t batch,
                           int64_t time, int64_t context, bool training) {
  ContentBytes bytes;
  for (const auto& [spec, range] : content_of(pattern, static_cast<int>(heads))) {
    const PackedMaps tables(*slots_of(spec), 1, time, qk_size, kTile);
    const AttentionPass pass = tables.write(nullptr, nullptr).pass[0];
    const int64_t sets = rounds_of(spec) * batch * range.count, row = qk_size * int64_t{sizeof(float)};
    bytes.kept +=
        sets * int64_t{sizeof(TileMap)} + rounds_of(spec) * batch * heads * int64_t{sizeof(TileMap)};
    if (has_labels(spec)) {
      const int64_t labels = labels_of(spec, context);
      bytes.kept += 4 * sets * (segment_table_size(pass) + pass.query_tiles * kTile);
      bytes.scratch = std::max(bytes.scratch, 4 * sets * (2 * time + labels * ceil_of(time, kLabelPiece)));
      if (training && spec.kind == "routing") {
        bytes.kept += range.count * labels * row;
        bytes.scratch =
            std::max(bytes.scratch, 4 * sets * 2 * time + sets * (labels * kClusterPieces * row + 4 * time));
      }
    } else {
      const int64_t blocks = ceil_of(time, spec.block);
      bytes.kept += 4 * sets * (3 * pass.visited + pass.key_tiles + 1);
      bytes.scratch = std::max(bytes.scratch, 4 * sets * blocks * (blocks + qk_size + spec.blocks));
    }
  }
  return bytes;
}

}  // namespace weft
