// SPDX-License-Identifier: MIT
// What decides by content which keys a head sees: labels and their order, chosen blocks, lists for
// sampling.
#include "kernels/attention/content/content.h"

#include "src/content/content.h"
#include "tests/cases/kernel_cases.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
// B, T, H, D; clusters, or columns of signs; keys in a window, or blocks that are chosen.
struct Sizes {
  int64_t b, t, h, d, labels, window;

  int64_t sets() const { return b * h; }

  int64_t blocks() const { return (t + kTile - 1) / kTile; }

  int64_t most() const { return std::min(window, blocks()); }

  std::string text() const {
    return str("B ", b, ", T ", t, ", H ", h, ", D ", d, ", ", labels, " labels, window ", window);
  }
};

HeadsView packed(const TensorView& x, const Sizes& s) { return heads_of(x, s.d, s.h, s.d); }

HeadsView input(CaseRun& r, const Sizes& s) {
  return packed(r.input({s.b, s.t, (s.h + 2) * s.d}), s);
}

HeadsView updated(CaseRun& r, const char* name, const Sizes& s) {
  return packed(r.replaced(name, {s.b, s.t, (s.h + 2) * s.d}), s);
}

// f(0) .. f(n - 1)
template <class F>
std::vector<double> values(int64_t n, const F& f) {
  std::vector<double> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(static_cast<double>(f(i)));
  return all;
}

void labels(CaseRun& r, const Sizes& s, bool hashed) {
  const int64_t rounds = hashed ? 2 : 1, sets = rounds * s.sets(),
                count = hashed ? s.labels * s.labels : s.labels;
  Labels k;
  k.labels = r.output("labels", {rounds, s.b, s.h, s.t}, DType::i32);
  k.directions = r.output("directions", {hashed ? rounds : s.h, s.labels, s.d}, DType::f32);
  k.q = input(r, s);
  if (!hashed) k.centroids = r.wide_input({s.h, s.labels, s.d});
  k.seed = 9, k.site = 3, k.step = r.step();
  k.order = r.output("order", {sets, s.blocks() * kTile}, DType::i32);
  k.sorted = r.output("sorted", {sets, s.t}, DType::i32);
  k.starts = r.output("starts", {sets, count + 1}, DType::i32);
  r.kernel(k);
}

// Members in order of position: label c has those from T c / labels on.
void centroid_gradient(CaseRun& r, const Sizes& s) {
  const int64_t sets = s.sets(), n = s.labels + 1;
  const auto order = values(sets * s.t, [&](int64_t i) { return i % s.t; });
  const auto starts = values(sets * n, [&](int64_t i) { return s.t * (i % n) / s.labels; });
  CentroidGradient k;
  k.dm = r.output("dm", {s.h, s.labels, s.d}, r.wide_type());
  k.m = r.wide_input({s.h, s.labels, s.d});
  k.partial = r.scratch({sets, s.labels, kClusterPieces, s.d}, r.wide_type());
  k.q = input(r, s);
  k.order = r.input_of({sets, s.t}, DType::i32, order),
  k.starts = r.input_of({sets, n}, DType::i32, starts);
  k.step = r.step();
  r.kernel(k);
}

void shared_keys(CaseRun& r, const Sizes& s, bool backward, bool normed) {
  SharedKeys k;
  if (backward) k.dq = updated(r, "dq", s);
  k.k = updated(r, "k", s), k.q = input(r, s), k.normed = normed;
  r.kernel(k);
}

// Every third row sees nothing.
void own_values(CaseRun& r, const Sizes& s, bool add) {
  const auto lse = values(s.sets() * s.t, [](int64_t i) { return i % 3 ? 1.0 : -INFINITY; });
  r.kernel(OwnValues{updated(r, "y", s), input(r, s),
                     r.input_of({s.b, s.h, s.t}, r.wide_type(), lse), add});
}

void block_maps(CaseRun& r, const Sizes& s) {
  PatternSpec spec;
  spec.kind = "topk_blocks", spec.block = kTile, spec.blocks = s.window;
  const auto maps = std::make_shared<DeviceMaps>(r.device(), *slots_of(spec), 1, s.t, s.d, kTile);
  r.keep(maps);
  const AttentionPass& pass = maps->maps().pass[0];
  const auto table = [&](const char* name, int64_t columns) {
    return r.output(name, {s.sets(), columns}, DType::i32);
  };
  r.kernel(BlockMaps{
      table("row_tile", pass.visited), table("col_start", pass.key_tiles + 1),
      table("col_tile", pass.visited), table("col_mask", pass.visited),
      static_cast<TileMap*>(r.scratch({s.sets() * int64_t{sizeof(TileMap)}}, DType::u8).data),
      pass.maps, r.output("chosen", {s.b, s.h, s.blocks(), s.most()}, DType::i32),
      r.output("sums", {s.b, s.h, s.blocks(), s.d}, DType::f32),
      r.scratch({s.b, s.h, s.blocks(), s.blocks()}, DType::f32), input(r, s), input(r, s), kTile});
}

template <class K>
void set_list(CaseRun& r, K& k, const Sizes& s, int64_t longest, int64_t position) {
  k.list = r.updated("list", {s.b, 2 * s.h, longest}, DType::i32, 0, 7);
  k.count = r.updated("count", {s.b, 2 * s.h}, DType::i32, 0, 7);
  k.position = r.numbers({static_cast<double>(position)});
  k.heads = {1, 2, static_cast<int32_t>(s.h)};
}

// From the first position on: a text, or one position.
void label_list(CaseRun& r, const Sizes& s, bool first, bool text) {
  LabelList k;
  set_list(r, k, s, 2 * s.window, first ? 0 : s.t);
  k.members = r.updated("members", {s.b, 2, s.h, s.labels, s.window}, DType::i32, 0, 5);
  k.sizes = r.updated("sizes", {s.b, 2, s.h, s.labels}, DType::i32, 0,
                      static_cast<double>(s.t / s.labels));
  k.labels = r.integers({2, s.b, s.h, text ? s.t : 1}, 0, s.labels - 1);
  r.kernel(k);
}

void block_list(CaseRun& r, const Sizes& s, bool first, bool text) {
  const int64_t position = first ? (s.t - 1) / kTile * kTile : s.t - 1;
  const Sizes part = {s.b, text ? position + 1 : 1, s.h, s.d, s.labels, s.window};
  BlockList k;
  set_list(r, k, s, s.most() * kTile, text ? 0 : position);
  k.sums = r.updated("sums", {s.b, s.h, s.blocks(), s.d}, DType::f32, 1, 0);
  k.chosen = r.updated("chosen", {s.b, s.h, s.most()}, DType::i32, 0, 0);
  k.gates = r.scratch({s.b, s.h, s.blocks()}, DType::f32);
  k.q = input(r, part), k.k = input(r, part), k.block = kTile;
  r.kernel(k);
}

void add_content_cases(Table& t) {
  const auto add = [&](bool real, const Sizes& s) {
    for (const bool x : {false, true}) {
      t.put<Labels>(real, case_of(labels, s, x), s.text(), x ? ", hashed" : "");
      t.put<OwnValues>(real, case_of(own_values, s, x), s.text(), x ? ", added" : "");
      for (const bool y : {false, true}) {
        const std::string of_list = str(s.text(), x ? ", first" : "", y ? ", text" : "");
        t.put<LabelList>(real, case_of(label_list, s, x, y), of_list);
        t.put<BlockList>(real, case_of(block_list, s, x, y), of_list);
        t.put<SharedKeys>(real, case_of(shared_keys, s, x, y), s.text(), x ? ", backward" : "",
                          y ? ", normed" : "");
      }
    }
    t.put<CentroidGradient>(real, case_of(centroid_gradient, s), s.text());
    t.put<BlockMaps>(real, case_of(block_maps, s), s.text());
  };
  for (const int64_t n : {1, 65, 300}) add(false, {2, n, 2, 16, 6, 3});
  for (const int64_t d : {8, 72, 136}) add(false, {1, 200, 2, d, 14, 7});
  add(true, {4, 12288, 8, 64, 48, 256});
}

const bool added = add_cases_of_part(add_content_cases);
}  // namespace
}  // namespace weft
