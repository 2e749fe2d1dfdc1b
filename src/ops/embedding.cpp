// SPDX-License-Identifier: MIT
// The embedding, as a differentiable operation and for sampling.
#include "kernels/layers/embedding.h"

#include "src/ops.h"

#include <cstddef>
#include <vector>

namespace weft {
namespace {
EmbeddingForward embedding_of(const Sequences& s, const TensorView& y, const EmbeddingTables& of) {
  const std::vector<PositionTable>& axes = of.axes;
  WEFT_CHECK(axes.size() <= static_cast<std::size_t>(kMaxPositionAxes), "embedding: at most ",
             kMaxPositionAxes, " position axes, got ", axes.size());
  EmbeddingForward forward{
      .y = y,
      .tokens = s.tokens,
      .table = of.table.value,
      .start = of.start.value,
      .previous = of.previous.value,
      .axis = {},
      .axes = static_cast<int>(axes.size()),
      .offsets = s.offsets,
      .positions = s.positions,
      .conditions = s.conditions,
  };
  for (std::size_t a = 0; a < axes.size(); ++a)
    forward.axis[a] = {axes[a].table.value, axes[a].divisor};
  return forward;
}

// Of what embedding() returns.
int64_t checked_width(const Sequences& s, const Var& table) {
  const TensorView& t = s.tokens.view();
  WEFT_CHECK(t.rank == 2 && t.dtype == DType::i32, "embedding: tokens must be (B, T) of i32, got ",
             shape_text(t), " of ", name_of(t.dtype));
  WEFT_CHECK(table.value.view().rank == 2, "embedding: table must be (V, C), got ",
             shape_text(table.value));
  return table.value.view().cols();
}
}  // namespace

Var embedding_row(Ctx& ctx, const Sequences& s, const EmbeddingTables& of, const int32_t* row) {
  WEFT_CHECK(!ctx.tape, "embedding: one row is for sampling, without a tape");
  const int64_t width = checked_width(s, of.table);
  const Var y = ctx.output({s.tokens.shape()[0], 1, width}, of.table.dtype());
  EmbeddingForward forward = embedding_of(s, y.value, of);
  forward.first_at = row;
  ctx.launch(forward);
  return y;
}

// Keeps the sequences.
Var embedding(Ctx& ctx, const Sequences& s, const EmbeddingTables& of) {
  const int64_t width = checked_width(s, of.table);
  const Var y = ctx.output({s.tokens.shape()[0], s.tokens.shape()[1], width}, of.table.dtype());
  ctx.launch(embedding_of(s, y.value, of));
  if (!ctx.tape) return y;
  ctx.tape->record("embedding", y, [s, of](Ctx& c, const Tensor& dy) {
    const std::vector<PositionTable>& axes = of.axes;
    EmbeddingBackward b{
        .dtable = c.grad(of.table),
        .dstart = c.grad(of.start),
        .dprevious = of.previous.value ? c.grad(of.previous) : GradView{},
        .daxis = {},
        .divisor = {},
        .axes = static_cast<int>(axes.size()),
        .dy = dy,
        .tokens = s.tokens,
        .offsets = s.offsets,
        .positions = s.positions,
        .conditions = s.conditions,
    };
    for (std::size_t a = 0; a < axes.size(); ++a) {
      b.daxis[a] = c.grad(axes[a].table);
      b.divisor[a] = axes[a].divisor;
    }
    c.launch(b);
  });
  return y;
}
}  // namespace weft
