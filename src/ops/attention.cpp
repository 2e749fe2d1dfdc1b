// SPDX-License-Identifier: MIT
// Attention and what prepares it. The comment at an op says what its closure keeps for the backward
// pass.
#include "kernels/attention/documents.h"
#include "src/ops/dynamic_heads.h"

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
      .gain = options.gain.value,
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
    const Var& gain = options.gain;
    const Tensor row_dgain =
        gain.value ? c.empty({dx.view().rows(), shape.heads}, gain.dtype()) : Tensor{};
    c.launch(QkBackward{
        .dqkv = dx,
        .y = kept,
        .rstd = rstd,
        .heads = shape.heads,
        .qk_size = shape.qk_size,
        .form = form_of(options),
        .dgain = gain.value ? c.grad(gain) : GradView{},
        .row_dgain = row_dgain,
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

// Keeps qkv, y and log-sum-exps; with options.recompute qkv alone. Dynamic heads are launched last.
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
  AttentionForward f{
      .y = heads_of(y.value, 0, shape.heads, shape.v_size),
      .lse = {},
      .q = q,
      .k = k,
      .v = v,
      .maps = {},
      .scale = shape.scale(),
  };
  f.form = options.form;
  std::vector<DynamicMaps::Backward> backward_of_heads;
  if (maps.maps.passes > 0) {
    AttentionForward with_maps = f;
    with_maps.maps = maps.maps;
    backward_of_heads.push_back(
        [attended = attend(ctx, with_maps)](Ctx& c, const HeadGradients& g) {
          attend_backward(c, attended, g);
        });
  }
  for (const auto& dynamic : maps.dynamic) backward_of_heads.push_back(dynamic->attend(ctx, f));
  if (!ctx.tape) return y;
  const auto backward = [qkv, yv = y.value, shape, maps, backward_of_heads](Ctx& c,
                                                                            const Tensor& dy) {
    const Tensor dqkv = c.empty(qkv.shape(), qkv.dtype());
    const auto [dq, dk, dv] = packed_heads(dqkv, shape.heads, shape.qk_size, shape.v_size);
    const HeadGradients gradients{dq, dk, dv, heads_of(dy, 0, shape.heads, shape.v_size)};
    for (const auto& of_heads : backward_of_heads) of_heads(c, gradients);
    c.pass_gradient(qkv, dqkv);
  };
  ctx.tape->record("sparse_attention", y, backward);
  return y;
}
}  // namespace weft
