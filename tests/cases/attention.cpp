// SPDX-License-Identifier: MIT
// Attention over the patterns of the paper: q, k and v in place in the model's packed projection.
#include "kernels/attention/documents.h"
#include "kernels/sampling/decode_attention.h"
#include "src/attention_maps.h"
#include "tests/cases/attention_problem.h"
#include "tests/cases/kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace weft {
namespace {
struct Sizes {
  int64_t b, t, h, qk, v;  // B, T, H, Dqk, Dv

  int64_t packed() const { return h * (2 * qk + v); }

  double scale() const { return 1 / std::sqrt(static_cast<double>(qk)); }
};

std::string text_of(const PatternSpec& spec, const Sizes& s) {
  return str(spec.kind, " ", spec.stride, ", B ", s.b, ", T ", s.t, ", H ", s.h, ", D ", s.qk,
             " and ", s.v);
}

struct Prepared {
  std::shared_ptr<const AttentionPattern> pattern;
  AttentionMaps maps;
  double pairs = 0;  // of all heads and sequences
};

Prepared prepare(CaseRun& r, const PatternSpec& spec, const Sizes& s) {
  const auto heads = static_cast<int>(s.h);
  const std::shared_ptr<const AttentionPattern> pattern = make_pattern(spec, heads);
  const auto maps =
      std::make_shared<DeviceMaps>(r.device(), *pattern, heads, s.t, std::max(s.qk, s.v));
  r.keep(maps);
  Prepared p = {pattern, maps->maps(), 0};
  for (int h = 0; h < heads; ++h) p.pairs += static_cast<double>(maps->pairs(h).needed * s.b);
  return p;
}

// What a case has besides its pattern. Segments -1 to 1 in no order: some padding, many pairs not
// attended.
struct With {
  bool segments = false, scratch = false;
  AttentionForm form = AttentionForm::automatic;
};

// The fields that a forward and a backward pass share.
template <class Kernel>
void set_inputs(CaseRun& r, Kernel& k, const AttentionMaps& maps, const TensorView& qkv,
                const Sizes& s, const With& with) {
  k.q = heads_of(qkv, 0, s.h, s.qk);
  k.k = heads_of(qkv, s.h * s.qk, s.h, s.qk);
  k.v = heads_of(qkv, 2 * s.h * s.qk, s.h, s.v);
  k.maps = maps;
  k.scale = s.scale();
  k.form = with.form;
  if (!with.segments) return;
  const TensorView numbers = r.integers({s.b, s.t}, -1, 1);
  k.segments = {numbers, numbers};
}

void forward(CaseRun& r, const PatternSpec& spec, const Sizes& s, const With& with) {
  const Prepared p = prepare(r, spec, s);
  const TensorView qkv = r.input({s.b, s.t, s.packed()});
  AttentionForward k;
  k.y = heads_of(r.output("y", {s.b, s.t, s.h * s.v}, r.type()), 0, s.h, s.v);
  k.lse = r.output("lse", {s.b, s.h, s.t}, r.wide_type());
  set_inputs(r, k, p.maps, qkv, s, with);
  r.definition([=] { attention_test::by_definition(k, *p.pattern); });
  r.kernel(k, p.pairs * static_cast<double>(2 * s.qk + 2 * s.v));
}

void backward(CaseRun& r, const PatternSpec& spec, const Sizes& s, const With& with) {
  const Prepared p = prepare(r, spec, s);
  const TensorView qkv = r.input({s.b, s.t, s.packed()});
  const TensorView dqkv = r.output("dqkv", {s.b, s.t, s.packed()}, r.type());
  AttentionBackward k;
  k.dq = heads_of(dqkv, 0, s.h, s.qk);
  k.dk = heads_of(dqkv, s.h * s.qk, s.h, s.qk);
  k.dv = heads_of(dqkv, 2 * s.h * s.qk, s.h, s.v);
  k.delta = r.output("delta", {s.b, s.h, s.t}, r.wide_type());
  k.dy = heads_of(r.input({s.b, s.t, s.h * s.v}), 0, s.h, s.v);
  k.y = heads_of(r.input({s.b, s.t, s.h * s.v}), 0, s.h, s.v);
  k.lse = r.wide_input({s.b, s.h, s.t}, 0.1,
                       std::log(p.pairs / static_cast<double>(s.b * s.h * s.t)) + 1);
  set_inputs(r, k, p.maps, qkv, s, with);
  const auto wanted = [&](const auto& queue) { return backward_scratch(queue, k); };
  if (const int64_t size = with.scratch ? std::visit(wanted, r.device().queue) : 0; size > 0)
    k.scratch = r.scratch({size}, DType::f32);
  r.definition([=] { attention_test::by_definition(k, *p.pattern); });
  r.kernel(k, p.pairs * static_cast<double>(6 * s.qk + 4 * s.v));
}

// The query of the last position against the keys of its pattern. Heads have rows of their own, as
// in a cache whose heads keep different positions. `own`: the position's key and value are stored
// first, but for head 0.
void decode(CaseRun& r, const PatternSpec& spec, const Sizes& s, bool own, bool documents) {
  const auto heads = static_cast<int>(s.h);
  const auto pattern = make_pattern(spec, heads);
  std::vector<int32_t> keys;
  std::vector<double> start = {0}, groups;
  for (int g = 0; g < pattern->groups(heads); ++g) {
    int head = 0;
    while (pattern->group(head) != g) ++head;
    pattern->keys_of(head, s.t - 1, s.t, keys);
    start.push_back(static_cast<double>(keys.size()));
  }
  for (int h = 0; h < heads; ++h) groups.push_back(pattern->group(h));
  std::vector<double> first;
  for (int h = 0; h < heads; ++h) first.push_back(static_cast<double>(h * s.t));
  AttentionDecode k;
  k.y = heads_of(r.output("y", {s.b, 1, s.h * s.v}, r.type()), 0, s.h, s.v);
  const TensorView qkv = r.input({s.b, 1, s.packed()});
  k.q = heads_of(qkv, 0, s.h, s.qk);
  const auto cache = [&](const char* name, int64_t size) {
    const Shape shape = {s.b, s.h * s.t, size};
    return rows_of(own ? r.updated(name, shape, r.type(), 1, 0) : r.input(shape), s.h);
  };
  k.k = cache("k", s.qk);
  k.v = cache("v", s.v);
  if (own) {
    std::vector<double> rows;
    for (int h = 0; h < heads; ++h)
      rows.push_back(h == 0 ? -1 : static_cast<double>((h + 1) * s.t - 1));
    k.new_k = heads_of(qkv, s.h * s.qk, s.h, s.qk);
    k.new_v = heads_of(qkv, 2 * s.h * s.qk, s.h, s.v);
    k.own_row = r.numbers(rows);
    k.longest = static_cast<int64_t>(keys.size());
  }
  k.first_row = r.numbers(first);
  k.keys = r.numbers({keys.begin(), keys.end()});
  if (documents) {  // one of which the query sees nothing, with luck
    k.key_positions = k.keys;
    k.first_key = r.integers({s.b}, 0, s.t);
  } else if (own) {
    k.own_list = r.integers({s.b, s.h, 40}, 0, s.t - 1);  // of every other head
    std::vector<double> counts;
    for (int64_t i = 0; i < s.b * s.h; ++i)
      counts.push_back(static_cast<double>(i % 2 ? 40 - i : -1));
    k.own_count = r.input_of({s.b, s.h}, DType::i32, counts);
  }
  k.key_start = r.numbers(start);
  k.group_of_head = r.numbers(groups);
  k.scale = s.scale();
  const double rows =
      static_cast<double>(keys.size()) * static_cast<double>(s.b * s.h / pattern->groups(heads));
  r.set_bytes(rows * static_cast<double>((s.qk + s.v) * size_of(r.type())));
  r.definition([=] { attention_test::by_definition(k); });
  r.kernel(k, rows * static_cast<double>(2 * s.qk + 2 * s.v));
}
}  // namespace

void document_starts(CaseRun& r, const Shape& shape, bool one_row) {
  DocumentStarts k;
  k.start = r.output("start", {shape[0], one_row ? 1 : shape[1]}, DType::i32);
  k.tokens = r.integers(shape, 0, 6);
  k.separator = 3;
  if (one_row) k.row = r.numbers({static_cast<double>(shape[1] - 1)});
  r.kernel(k);
}

// Patterns of one group of heads: what another lacks is not written.
void segment_maps(CaseRun& r, const PatternSpec& spec, const Sizes& s, bool documents) {
  SegmentMaps k;
  k.maps = prepare(r, spec, s).maps;
  k.segments = r.integers({s.b, s.t}, -1, 1);
  k.documents = documents;
  if (documents) {
    std::vector<double> starts;
    for (int64_t i = 0; i < s.b * s.t; ++i)
      starts.push_back(static_cast<double>(i % s.t / 13 * 13));
    k.segments.data = const_cast<int32_t*>(r.numbers(starts));
  } else {
    k.orders = r.integers({s.b, s.t}, 0, s.t - 1);  // put into the maps
    k.stored = 1;
  }
  k.made = static_cast<TileMap*>(
      r.scratch({k.maps.passes * s.b * int64_t{sizeof(TileMap)}}, DType::u8).data);
  const int64_t size = SegmentMaps::table_size(k.maps, s.b, documents ? s.t : 0);
  k.tables = {r.output_bytes("tables", 4 * size), DType::i32, 1, {size, 1, 1, 1, 1}};
  r.kernel(k);
}

void add_attention_cases(Table& table) {
  const auto add_passes = [&](bool realistic, const PatternSpec& spec, const Sizes& s,
                              const With& with, const char* what) {
    table.put<AttentionForward>(realistic, case_of(forward, spec, s, with), text_of(spec, s), what);
    table.put<AttentionBackward>(realistic, case_of(backward, spec, s, with), text_of(spec, s),
                                 what);
  };
  const auto add = [&](const PatternSpec& spec, const Sizes& s, bool realistic = false) {
    add_passes(realistic, spec, s, {}, "");
    for (const bool own : {false, true})
      table.put<AttentionDecode>(realistic, case_of(decode, spec, s, own, false), text_of(spec, s),
                                 own ? ", written first" : "");
  };
  for (const int64_t t : {1, 33, 65, 200}) {
    const int64_t stride = std::min<int64_t>(16, t);
    for (const char* kind : {"all", "local", "strided"})
      add({kind, stride, 1, 1}, {2, t, 2, 16, 16});
    add({"fixed", 16, 4, 2}, {2, t, 2, 16, 16});
  }
  add({"all", 128, 32, 1}, {1, 150, 2, 64, 128});
  add({"fixed", 32, 8, 2}, {2, 161, 4, 64, 64});
  add({"strided", 32, 8, 1}, {1, 129, 3, 40, 24});
  // keys of 130 a residue column: no band kernel
  add({"strided", 32, 8, 1}, {1, 130 * 32, 2, 16, 16});
  add({"local", 70, 8, 1}, {1, 300, 1, 128, 128});
  add({"local", 200, 8, 1}, {2, 450, 2, 64, 40});
  for (const char* kind : {"all", "local", "strided", "fixed"}) {
    const PatternSpec spec = {kind, 32, 8, 2};
    const Sizes some = {2, 192, 2, 64, 64};
    add_passes(false, spec, some, {.segments = true}, ", segments");
    add_passes(false, spec, some, {.form = AttentionForm::simple}, ", simple");
    add_passes(false, spec, some, {.scratch = true}, ", scratch");
  }
  for (const char* kind : {"all", "local", "strided", "fixed"})
    add({kind, 128, 32, 4}, {4, 12288, 8, 64, 64}, true);
  for (const bool one_row : {false, true}) {
    for (const int64_t t : {1, 33, 700})
      table.add<DocumentStarts>(case_of(document_starts, {3, t}, one_row), "B 3, T ", t,
                                one_row ? ", one row" : "");
    table.time<DocumentStarts>(case_of(document_starts, {4, 12288}, one_row), "B 4, T 12288",
                               one_row ? ", one row" : "");
  }
  for (const PatternSpec& spec :
       {PatternSpec{"all"}, PatternSpec{"local", 5}, PatternSpec{"strided", 16}}) {
    for (const bool documents : {false, true}) {
      const char* what = documents ? ", documents" : "";
      for (const int64_t t : {1, 33, 200, 208})
        table.add<SegmentMaps>(case_of(segment_maps, spec, {2, t, 2, 16, 16}, documents),
                               text_of(spec, {2, t, 2, 16, 16}), what);
      table.time<SegmentMaps>(case_of(segment_maps, spec, {4, 12288, 8, 64, 64}, documents),
                              text_of(spec, {4, 12288, 8, 64, 64}), what);
    }
    table.add<AttentionDecode>(case_of(decode, spec, {3, 65, 2, 16, 16}, true, true),
                               text_of(spec, {3, 65, 2, 16, 16}), ", documents");
  }
  const PatternSpec images = {"local", 96, 1, 1};
  const Sizes step = {256, 3072, 2, 64, 128};
  table.time<AttentionDecode>(case_of(decode, images, step, true, false), text_of(images, step));
}
}  // namespace weft
