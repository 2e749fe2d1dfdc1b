// SPDX-License-Identifier: MIT
// Residual blocks in sampling: odd batches, heads of every padded size, empty, short and long lists
// of keys.
#include "kernels/sampling/decode_blocks.h"
#include "tests/cases/kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace weft {
namespace {
struct Sizes {
  int64_t batch, width, heads, qk, v, hidden;

  int64_t packed() const { return heads * (2 * qk + v); }
};

// Heads take turns among as many groups as there are lists, each of `keys` rows. own: heads keep
// the current position, the last of their list if they have one; otherwise they keep nothing.
struct Lists {
  std::vector<int64_t> keys;
  bool own;
};

// Every third row of `rows` of a head, as far as they go round.
void add_lists(CaseRun& r, DecodeBlock& block, const Sizes& s, const Lists& lists, int64_t rows) {
  std::vector<double> keys, start = {0}, group, first, own;
  const auto groups = static_cast<int64_t>(lists.keys.size());
  for (const int64_t count : lists.keys) {
    for (int64_t i = 0; i < count; ++i)
      keys.push_back(static_cast<double>(rows - 1 - (count - 1 - i) * 3 % rows));
    start.push_back(static_cast<double>(keys.size()));
    block.longest = std::max(block.longest, count);
  }
  for (int64_t h = 0; h < s.heads; ++h) {
    group.push_back(static_cast<double>(h % groups));
    first.push_back(static_cast<double>(h * rows));
    own.push_back(lists.own ? static_cast<double>((h + 1) * rows - 1) : -1);
  }
  // never empty
  for (std::vector<double>* list : {&keys, &start, &group, &first, &own}) list->push_back(0);
  block.keys = block.key_positions = r.numbers(keys);
  block.key_start = r.numbers(start);
  block.group_of_head = r.numbers(group);
  block.first_row = r.numbers(first);
  block.own_row = r.numbers(own);
}

DecodeAffine affine(CaseRun& r, int64_t out, int64_t in, double gain) {
  const TensorView w = r.input({out, in}, gain / std::sqrt(static_cast<double>(in)));
  return {w, r.input({out}, 0.2)};
}

DecodeNorm norm(CaseRun& r, int64_t width) {
  const TensorView w = r.wide_input({width}, 0.2, 1);
  return {w, r.wide_input({width}, 0.2), 1e-2};
}

enum class Qk : uint8_t { as_projected, norm, rotary, both };  // both: with positions

void set_qk(CaseRun& r, DecodeBlocks& k, Qk qk) {
  constexpr int64_t places = 50, length = 7;
  k.qk.norm = qk == Qk::norm || qk == Qk::both;
  k.qk.eps = 1e-2;
  if (qk < Qk::rotary) return;
  k.qk.table = r.wide_input({places, k.qk_size / 2, 2}, 0.7);
  k.qk.first_at = r.numbers({length - 1});
  if (qk == Qk::both) k.qk.positions = r.integers({k.x.rows(), length}, 0, 3 * places);
  if (qk == Qk::rotary) k.qk.offsets = r.integers({k.x.rows()}, 0, 3 * places);
}

// `rows`: of a head's cache.
void decode_blocks(CaseRun& r, const Sizes& s, const std::vector<Lists>& of_block, int64_t rows,
                   Qk qk, Activation f, bool documents) {
  DecodeBlocks k;
  k.y = r.output("y", {s.batch, s.width}, r.type());
  k.x = r.input({s.batch, s.width}, 1, 0.2);
  k.heads = s.heads;
  k.qk_size = s.qk;
  k.v_size = s.v;
  k.f = f;
  k.scale = 1 / std::sqrt(static_cast<double>(s.qk));
  set_qk(r, k, qk);
  if (documents) k.first_key = r.integers({s.batch}, 0, rows);
  double flops = 0, read = 0;
  for (const Lists& lists : of_block) {
    DecodeBlock b;
    b.attention_norm = norm(r, s.width);
    b.qkv = affine(r, s.packed(), s.width, 1);
    b.proj = affine(r, s.width, s.heads * s.v, 0.5);
    b.mlp_norm = norm(r, s.width);
    b.up = affine(r, s.hidden, s.width, 1);
    b.down = affine(r, s.width, s.hidden, 0.5);
    const auto cache = [&](const char* name, int64_t size) {
      const Shape shape = {s.batch, s.heads * rows, size};
      return lists.own ? r.updated(name, shape, r.type(), 1, 0) : r.input(shape);
    };
    b.k = cache("k", s.qk);
    b.v = cache("v", s.v);
    add_lists(r, b, s, lists, rows);
    for (int64_t h = 0; h < s.heads; ++h)
      read += static_cast<double>(s.batch *
                                  lists.keys[static_cast<std::size_t>(h) % lists.keys.size()] *
                                  (s.qk + s.v) * size_of(r.type()));
    const int64_t weights = s.width * (s.packed() + s.heads * s.v + 2 * s.hidden);
    read += static_cast<double>(weights * size_of(r.type()));
    flops += 2.0 * static_cast<double>(s.batch * weights);
    k.blocks.push_back(b);
  }
  k.packed = r.scratch({s.batch, s.packed()}, r.type());
  k.attended = r.scratch({s.batch, s.heads * s.v}, r.type());
  k.hidden = r.scratch({s.batch, s.hidden}, r.type());
  r.set_bytes(read);
  r.kernel(k, flops);
}
}  // namespace

void add_block_cases(Table& t) {
  const auto add = [&](const Sizes& s, const std::vector<Lists>& lists, int64_t rows,
                       bool realistic, Qk qk = Qk::as_projected, Activation f = Activation::gelu) {
    constexpr const char* of_qk[] = {"", ", norm", ", rotary, offsets",
                                     ", norm and rotary, positions"};
    std::string keys;
    for (const Lists& l : lists)
      for (const int64_t count : l.keys)
        keys += str(keys.empty() ? "" : " ", count, l.own ? "" : " (not its own)");
    t.put<DecodeBlocks>(realistic, case_of(decode_blocks, s, lists, rows, qk, f, false), "B ",
                        s.batch, ", C ", s.width, ", H ", s.heads, ", D ", s.qk, " and ", s.v,
                        ", M ", s.hidden, ", blocks ", lists.size(), ", keys ", keys,
                        of_qk[static_cast<std::size_t>(qk)],
                        f == Activation::gelu ? "" : ", relu2");
  };
  const Sizes image = {1, 256, 2, 64, 128, 512};
  const auto batch_of = [](Sizes s, int64_t batch) {
    s.batch = batch;
    return s;
  };
  for (const int64_t batch : {1, 7, 16, 17})
    for (const Activation f : {Activation::gelu, Activation::relu2})
      add(batch_of(image, batch), {{{96}, true}, {{33, 5}, true}, {{20, 0}, false}}, 100, false,
          Qk::as_projected, f);
  add(batch_of(image, 130), {{{9}, true}, {{8, 1}, false}}, 9, false);
  add(batch_of(image, 300), {{{3}, true}}, 4, false);
  add({64, 64, 1, 64, 64, 128}, {{{40}, true}}, 40, false);
  add({5, 128, 2, 64, 64, 128}, {{{40}, true}}, 9, false);  // keys again and again, the new one too
  add(image, {{{250, 97}, true}, {{129, 256}, true}}, 259, false);
  add(image, {{{1100, 97}, true}, {{0}, false}, {{1, 1300}, true}}, 1300, false);
  for (const Sizes& s : {Sizes{5, 64, 1, 64, 64, 64},
                         {5, 128, 2, 64, 64, 128},
                         {3, 512, 8, 64, 64, 2048},
                         {9, 256, 2, 128, 128, 1024},
                         {2, 192, 3, 64, 64, 320},
                         {5, 384, 3, 128, 128, 384},
                         {3, 128, 8, 40, 24, 192},
                         {19, 576, 6, 32, 96, 576}})
    add(s, {{{130, 17}, true}, {{0, 12}, true}}, 130, false);
  for (const Qk qk : {Qk::norm, Qk::rotary, Qk::both})
    for (const Sizes& s : {batch_of(image, 17),
                           Sizes{5, 128, 2, 64, 64, 128},
                           {3, 128, 8, 40, 24, 192},
                           {5, 384, 3, 128, 128, 384},
                           {30, 192, 3, 64, 64, 320},
                           {3, 24, 3, 8, 8, 40}})
      add(s, {{{33, 5}, true}, {{20, 0}, true}}, 40, false, qk);
  // What only the form with a launch for each step takes.
  for (const Sizes& s :
       {Sizes{3, 24, 3, 8, 8, 40}, {33, 64, 1, 136, 64, 64}, {4, 72, 1, 16, 256, 64}})
    for (const Activation f : {Activation::gelu, Activation::relu2})
      add(s, {{{13}, true}, {{0}, true}}, 13, false, Qk::as_projected, f);
  t.put<DecodeBlocks>(false,
                      case_of(decode_blocks, {5, 128, 2, 64, 64, 128}, {{{33, 5}, true}}, 40,
                              Qk::both, Activation::gelu, true),
                      "B 5, C 128, documents");
  add(batch_of(image, 256), {{{96}, true}, {{96}, true}, {{96}, true}, {{16}, true}}, 97, true);
}
}  // namespace weft
