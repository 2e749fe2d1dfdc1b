// SPDX-License-Identifier: MIT
#include "src/ops/dynamic_heads.h"

#include "src/parts/parts.h"

#include <cstddef>
#include <memory>
#include <string>

namespace weft {
namespace {
MakeDynamicHeads& maker() {
  static MakeDynamicHeads make = nullptr;
  return make;
}
}  // namespace

void set_dynamic_heads(MakeDynamicHeads make) { maker() = make; }

std::unique_ptr<DynamicHeads> make_dynamic_heads(ParameterStore& store, const std::string& name,
                                                 const DynamicLayer& layer) {
  register_parts();
  if (dynamic_ranges(*layer.pattern, static_cast<int>(layer.shape.heads)).empty()) return nullptr;
  return maker()(store, name, layer);
}

void add_seen(const AttentionMaps& maps, int64_t map, SeenKeys& seen) {
  for (int p = 0; p < maps.passes; ++p) {
    const TileMap& m = maps.pass[p].maps[map];
    const int edge = maps.pass[p].edge;
    for (int32_t slot = 0; slot < m.query_tiles * edge; ++slot)
      for (int32_t e = m.row_start[slot / edge];
           e < m.row_start[slot / edge + 1] && m.query_order[slot] >= 0; ++e)
        for (int c = 0; c < edge && m.row_mask[e] != kSkip; ++c, ++seen.executed)
          if (m.row_mask[e] < 0 || m.masks[int64_t{m.row_mask[e]} * edge + slot % edge] >> c & 1)
            seen.keys[static_cast<std::size_t>(m.query_order[slot])].push_back(
                m.key_order[int64_t{m.row_tile[e]} * edge + c]);
  }
}

SeenKeys seen_keys(const KeptMaps& kept, int head, int64_t time) {
  SeenKeys seen;
  seen.keys.resize(static_cast<std::size_t>(time));
  if (kept.maps.passes > 0) add_seen(kept.maps, kept.maps.map_of(0, head), seen);
  for (const auto& maps : kept.dynamic) maps->add_seen(head, seen);
  return seen;
}

AttendedHeads attend(Ctx& ctx, const AttentionForward& forward) {
  const HeadsView& q = forward.q;
  AttendedHeads attended{forward, ctx.empty({q.batch, q.heads, q.time}, wide(q.dtype))};
  attended.forward.lse = attended.lse;
  ctx.launch(attended.forward);
  return attended;
}

void attend_backward(Ctx& ctx, const AttendedHeads& attended, const HeadGradients& of) {
  const Tensor delta = ctx.empty(attended.lse.shape(), attended.lse.dtype());
  AttentionBackward k = backward_of(attended.forward, of.dq, of.dk, of.dv, delta, of.dy);
  const Tensor scratch = attention_scratch(*ctx.pool, *ctx.queue, k);
  k.scratch = scratch;
  ctx.launch(k);
}
}  // namespace weft
