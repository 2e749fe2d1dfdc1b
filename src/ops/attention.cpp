// SPDX-License-Identifier: MIT
// Attention and what prepares it. The comment at an op says what its closure keeps for the backward pass.
#include "kernels/attention/content/labels.h"
#include "kernels/attention/content/shared_qk.h"
#include "kernels/attention/documents.h"
#include "src/attention_maps.h"
#include "src/ops.h"

namespace weft {

QkForm form_of(const QkOptions& options) {
  return {.norm = options.norm_eps > 0,
          .eps = options.norm_eps,
          .table = options.table,
          .offsets = options.offsets,
          .positions = options.positions};
}

// Keeps the places; with a norm the result, too, and rstd of each query and key.
Var norm_and_rotate(Ctx& ctx, const Var& qkv, const AttentionShape& shape, const QkOptions& options) {
  if (!options) return qkv;
  const bool keeps = ctx.tape && options.norm_eps > 0;
  const std::int64_t rows = qkv.value.view().rows();
  const Tensor rstd = keeps ? ctx.empty({rows, 2 * shape.heads}, wide(qkv.dtype())) : Tensor{};
  ctx.launch(QkForward{.qkv = qkv.value,
                       .rstd = rstd,
                       .heads = shape.heads,
                       .qk_size = shape.qk_size,
                       .form = form_of(options)});
  const Var y{qkv.value, ctx.tape ? std::make_shared<Gradient>() : nullptr};
  if (!ctx.tape) return y;
  const auto backward = [x = qkv.without_value(), kept = keeps ? qkv.value : Tensor{}, rstd, shape, options](
                            Ctx& c, const Tensor& dy) {
    const Tensor dx = c.unshared(dy);
    c.launch(QkBackward{.dqkv = dx,
                        .y = kept,
                        .rstd = rstd,
                        .heads = shape.heads,
                        .qk_size = shape.qk_size,
                        .form = form_of(options)});
    c.pass_gradient(x, dx);
  };
  ctx.tape->record("norm_and_rotate", y, backward);
  return y;
}

KeptMaps segment_maps(Ctx& ctx, const AttentionMaps& maps, const Tensor& segments, const Tensor& orders) {
  const std::int64_t batch = segments.shape()[0],
                     made = maps.passes * batch * maps.groups * std::int64_t{sizeof(TileMap)};
  KeptMaps kept(maps);
  kept.memory = {ctx.empty({SegmentMaps::table_size(maps, batch)}, DType::i32), ctx.empty({made}, DType::u8)};
  if (orders) kept.memory.push_back(orders);
  const SegmentMaps k{kept.memory[0], static_cast<TileMap*>(kept.memory[1].view().data), maps, segments,
                      orders};
  ctx.launch(k);
  kept.maps = k.result();
  return kept;
}

Tensor document_starts(Ctx& ctx, const Tensor& tokens, std::int64_t separator, const std::int32_t* row) {
  const Tensor start = ctx.empty({tokens.shape()[0], row ? 1 : tokens.shape()[1]}, DType::i32);
  ctx.launch(DocumentStarts{
      .start = start, .tokens = tokens, .separator = static_cast<std::int32_t>(separator), .row = row});
  return start;
}

// Keeps qkv, y and each row's log-sum-exp; qkv alone with options.recompute.
Var sparse_attention(Ctx& ctx, const Var& qkv, const AttentionShape& shape, const KeptMaps& maps,
                     const AttentionOptions& options) {
  if (options.recompute) {
    const auto block = [shape, maps, options](Ctx& c, const Var& x) {
      return sparse_attention(c, x, shape, maps, {.form = options.form});
    };
    return recompute(ctx, block, qkv);
  }
  const TensorView& view = qkv.value;
  WEFT_CHECK(view.rank == 3 && view.cols() == shape.columns(), "sparse_attention: qkv must be (B, T, ",
             shape.columns(), ") for ", shape.heads, " heads of ", shape.qk_size, " and ", shape.v_size,
             ", got ", shape_text(view));
  const Var y = ctx.output({view.shape[0], view.shape[1], shape.heads * shape.v_size}, qkv.dtype());
  const Tensor lse = ctx.empty({view.shape[0], shape.heads, view.shape[1]}, wide(qkv.dtype()));
  const auto [q, k, v] = packed_heads(view, shape.heads, shape.qk_size, shape.v_size);
  const HeadsView out = heads_of(y.value, 0, shape.heads, shape.v_size);
  AttentionForward f{.y = out, .lse = lse, .q = q, .k = k, .v = v, .maps = maps.maps, .scale = shape.scale()};
  f.form = options.form;
  ctx.launch(f);
  for (const HeadRange& range : maps.shared_qk)
    ctx.launch(OwnValuesForward{.y = out, .v = v, .lse = lse, .heads = range});
  if (!ctx.tape) return y;
  const auto backward = [qkv, yv = y.value, lse, shape, maps, f](Ctx& c, const Tensor& dy) {
    const Tensor dqkv = c.empty(qkv.shape(), qkv.dtype()), delta = c.empty(lse.shape(), lse.dtype());
    const auto [dq, dk, dv] = packed_heads(dqkv, shape.heads, shape.qk_size, shape.v_size);
    AttentionBackward g = backward_of(f, dq, dk, dv, delta, heads_of(dy, 0, shape.heads, shape.v_size));
    const Tensor scratch = attention_scratch(*c.pool, *c.queue, g);
    g.scratch = scratch;
    c.launch(g);
    for (const HeadRange& range : maps.shared_qk) {
      c.launch(OwnValuesBackward{.dv = g.dv, .dy = g.dy, .lse = lse, .heads = range});
      c.launch(SharedKeysBackward{.dq = heads_in(g.dq, range),
                                  .dk = heads_in(g.dk, range),
                                  .q = heads_in(g.q, range),
                                  .normed = maps.normed});
    }
    for (const KeptMaps::Centroids& k : maps.centroids)
      c.launch(CentroidGradient{
          .dm = c.grad(k.parameter), .sums = k.sums, .m = k.parameter.value, .step = c.step});
    c.pass_gradient(qkv, dqkv);
  };
  ctx.tape->record("sparse_attention", y, backward);
  return y;
}

}  // namespace weft
