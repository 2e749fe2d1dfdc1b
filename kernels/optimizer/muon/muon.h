// SPDX-License-Identifier: MIT
// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): momentum whose matrices
// become nearly orthogonal before they are added to the weights. Of a matrix p (R, C), three
// kernels in turn compute
//   MuonMomentum   g = update_scale * gradient
//                  m = momentum m + (1 - momentum) g
//                  u = momentum m + (1 - momentum) g                   (Nesterov)
//   NewtonSchulz   X = u / (|u| + 1e-7)
//                  five times: A = X X^T,  X = a X + (b A + c A^2) X
//                  o = sqrt(max(1, R / C)) X
//   MuonUpdate     p = p - matrix_learning_rate (o + weight_decay p)
// Where R > C, NewtonSchulz works on the transpose of u. MuonMomentum and MuonUpdate run over flat
// blocks of many matrices.
#pragma once

#include "kernels/diagnostics/launch_profile.h"
#include "kernels/queue.h"
#include "kernels/step_scalars.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace weft {
// The type T of u, X and o in a model that computes in `t`. f16 has too few exponents for them.
inline DType muon_dtype(DType t) { return t == DType::f16 ? DType::bf16 : t; }

struct MuonMomentum {
  static constexpr const char* kName = "muon_momentum";
  TensorView u;                       // (P)  T
  TensorView m;                       // (P)  wide(T), read and written
  TensorView gradients;               // (P)  as m
  const StepScalars* step = nullptr;  // in the queue's memory: momentum
  // in the queue's memory: update_scale; 0 leaves m and gives u = 0
  const StepResults* results = nullptr;

  std::vector<TensorView> outputs() const { return {u, m}; }

  std::vector<TensorView> inputs() const { return {m, gradients}; }
};

WEFT_KERNEL(MuonMomentum);

// Where a row-major matrix lies in a row of NewtonSchulz::x.
struct MuonMatrix {
  int64_t offset, rows, cols;

  int64_t side() const { return std::min(rows, cols); }  // of A

  int64_t square() const { return (side() * side() + 7) / 8 * 8; }  // elements that A takes

  double scale() const {
    return std::sqrt(static_cast<double>(rows) / static_cast<double>(side()));
  }

  bool operator==(const MuonMatrix&) const = default;
};

struct NewtonSchulz {
  static constexpr const char* kName = "newton_schulz";
  static constexpr int kSteps = 5;
  static constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kLeast = 1e-7;
  TensorView x;                      // (n, P)  T; u, then o in its place
  std::vector<MuonMatrix> matrices;  // in each row of x; other elements stay as they are
  // Memory that CUDA computes in, of type T. Both forms round every X, A and b A + c A^2 to T.
  TensorView other;    // (n, P)
  TensorView squares;  // (2, square_elements())

  int64_t square_elements() const {
    int64_t sum = 0;
    for (const MuonMatrix& m : matrices) sum += m.square();
    return sum * x.rows();
  }

  std::vector<TensorView> outputs() const { return {x}; }

  LaunchCost cost() const {
    double flops = 0;
    std::string shapes;
    for (const MuonMatrix& m : matrices) {
      const auto side = static_cast<double>(m.side());
      flops += 2 * side * (2 * static_cast<double>(m.rows * m.cols) + side * side);
      shapes += str(shapes.empty() ? "" : ", ", m.rows, " x ", m.cols);
    }
    return {
        .bytes = 2 * bytes_of({x}),
        .flops = kSteps * static_cast<double>(x.rows()) * flops,
        .shape = str(x.rows(), " of ", shapes),
    };
  }
};

WEFT_KERNEL(NewtonSchulz);

struct MuonUpdate {
  static constexpr const char* kName = "muon_update";
  TensorView master;  // (P)  wide(T), read and written
  TensorView ema;     // (P)  as master, read and written; or absent
  // (P)  any type, written; or absent where the model computes in master's type
  TensorView compute;
  TensorView o;  // (P)  T
  double weight_decay = 0.01;
  const StepScalars* step = nullptr;     // in the queue's memory: matrix_learning_rate, ema_decay
  const StepResults* results = nullptr;  // in the queue's memory: update_scale; 0 changes nothing

  std::vector<TensorView> outputs() const { return {master, ema, compute}; }

  std::vector<TensorView> inputs() const { return {master, ema, o}; }
};

WEFT_KERNEL(MuonUpdate);
}  // namespace weft
