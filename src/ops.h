// SPDX-License-Identifier: MIT
// The differentiable operations. Each one: check shapes, allocate, launch, record.
// T is the compute type (f64, f32, f16, bf16); wide(T) is f64 for f64, else f32.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/layers/activation.h"
#include "kernels/layers/rotary.h"
#include "src/tape.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

namespace weft {
// Position tables for embedding(): see kernels/layers/embedding.h.
struct PositionTable {
  Var table;  // (rows, C)  T
  int64_t divisor = 1;
};

// Sequences as the model reads them. All but tokens may be empty.
struct Sequences {
  Tensor tokens;     // (B, T)  i32
  Tensor offsets;    // (B)     i32: the place of the first token in the full context; empty: 0
  Tensor positions;  // (B, T)  i32: the place of each token there; empty: its index + offset
  // (B, K)  i32: what each sequence is told, rows of the start table; empty: nothing
  Tensor conditions;

  // Implicit, so that tokens can stand for sequences.
  Sequences(Tensor t, Tensor o = {}, Tensor p = {}, Tensor c = {})
      : tokens(std::move(t)),
        offsets(std::move(o)),
        positions(std::move(p)),
        conditions(std::move(c)) {}
};

struct EmbeddingTables {
  Var table, start;  // (V, C); (C), with conditions (R, C)
  std::vector<PositionTable> axes{};
  Var previous{};  // (V, C), or absent
};

// (B, T) -> (B, T, C). Row 0 is `start`, or the sum of the rows of it that conditions name. Row t
// embeds token t - 1, and token t - 2 by `previous`.
Var embedding(Ctx&, const Sequences&, const EmbeddingTables&);
// For sampling: row number *row only, which is in the queue's memory, (B, 1, C). Has no gradient.
Var embedding_row(Ctx&, const Sequences&, const EmbeddingTables&, const int32_t* row);

// w, b (C) wide(T)
Var layernorm(Ctx&, const Var& x, const Var& w, const Var& b, double eps = 1e-5);
// x (B, T, C), w (4 C) wide(T): see kernels/layers/canon.h
Var canon(Ctx&, const Var& x, const Var& w);
// sum_i w_i x_i, element by element: x_i (..., C), w_i (C) wide(T); see kernels/layers/mix.h
Var mix(Ctx&, const std::vector<Var>& x, const std::vector<Var>& w);
// (..., K) x (M, K) -> (..., M); b or Var{}
Var linear(Ctx&, const Var& x, const Var& w, const Var& b);
Var dropout(Ctx&, const Var& x, double p);  // acts when ctx.training

// matmul + bias, not yet added: the op that reads it adds the bias, and computes its gradient.
struct Affine {
  Var matmul;  // (..., C)  T
  Var bias;    // (C)       T, or empty (Var{})

  Affine(Var x, Var b = {})
      : matmul(std::move(x)),
        bias(std::move(b)) {}  // without a bias, too
};

// f(x), kernels/layers/activation.h
Var activation(Ctx&, const Affine& x, Activation f = Activation::gelu);
// f(x up^T + up_bias) down^T: x (..., C), up (M, C), up_bias (M), down (C, M) -> (..., C), without
// a bias.
Var mlp(Ctx&, const Var& x, const Var& up, const Var& up_bias, const Var& down,
        Activation f = Activation::gelu);
Var residual_dropout(Ctx&, const Var& x, const Affine& branch, double p);  // x + dropout(branch)

// The same in one pass with the layernorm of the sum.
struct SumAndNorm {
  Var sum, norm;
};

SumAndNorm residual_layernorm(Ctx&, const Var& x, const Affine& branch, double p, const Var& w,
                              const Var& b, double eps = 1e-5);

// Heads in packed tensors: qkv is (B, T, H (2 Dqk + Dv)), all heads of q, then of k, then of v.
struct AttentionShape {
  int64_t heads = 0, qk_size = 0, v_size = 0;  // H, Dqk, Dv

  int64_t columns() const { return heads * (2 * qk_size + v_size); }

  int64_t head_size() const { return qk_size > v_size ? qk_size : v_size; }  // of the larger

  double scale() const { return 1 / std::sqrt(static_cast<double>(qk_size)); }
};

// What is done to queries and keys before attention, see kernels/layers/rotary.h. Each field may be
// absent.
struct QkOptions {
  double norm_eps = 0;  // added to the mean square in the RMS norm; 0: no norm
  // (R, Dqk / 2, 2)  wide(T): cos and sin of each place; empty: not rotated
  Tensor table{};
  Tensor offsets{}, positions{};  // of Sequences
  Var gain{};                     // (H) wide(T) of queries, with a norm alone

  explicit operator bool() const { return norm_eps > 0 || table; }
};

QkForm form_of(const QkOptions&);
// The result takes qkv's memory. Nothing may read qkv's value afterwards.
Var norm_and_rotate(Ctx&, const Var& qkv, const AttentionShape&, const QkOptions&);

class DynamicMaps;  // src/ops/dynamic_heads.h

// Maps, and the memory of those that a batch has of its own.
struct KeptMaps {
  AttentionMaps maps;
  std::vector<Tensor> memory{};
  std::vector<std::shared_ptr<const DynamicMaps>> dynamic{};  // of heads that `maps` leave out

  KeptMaps(const AttentionMaps& m)
      : maps(m) {}  // of all sequences alike
};

// Maps of the pairs of `maps` that lie in one segment. segments (B, T), see Segments in
// kernels/attention/attention.h. documents: segments are document_starts(). orders, stored: see
// SegmentMaps.
KeptMaps segment_maps(Ctx&, const AttentionMaps& maps, const Tensor& segments,
                      bool documents = false, const Tensor& orders = {}, int64_t stored = 0);
// For each token the first position of its document, (B, T); with `row` of that position only,
// (B, 1). See kernels/attention/documents.h.
Tensor document_starts(Ctx&, const Tensor& tokens, int64_t separator, const int32_t* row = nullptr);

struct AttentionOptions {
  // Keeps qkv only; the backward pass computes y and log-sum-exps again. Later ops may keep y.
  bool recompute = false;
  AttentionForm form = AttentionForm::automatic;
};

// qkv (see AttentionShape) -> (B, T, H Dv), with scale 1 / sqrt(Dqk). The maps are of this T.
Var sparse_attention(Ctx&, const Var& qkv, const AttentionShape&, const KeptMaps&,
                     const AttentionOptions& = {});

// Logits (..., V), targets (...) -> losses (...) in nats, wide(T).
Var cross_entropy(Ctx&, const Var& logits, const Tensor& targets);
// The mean of all elements, (1). Also stores it in ctx.results->loss, where there are results.
Var mean(Ctx&, const Var& x);
}  // namespace weft
