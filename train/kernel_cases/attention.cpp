// SPDX-License-Identifier: MIT
// Attention over the patterns of the paper: q, k and v in place in a packed projection, as the model has
// them.
#include <cmath>

#include "kernels/sampling/decode_attention.h"
#include "src/attention_maps.h"
#include "src/patterns/pattern.h"
#include "train/kernel_cases/table.h"

namespace weft {
namespace {

struct Sizes {
  std::int64_t b, t, h, qk, v;  // B, T, H, Dqk, Dv
  std::int64_t packed() const { return h * (2 * qk + v); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(qk)); }
};

std::string text_of(const Sizes& s) {
  return str("B ", s.b, ", T ", s.t, ", H ", s.h, ", D ", s.qk, " and ", s.v);
}
std::string text_of(const PatternSpec& spec, const Sizes& s) {
  return str(spec.kind, " ", spec.stride, ", ", text_of(s));
}

struct Prepared {
  AttentionMaps maps;
  double pairs = 0;  // of all heads and sequences
};

Prepared prepare(CaseRun& r, const PatternSpec& spec, const Sizes& s) {
  const auto heads = static_cast<int>(s.h);
  const auto pattern = make_pattern(spec, heads);
  const auto maps = std::make_shared<DeviceMaps>(r.device(), *pattern, heads, s.t, std::max(s.qk, s.v));
  r.keep(maps);
  Prepared p = {maps->maps(), 0};
  for (int h = 0; h < heads; ++h) p.pairs += static_cast<double>(maps->pairs(h).needed * s.b);
  return p;
}

// What a case has besides its pattern. Segments: numbers -1 to 1 in no order, so that some positions are
// padding and many pairs are not attended.
struct With {
  bool segments = false, scratch = false;
  AttentionForm form = AttentionForm::automatic;
};

Segments segments(CaseRun& r, const Sizes& s) {
  const TensorView numbers = r.integers({s.b, s.t}, -1, 1);
  return {numbers, numbers};
}

Build forward(const PatternSpec& spec, const Sizes& s, const With& with) {
  return [=](CaseRun& r) {
    const Prepared p = prepare(r, spec, s);
    const TensorView qkv = r.input({s.b, s.t, s.packed()});
    AttentionForward k;
    k.y = heads_of(r.output("y", {s.b, s.t, s.h * s.v}, r.type()), 0, s.h, s.v);
    k.lse = r.output("lse", {s.b, s.h, s.t}, r.wide_type());
    k.q = heads_of(qkv, 0, s.h, s.qk);
    k.k = heads_of(qkv, s.h * s.qk, s.h, s.qk);
    k.v = heads_of(qkv, 2 * s.h * s.qk, s.h, s.v);
    k.maps = p.maps;
    k.scale = s.scale();
    if (with.segments) k.segments = segments(r, s);
    k.form = with.form;
    r.kernel(k, p.pairs * static_cast<double>(2 * s.qk + 2 * s.v));
  };
}

Build backward(const PatternSpec& spec, const Sizes& s, const With& with) {
  return [=](CaseRun& r) {
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
    k.lse = r.wide_input({s.b, s.h, s.t}, 0.1, std::log(p.pairs / static_cast<double>(s.b * s.h * s.t)) + 1);
    k.q = heads_of(qkv, 0, s.h, s.qk);
    k.k = heads_of(qkv, s.h * s.qk, s.h, s.qk);
    k.v = heads_of(qkv, 2 * s.h * s.qk, s.h, s.v);
    k.maps = p.maps;
    k.scale = s.scale();
    if (with.segments) k.segments = segments(r, s);
    k.form = with.form;
    const auto wanted = [&](const auto& queue) { return backward_scratch(queue, k); };
    if (const std::int64_t size = with.scratch ? std::visit(wanted, r.device().queue) : 0; size > 0)
      k.scratch = r.scratch({size}, DType::f32);
    r.kernel(k, p.pairs * static_cast<double>(6 * s.qk + 4 * s.v));
  };
}

TensorView numbers(CaseRun& r, const std::vector<double>& values) {
  return r.input_of({static_cast<std::int64_t>(values.size())}, DType::i32, values);
}

// The query of the last position against the keys of its pattern. The rows of each head lie apart from those
// of the others, as in a cache of layers whose heads keep different positions. `own`: the key and value of
// the position are put there first, those of the first head nowhere.
Build decode(const PatternSpec& spec, const Sizes& s, bool own) {
  return [=](CaseRun& r) {
    const auto heads = static_cast<int>(s.h);
    const auto pattern = make_pattern(spec, heads);
    std::vector<std::int32_t> keys;
    std::vector<double> start = {0}, groups;
    for (int g = 0; g < pattern->groups(heads); ++g) {
      int head = 0;
      while (pattern->group(head) != g) ++head;
      pattern->keys_of(head, s.t - 1, s.t, keys);
      start.push_back(static_cast<double>(keys.size()));
    }
    for (int h = 0; h < heads; ++h) groups.push_back(pattern->group(h));
    const auto on_device = [&](const std::vector<double>& values) {
      return numbers(r, values).as<std::int32_t>();
    };
    std::vector<double> first;
    for (int h = 0; h < heads; ++h) first.push_back(static_cast<double>(h * s.t));
    AttentionDecode k;
    k.y = heads_of(r.output("y", {s.b, 1, s.h * s.v}, r.type()), 0, s.h, s.v);
    const TensorView qkv = r.input({s.b, 1, s.packed()});
    k.q = heads_of(qkv, 0, s.h, s.qk);
    const auto cache = [&](const char* name, std::int64_t size) {
      const Shape shape = {s.b, s.h * s.t, size};
      return rows_of(own ? r.updated(name, shape, r.type(), 1, 0) : r.input(shape), s.h);
    };
    k.k = cache("k", s.qk);
    k.v = cache("v", s.v);
    if (own) {
      std::vector<double> rows;
      for (int h = 0; h < heads; ++h) rows.push_back(h == 0 ? -1 : static_cast<double>((h + 1) * s.t - 1));
      k.new_k = heads_of(qkv, s.h * s.qk, s.h, s.qk);
      k.new_v = heads_of(qkv, 2 * s.h * s.qk, s.h, s.v);
      k.own_row = on_device(rows);
      k.longest = static_cast<std::int64_t>(keys.size());
    }
    k.first_row = on_device(first);
    k.keys = on_device({keys.begin(), keys.end()});
    k.key_start = on_device(start);
    k.group_of_head = on_device(groups);
    k.scale = s.scale();
    const double rows =
        static_cast<double>(keys.size()) * static_cast<double>(s.b * s.h / pattern->groups(heads));
    r.set_bytes(rows * static_cast<double>((s.qk + s.v) * size_of(r.type())));
    r.kernel(k, rows * static_cast<double>(2 * s.qk + 2 * s.v));
  };
}

}  // namespace

void add_attention_cases(Table& table) {
  const auto add = [&](const PatternSpec& spec, const Sizes& s, bool realistic) {
    const std::string text = text_of(spec, s);
    table.put<AttentionForward>(realistic, forward(spec, s, {}), text);
    table.put<AttentionBackward>(realistic, backward(spec, s, {}), text);
    for (const bool own : {false, true})
      table.put<AttentionDecode>(realistic, decode(spec, s, own), text, own ? ", written first" : "");
  };
  const auto add_with = [&](const PatternSpec& spec, const Sizes& s, const With& with, const char* what) {
    table.add<AttentionForward>(forward(spec, s, with), text_of(spec, s), what);
    table.add<AttentionBackward>(backward(spec, s, with), text_of(spec, s), what);
  };
  for (const std::int64_t t : {1, 33, 65, 200}) {
    const std::int64_t stride = std::min<std::int64_t>(16, t);
    for (const PatternSpec& spec : {PatternSpec{"all", stride, 1, 1}, PatternSpec{"local", stride, 1, 1},
                                    PatternSpec{"strided", stride, 1, 1}, PatternSpec{"fixed", 16, 4, 2}}) {
      add(spec, {2, t, 2, 16, 16}, false);
    }
  }
  add({"all", 128, 32, 1}, {1, 150, 2, 64, 128}, false);
  add({"fixed", 32, 8, 2}, {2, 161, 4, 64, 64}, false);
  add({"strided", 32, 8, 1}, {1, 129, 3, 40, 24}, false);
  add({"strided", 32, 8, 1}, {1, 130 * 32, 2, 16, 16},
      false);  // 32 residue columns, keys of 130: no band kernel covers them
  add({"local", 70, 8, 1}, {1, 300, 1, 128, 128}, false);
  add({"local", 200, 8, 1}, {2, 450, 2, 64, 40}, false);
  for (const char* kind : {"all", "local", "strided", "fixed"}) {
    const PatternSpec spec = {kind, 32, 8, 2};
    const Sizes some = {2, 192, 2, 64, 64};
    add_with(spec, some, {.segments = true}, ", segments");
    add_with(spec, some, {.form = AttentionForm::simple}, ", simple");
    add_with(spec, some, {.scratch = true}, ", scratch");
  }
  for (const char* kind : {"all", "local", "strided", "fixed"})
    add({kind, 128, 32, 4}, {4, 12288, 8, 64, 64}, true);
  const PatternSpec images = {"local", 96, 1, 1};
  const Sizes step = {256, 3072, 2, 64, 128};
  table.time<AttentionDecode>(decode(images, step, true), text_of(images, step));
}

}  // namespace weft
