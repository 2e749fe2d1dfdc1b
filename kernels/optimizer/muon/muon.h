// SPDX-License-Identifier: MIT
// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): momentum whose matrices
// become nearly orthogonal before they are added to the weights. Of a matrix p (R, C), four kernels
// in turn compute
//   MuonMomentum   g = update_scale * gradient
//                  m = momentum m + (1 - momentum) g
//                  u = momentum m + (1 - momentum) g                   (Nesterov)
//   NewtonSchulz   X = u / (1.01 |u| + 1e-7)
//                  for (a, b, c) of five steps: A = X X^T,  X = a X + (b A + c A^2) X
//                  o = sqrt(max(1, R / C)) X
//   NormaliseRows  v_r = 0.95 v_r + 0.05 mean_c o_rc^2
//                  o_rc = s o_rc / (sqrt(v_r) + 1e-10), where s leaves |o| as it was
//   MuonUpdate     p = p - matrix_learning_rate (o + weight_decay p)
// (a, b, c) are those of Polar Express (Amsel et al. 2025, arXiv 2505.16932). Rows, which are
// output neurons, become equally long as a mean over the updates: NorMuon (Li et al. 2025, arXiv
// 2510.05491). Where R > C, NewtonSchulz works on the transpose of u. MuonMomentum and MuonUpdate
// run over flat blocks of many matrices.
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

// x -> a x + b x^3 + c x^5.
struct Quintic {
  double a, b, c;

  // The same of x / f.
  constexpr Quintic shrunk(double f) const {
    return {a / f, b / (f * f * f), c / (f * f * f * f * f)};
  }
};

struct NewtonSchulz {
  static constexpr const char* kName = "newton_schulz";
  static constexpr int kSteps = 5;
  // kSafety keeps singular values below 1 where rounding adds to them.
  static constexpr double kLeast = 1e-7, kSafety = 1.01;
  // The best of degree 5, in turn, for singular values from 1e-3 to 1.
  static constexpr Quintic kPolynomials[kSteps] = {
      Quintic{8.28721201814563, -23.595886519098837, 17.300387312530933}.shrunk(kSafety),
      Quintic{4.107059111542203, -2.9478499167379106, 0.5448431082926601}.shrunk(kSafety),
      Quintic{3.9486908534822946, -2.908902115962949, 0.5518191394370137}.shrunk(kSafety),
      Quintic{3.3184196573706015, -2.488488024314874, 0.51004894012372}.shrunk(kSafety),
      Quintic{2.300652019954817, -1.6689039845747493, 0.4188073119525673},
  };

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

// v begins at zero and has no correction for it: the first updates divide by a v that is too small
// by one factor for all rows, which s cancels. A checkpoint without v resumes in the same way.
struct NormaliseRows {
  static constexpr const char* kName = "normalise_rows";
  static constexpr double kBeta2 = 0.95, kLeast = 1e-10;
  TensorView x;                          // (n, P)  T; o, read and written
  std::vector<MuonMatrix> matrices;      // in each row of x; other elements stay as they are
  TensorView v;                          // (n, V)  wide(T), read and written
  std::vector<int64_t> moments;          // where the R elements of each matrix begin in a row of v
  const StepResults* results = nullptr;  // in the queue's memory: update_scale; 0 changes nothing

  std::vector<TensorView> outputs() const { return {x, v}; }

  std::vector<TensorView> inputs() const { return {x, v}; }
};

WEFT_KERNEL(NormaliseRows);

// Copies the v of NormaliseRows that lies in a part of a flat block, whose v of each matrix begins
// where the matrix does, to a dense vector, or back. The other elements stay as they are.
struct MoveMoments {
  static constexpr const char* kName = "move_moments";
  TensorView part;   // (N)  f32 or f64: elements [begin, begin + N) of the matrices
  TensorView dense;  // (n, V)  as part; v of each matrix follows that of the one before
  int64_t begin = 0, period = 0;     // period: elements from a row of matrices to the next
  std::vector<MuonMatrix> matrices;  // in each of n rows
  bool back = false;                 // to `part`

  std::vector<TensorView> outputs() const { return {back ? part : dense}; }

  std::vector<TensorView> inputs() const { return {back ? dense : part}; }
};

WEFT_KERNEL(MoveMoments);

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
