// SPDX-License-Identifier: MIT
// Attention and what prepares it. The comment at an op says what its closure keeps for the backward
// pass.
#include "kernels/attention/documents.h"
#include "src/attention_maps.h"
#include "src/ops.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace weft {
QkForm form_of(const QkOptions& options) {
  return {
      .norm = options.norm_eps > 0,
      .eps = options.norm_eps,
      .table = options.table,
      .offsets = options.offsets,
      .positions = options.positions,
  };
}

// Keeps the places; with a norm the result, too, and rstd of each query and key.
Var norm_and_rotate(Ctx& ctx, const Var& qkv, const AttentionShape& shape,
                    const QkOptions& options) {
  if (!options) return qkv;
  const bool keeps = ctx.tape && options.norm_eps > 0;
  const int64_t rows = qkv.value.view().rows();
  const Tensor rstd = keeps ? ctx.empty({rows, 2 * shape.heads}, wide(qkv.dtype())) : Tensor{};
  ctx.launch(QkForward{
      .qkv = qkv.value,
      .rstd = rstd,
      .heads = shape.heads,
      .qk_size = shape.qk_size,
      .form = form_of(options),
  });
  const Var y{qkv.value, ctx.tape ? std::make_shared<Gradient>() : nullptr};
  if (!ctx.tape) return y;
  const auto backward = [x = qkv.without_value(), kept = keeps ? qkv.value : Tensor{}, rstd, shape,
                         options](Ctx& c, const Tensor& dy) {
    const Tensor dx = c.unshared(dy);
    c.launch(QkBackward{
        .dqkv = dx,
        .y = kept,
        .rstd = rstd,
        .heads = shape.heads,
        .qk_size = shape.qk_size,
        .form = form_of(options),
    });
    c.pass_gradient(x, dx);
  };
  ctx.tape->record("norm_and_rotate", y, backward);
  return y;
}

KeptMaps segment_maps(Ctx& ctx, const AttentionMaps& maps, const Tensor& segments, bool documents,
                      const Tensor& orders, int64_t stored) {
  const int64_t batch = segments.shape()[0],
                made = maps.passes * batch * maps.groups * int64_t{sizeof(TileMap)};
  KeptMaps kept(maps);
  const int64_t size = SegmentMaps::table_size(maps, batch, documents ? segments.shape()[1] : 0);
  kept.memory = {ctx.empty({size}, DType::i32), ctx.empty({made}, DType::u8), orders};
  SegmentMaps k{kept.memory[0], static_cast<TileMap*>(kept.memory[1].view().data), maps, segments,
                documents};
  k.orders = orders, k.stored = stored;
  ctx.launch(k);
  kept.maps = k.result();
  return kept;
}

Tensor document_starts(Ctx& ctx, const Tensor& tokens, int64_t separator, const int32_t* row) {
  const Tensor start = ctx.empty({tokens.shape()[0], row ? 1 : tokens.shape()[1]}, DType::i32);
  ctx.launch(DocumentStarts{
      .start = start,
      .tokens = tokens,
      .separator = static_cast<int32_t>(separator),
      .row = row,
  });
  return start;
}

// Keeps qkv, y and log-sum-exps; with options.recompute qkv alone. Heads of content are launched
// last.
Var sparse_attention(Ctx& ctx, const Var& qkv, const AttentionShape& shape, const KeptMaps& maps,
                     const AttentionOptions& options) {
  if (options.recompute) {
    const auto block = [shape, maps, options](Ctx& c, const Var& x) {
      return sparse_attention(c, x, shape, maps, {.form = options.form});
    };
    return recompute(ctx, block, qkv);
  }
  const TensorView& view = qkv.value;
  WEFT_CHECK(view.rank == 3 && view.cols() == shape.columns(),
             "sparse_attention: qkv must be (B, T, ", shape.columns(), ") for ", shape.heads,
             " heads of ", shape.qk_size, " and ", shape.v_size, ", got ", shape_text(view));
  const Var y = ctx.output({view.shape[0], view.shape[1], shape.heads * shape.v_size}, qkv.dtype());
  const auto [q, k, v] = packed_heads(view, shape.heads, shape.qk_size, shape.v_size);
  const HeadsView out = heads_of(y.value, 0, shape.heads, shape.v_size);
  std::vector<ContentMaps> parts = maps.content;
  if (maps.maps.passes > 0)
    parts.insert(parts.begin(),
                 ContentMaps{{0, 1, static_cast<int32_t>(shape.heads)}, maps.maps, maps.memory});
  std::vector<std::pair<Tensor, AttentionForward>> launched;
  for (const ContentMaps& part : parts) {
    const Tensor lse =
        ctx.empty({view.shape[0], part.heads.count, view.shape[1]}, wide(qkv.dtype()));
    AttentionForward f{
        .y = heads_in(out, part.heads),
        .lse = lse,
        .q = heads_in(q, part.heads),
        .k = heads_in(k, part.heads),
        .v = heads_in(v, part.heads),
        .maps = part.maps,
        .scale = shape.scale(),
    };
    f.form = options.form;
    ctx.launch(f);
    if (part.shared_qk) ctx.launch(OwnValues{.y = f.y, .x = f.v, .lse = lse});
    launched.emplace_back(lse, f);
  }
  if (!ctx.tape) return y;
  const auto backward = [qkv, yv = y.value, shape, parts, launched](Ctx& c, const Tensor& dy) {
    const Tensor dqkv = c.empty(qkv.shape(), qkv.dtype());
    const auto [dq, dk, dv] = packed_heads(dqkv, shape.heads, shape.qk_size, shape.v_size);
    const HeadsView dout = heads_of(dy, 0, shape.heads, shape.v_size);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const ContentMaps& part = parts[i];
      const auto& [lse, f] = launched[i];
      const Tensor delta = c.empty(lse.shape(), lse.dtype());
      AttentionBackward g =
          backward_of(f, heads_in(dq, part.heads), heads_in(dk, part.heads),
                      heads_in(dv, part.heads), delta, heads_in(dout, part.heads));
      const Tensor scratch = attention_scratch(*c.pool, *c.queue, g);
      g.scratch = scratch;
      c.launch(g);
      if (part.shared_qk) {
        c.launch(OwnValues{.y = g.dv, .x = g.dy, .lse = lse, .add = true});
        c.launch(SharedKeys{.k = g.dk, .q = g.q, .dq = g.dq, .normed = part.normed});
      }
      if (part.moved) c.pass_gradient(part.centroids, part.moved);
    }
    c.pass_gradient(qkv, dqkv);
  };
  ctx.tape->record("sparse_attention", y, backward);
  return y;
}
}  // namespace weft
