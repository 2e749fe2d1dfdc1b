// SPDX-License-Identifier: MIT
// What decides by content which keys a head sees: labels and their order, choices of blocks, lists for
// sampling.
#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/attention/content/blocks.h"
#include "kernels/attention/content/decode.h"
#include "kernels/attention/content/labels.h"
#include "kernels/attention/content/shared_qk.h"
#include "src/ops/content.h"
#include "train/kernel_cases/kernel_cases.h"

namespace weft {
namespace {

// B, T, H, D; labels, or blocks that are chosen; keys in a window.
struct Sizes {
  std::int64_t b, t, h, d, labels, window;
  std::int64_t sets() const { return b * h; }
  std::int64_t blocks() const { return (t + kTile - 1) / kTile; }
  std::string text() const {
    return str("B ", b, ", T ", t, ", H ", h, ", D ", d, ", ", labels, " labels, window ", window);
  }
};

HeadsView packed(const TensorView& x, const Sizes& s) { return heads_of(x, s.d, s.h, s.d); }
HeadsView input(CaseRun& r, const Sizes& s) { return packed(r.input({s.b, s.t, (s.h + 2) * s.d}), s); }
HeadsView updated(CaseRun& r, const char* name, const Sizes& s) {
  return packed(r.replaced(name, {s.b, s.t, (s.h + 2) * s.d}), s);
}
TensorView floats(CaseRun& r, const Shape& shape) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]));
  for (double& v : values) v = normal(random);
  return r.input_of(shape, DType::f32, values);
}
TensorView labels_of(CaseRun& r, const Sizes& s) { return r.integers({s.sets(), s.t}, 0, s.labels - 1); }
HeadRange half(const Sizes& s) {
  return {1, 2, static_cast<std::int32_t>(s.h / 2)};
}  // of twice as many heads

void directions(CaseRun& r, const Sizes& s, bool clusters) {
  LabelDirections k;
  k.directions = r.output("directions", {s.h, s.labels, s.d}, DType::f32);
  if (clusters) k.centroids = r.wide_input({s.h, s.labels, s.d});
  k.seed = 9, k.site = 3;
  k.step = r.step();
  r.kernel(k);
}

void labels(CaseRun& r, const Sizes& s, std::int32_t rounds) {
  Labels k;
  k.labels = r.output("labels", {std::max(1, rounds), s.b, s.h, s.t}, DType::i32);
  k.q = input(r, s);
  k.directions = floats(r, {rounds ? rounds : s.h, s.labels, s.d});
  k.rounds = rounds;
  r.kernel(k);
}

void order(CaseRun& r, const Sizes& s, bool documents) {
  LabelOrder k;
  k.order = r.output("order", {s.sets(), s.blocks() * kTile}, DType::i32);
  k.run = r.output("run", {s.sets(), s.t}, DType::i32);
  k.starts = r.output("starts", {s.sets(), s.labels + 1}, DType::i32);
  k.counts = r.scratch({s.sets(), (s.t + kLabelPiece - 1) / kLabelPiece, s.labels}, DType::i32);
  k.labels = labels_of(r, s);
  std::vector<double> starts;
  for (std::int64_t i = 0; i < s.b * s.t; ++i) starts.push_back(static_cast<double>(i % s.t / 50 * 50));
  if (documents) k.documents = r.input_of({s.b, s.t}, DType::i32, starts);
  k.heads = s.h;
  r.kernel(k);
}

// Members in order of position: label c has those from T c / labels on.
void cluster_sums(CaseRun& r, const Sizes& s) {
  ClusterSums k;
  k.sums = r.output("sums", {s.h, s.labels, s.d}, r.wide_type());
  k.partial = r.scratch({s.sets(), s.labels, kClusterPieces, s.d}, r.wide_type());
  k.inverse = r.scratch({s.sets(), s.t}, r.wide_type());
  k.q = input(r, s);
  std::vector<double> order, starts;
  for (std::int64_t i = 0; i < s.sets() * s.t; ++i) order.push_back(static_cast<double>(i % s.t));
  for (std::int64_t i = 0; i < s.sets() * (s.labels + 1); ++i)
    starts.push_back(static_cast<double>(s.t * (i % (s.labels + 1)) / s.labels));
  k.order = r.input_of({s.sets(), s.t}, DType::i32, order);
  k.starts = r.input_of({s.sets(), s.labels + 1}, DType::i32, starts);
  r.kernel(k);
}

void centroid_gradient(CaseRun& r, const Sizes& s) {
  CentroidGradient k;
  k.dm = r.wide_gradient("dm", {s.h, s.labels, s.d});
  k.sums = r.wide_input({s.h, s.labels, s.d});
  k.m = r.wide_input({s.h, s.labels, s.d});
  k.step = r.step();
  r.kernel(k);
}

void shared_keys(CaseRun& r, const Sizes& s, bool normed) {
  SharedKeysForward k;
  k.k = updated(r, "k", s);
  k.q = input(r, s);
  k.normed = normed;
  r.kernel(k);
}

void shared_keys_backward(CaseRun& r, const Sizes& s, bool normed) {
  SharedKeysBackward k;
  k.dq = updated(r, "dq", s);
  r.through_rounded();
  k.dk = updated(r, "dk", s);
  k.q = input(r, s);
  k.normed = normed;
  r.kernel(k);
}

// Every third row sees nothing.
TensorView some_lse(CaseRun& r, const Sizes& s) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < s.b * s.h * s.t; ++i) values.push_back(i % 3 ? 1.0 : -INFINITY);
  return r.input_of({s.b, s.h, s.t}, r.wide_type(), values);
}

void own_values(CaseRun& r, const Sizes& s) {
  OwnValuesForward k;
  k.y = updated(r, "y", s);
  k.v = input(r, s);
  k.lse = some_lse(r, s);
  k.heads = half(s);
  r.kernel(k);
}

void own_values_backward(CaseRun& r, const Sizes& s) {
  OwnValuesBackward k;
  k.dv = updated(r, "dv", s);
  k.dy = input(r, s);
  k.lse = some_lse(r, s);
  k.heads = half(s);
  r.kernel(k);
}

void block_choice(CaseRun& r, const Sizes& s) {
  BlockChoice k;
  k.chosen = r.output("chosen", {s.b, s.h, s.blocks(), std::min(s.window, s.blocks())}, DType::i32);
  k.sums = r.output("sums", {s.b, s.h, s.d, s.blocks()}, DType::f32);
  k.gates = r.scratch({s.b, s.h, s.blocks(), s.blocks()}, DType::f32);
  k.q = input(r, s);
  k.k = input(r, s);
  k.block = kTile;
  k.count = s.t;
  r.kernel(k);
}

// Block t chooses every other earlier one, from t % 2 on.
void block_maps(CaseRun& r, const Sizes& s) {
  PatternSpec spec;
  spec.kind = "topk_blocks", spec.block = kTile, spec.blocks = s.window;
  const auto maps = std::make_shared<DeviceMaps>(r.device(), *slots_of(spec), 1, s.t, s.d, kTile);
  r.keep(maps);
  const AttentionPass& pass = maps->maps().pass[0];
  const std::int64_t most = std::min(s.window, s.blocks());
  std::vector<double> chosen;
  for (std::int64_t i = 0; i < s.sets(); ++i)
    for (std::int64_t t = 0; t < s.blocks(); ++t) {
      const std::int64_t earlier = std::min(t, most - 1);
      for (std::int64_t m = 0; m < most; ++m)
        chosen.push_back(static_cast<double>(m > earlier     ? -1
                                             : m == earlier  ? t
                                             : 2 * m + 1 < t ? 2 * m + t % 2
                                                             : t - earlier + m));
    }
  BlockMaps k;
  k.row_tile = r.output("row_tile", {s.sets(), pass.visited}, DType::i32);
  k.col_start = r.output("col_start", {s.sets(), pass.key_tiles + 1}, DType::i32);
  k.col_tile = r.output("col_tile", {s.sets(), pass.visited}, DType::i32);
  k.col_mask = r.output("col_mask", {s.sets(), pass.visited}, DType::i32);
  k.made = static_cast<TileMap*>(r.scratch({s.sets() * std::int64_t{sizeof(TileMap)}}, DType::u8).data);
  k.map = pass.maps;
  k.chosen = r.input_of({s.sets(), s.blocks(), most}, DType::i32, chosen);
  k.block = kTile;
  r.kernel(k);
}

void place_maps(CaseRun& r, const Sizes& s) {
  const auto maps = std::make_shared<DeviceMaps>(r.device(), *make_pattern({"local", 5}, 1), 1, s.t, s.d);
  r.keep(maps);
  PlaceMaps k;
  k.made = static_cast<TileMap*>(r.scratch({2 * s.sets() * std::int64_t{sizeof(TileMap)}}, DType::u8).data);
  k.group_of_head = r.output("group_of_head", {2 * s.h}, DType::i32).as<std::int32_t>();
  k.maps = maps->maps().pass[0].maps;
  k.group = r.numbers(std::vector<double>(static_cast<std::size_t>(s.h), 0));
  k.of_sequence = 0;
  k.heads = {1, 2, static_cast<std::int32_t>(s.h)};
  k.accumulate = true;
  k.batch = s.b;
  k.all_heads = 2 * s.h;
  r.kernel(k);
}

// ---- sampling

template <class K>
void set_list(CaseRun& r, K& k, const Sizes& s, std::int64_t longest, std::int64_t position) {
  k.list = r.updated("list", {s.b, 2 * s.h, longest}, DType::i32, 0, 7);
  k.count = r.updated("count", {s.b, 2 * s.h}, DType::i32, 0, 7);
  k.position = r.numbers({static_cast<double>(position)});
  k.heads = {1, 2, static_cast<std::int32_t>(s.h)};
}

void label_list(CaseRun& r, const Sizes& s, bool first) {
  LabelList k;
  set_list(r, k, s, 2 * s.window, first ? 0 : s.t);
  k.members = r.updated("members", {2, s.b, s.h, s.labels, s.window}, DType::i32, 0, 5);
  k.sizes = r.updated("sizes", {2, s.b, s.h, s.labels}, DType::i32, 0, static_cast<double>(s.t / s.labels));
  k.labels = r.integers({2, s.b, s.h}, 0, s.labels - 1);
  k.first_key = r.integers({s.b}, 0, 9);
  r.kernel(k);
}

void block_list(CaseRun& r, const Sizes& s, bool first) {
  BlockList k;
  const std::int64_t most = std::min(s.window, s.blocks());
  set_list(r, k, s, most * kTile, first ? (s.t - 1) / kTile * kTile : s.t - 1);
  k.sums = r.updated("sums", {s.b, s.h, s.d, s.blocks()}, DType::f32, 1, 0);
  k.chosen = r.updated("chosen", {s.b, s.h, most}, DType::i32, 0, 0);
  k.gates = r.scratch({s.b, s.h, s.blocks()}, DType::f32);
  const Sizes one = {s.b, 1, s.h, s.d, s.labels, s.window};
  k.q = input(r, one);
  k.k = input(r, one);
  k.block = kTile;
  r.kernel(k);
}

void label_fill(CaseRun& r, const Sizes& s) {
  LabelFill k;
  k.members = r.updated("members", {1, s.b, s.h, s.labels, s.window}, DType::i32, 0, 5);
  k.sizes = r.updated("sizes", {1, s.b, s.h, s.labels}, DType::i32, 0, 5);
  k.labels = r.integers({1, s.h, s.t}, 0, s.labels - 1);
  k.first = s.b - 1, k.texts = 1;
  k.count = s.t - s.t / 3;
  r.kernel(k);
}

void block_fill(CaseRun& r, const Sizes& s) {
  BlockFill k;
  const std::int64_t most = std::min(s.window, s.blocks());
  k.sums = r.updated("sums", {s.b, s.h, s.d, s.blocks() + 1}, DType::f32, 0, 5);
  k.chosen = r.updated("chosen", {s.b, s.h, most}, DType::i32, 0, 5);
  k.text_sums = floats(r, {s.h, s.d, s.blocks()});
  k.text_chosen = r.integers({s.h, s.blocks(), most}, 0, 9);
  k.first = s.b - 1, k.texts = 1;
  k.count = s.t - 1;
  k.block = kTile;
  r.kernel(k);
}

}  // namespace

void add_content_cases(Table& t) {
  const auto add = [&](bool real, const Sizes& s) {
    for (const bool yes : {false, true}) {
      t.put<LabelDirections>(real, case_of(directions, s, yes), s.text(), yes ? ", clusters" : "");
      t.put<Labels>(real, case_of(labels, s, yes ? 2 : 0), s.text(), yes ? ", hashed" : "");
      t.put<LabelOrder>(real, case_of(order, s, yes), s.text(), yes ? ", documents" : "");
      t.put<SharedKeysForward>(real, case_of(shared_keys, s, yes), s.text(), yes ? ", normed" : "");
      t.put<SharedKeysBackward>(real, case_of(shared_keys_backward, s, yes), s.text(), yes ? ", normed" : "");
      t.put<LabelList>(real, case_of(label_list, s, yes), s.text(), yes ? ", first" : "");
      t.put<BlockList>(real, case_of(block_list, s, yes), s.text(), yes ? ", first" : "");
    }
    t.put<ClusterSums>(real, case_of(cluster_sums, s), s.text());
    t.put<CentroidGradient>(real, case_of(centroid_gradient, s), s.text());
    t.put<OwnValuesForward>(real, case_of(own_values, s), s.text());
    t.put<OwnValuesBackward>(real, case_of(own_values_backward, s), s.text());
    t.put<BlockChoice>(real, case_of(block_choice, s), s.text());
    t.put<BlockMaps>(real, case_of(block_maps, s), s.text());
    t.put<PlaceMaps>(real, case_of(place_maps, s), s.text());
    t.put<LabelFill>(real, case_of(label_fill, s), s.text());
    t.put<BlockFill>(real, case_of(block_fill, s), s.text());
  };
  for (const std::int64_t n : {1, 65, 300}) add(false, {2, n, 2, 16, 6, 3});
  for (const std::int64_t d : {8, 72, 136}) add(false, {1, 200, 2, d, 14, 7});
  add(true, {4, 12288, 8, 64, 48, 256});
}

}  // namespace weft
