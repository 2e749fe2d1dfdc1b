// SPDX-License-Identifier: MIT
// Affine map: plain loops (the definition, for f64 and batch_invariant) and OpenBLAS (in f32).
#include "kernels/linear/linear.h"

#include "kernels/cpu.h"

#include <algorithm>
#include <atomic>
#include <cblas.h>
#include <cstddef>
#include <mutex>
#include <omp.h>
#include <sys/mman.h>
#include <type_traits>
#include <vector>

extern "C" {  // OpenBLAS's own, behind every sgemm
void* blas_memory_alloc(int);
void blas_memory_free(void*);
}

namespace weft {
namespace {
// OpenBLAS keeps a buffer for each sgemm that runs at the same time. Where there is no memory for
// one it asks for ever, so buffers for `threads` are asked for here. Throws Error.
void keep_buffers(int threads) {
  // of addresses: few of its pages are ever touched
  constexpr std::size_t kBuffer = std::size_t{128} << 20;
  static std::atomic<int> kept = 0;
  if (threads <= kept) return;
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  openblas_set_num_threads(1);  // a call
  std::vector<void*> buffers;
  while (static_cast<int>(buffers.size()) < threads) {
    void* room = mmap(nullptr, kBuffer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) break;
    munmap(room, kBuffer);
    buffers.push_back(blas_memory_alloc(0));
  }
  for (void* buffer : buffers) blas_memory_free(buffer);
  kept = std::max(kept.load(), static_cast<int>(buffers.size()));
  if (threads > kept)
    fail("out of memory on the host: OpenBLAS needs 128 MiB of addresses for each thread, ",
         threads, " here; raise the limit (ulimit -v), or lower OMP_NUM_THREADS");
}

// A GEMM is cut along the longer axis of its result into pieces, one call of sgemm each. Every call
// packs the whole other operand, at the cost of about thirty rows. Pieces have kLongPiece rows, or
// more where that still gives kPieces of them; they shrink to kShortPiece to give at least
// kFewPieces.
constexpr int64_t kLongPiece = 256, kShortPiece = 64, kPieces = 16, kFewPieces = 4;

blasint narrow(int64_t n) {
  WEFT_CHECK(n <= INT32_MAX, "linear: an axis of ", n, " is longer than the BLAS library takes");
  return static_cast<blasint>(n);
}

// The length of a piece of an axis, whatever the number of threads.
int64_t piece_of(int64_t axis) {
  const auto share = [axis](int64_t pieces) { return (axis + pieces - 1) / pieces; };
  return std::clamp(share(kFewPieces), kShortPiece, std::max(kLongPiece, share(kPieces)));
}

// c (rows, cols) = op(a) op(b) + beta c, all row-major f32; pieces run on OpenMP's threads, not
// OpenBLAS's.
void multiply(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, int64_t rows, int64_t cols, int64_t inner,
              const float* a, const float* b, float beta, float* c) {
  const blasint lda = narrow(op_a == CblasNoTrans ? inner : rows), n = narrow(cols),
                k = narrow(inner);
  const blasint ldb = narrow(op_b == CblasNoTrans ? cols : inner), m = narrow(rows);
  const bool by_rows = rows >= cols;
  const int64_t axis = by_rows ? rows : cols, piece = piece_of(axis);
  const bool parallel = rows * cols > kParallelElements;
  keep_buffers(omp_in_parallel() ? omp_get_num_threads() : parallel ? omp_get_max_threads() : 1);
#pragma omp parallel for schedule(dynamic) if (parallel)
  for (int64_t first = 0; first < axis; first += piece) {
    const auto count = static_cast<blasint>(std::min(piece, axis - first));
    if (by_rows) {
      cblas_sgemm(CblasRowMajor, op_a, op_b, count, n, k, 1.0f,
                  a + (op_a == CblasNoTrans ? first * lda : first), lda, b, ldb, beta,
                  c + first * cols, n);
    } else {
      cblas_sgemm(CblasRowMajor, op_a, op_b, m, count, k, 1.0f, a, lda,
                  b + (op_b == CblasNoTrans ? first : first * ldb), ldb, beta, c + first, n);
    }
  }
}

// A matrix as f32: in place when it is f32 already, else a widened copy.
class Widened {
 public:
  explicit Widened(const TensorView& v) {
    if (v.dtype == DType::f32) {
      data_ = v.as<float>();
      return;
    }
    copy_.resize(static_cast<std::size_t>(v.size()));
    dispatch_float(v.dtype, [&]<class T>() {
      const T* from = v.as<T>();
      float* to = copy_.data();
#pragma omp parallel for schedule(static) if (v.size() > kParallelElements)
      for (int64_t i = 0; i < v.size(); ++i) to[i] = static_cast<float>(from[i]);
    });
    data_ = copy_.data();
  }

  const float* data() const { return data_; }

 private:
  std::vector<float> copy_;
  const float* data_ = nullptr;
};

// The epilogue of a GEMM: out (T) = or += result (f32) + bias, which may be null.
template <class T>
void finish_rows(T* out, const float* result, const T* bias, int64_t rows, int64_t cols,
                 bool accumulate) {
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t m = 0; m < cols; ++m) {
      const float v = result[n * cols + m] + (bias ? static_cast<float>(bias[m]) : 0.0f);
      store(out, n * cols + m, v, accumulate);
    }
  }
}

// out (T) = or += a op(b) + bias.
template <class T>
void multiply_into(T* out, bool accumulate, CBLAS_TRANSPOSE op_b, int64_t rows, int64_t cols,
                   int64_t inner, const Widened& a, const Widened& b, const T* bias) {
  if constexpr (std::is_same_v<T, float>) {
    multiply(CblasNoTrans, op_b, rows, cols, inner, a.data(), b.data(), accumulate ? 1.0f : 0.0f,
             out);
    if (bias) finish_rows(out, out, bias, rows, cols, false);
  } else {
    std::vector<float> result(static_cast<std::size_t>(rows * cols));
    multiply(CblasNoTrans, op_b, rows, cols, inner, a.data(), b.data(), 0.0f, result.data());
    finish_rows(out, result.data(), bias, rows, cols, accumulate);
  }
}

template <class T>
void forward_blas(const LinearForward& k) {
  multiply_into(k.y.as<T>(), false, CblasTrans, k.x.rows(), k.w.rows(), k.x.cols(), Widened(k.x),
                Widened(k.w), k.b.or_null<T>());
}

template <class T>
void backward_blas(const LinearBackward& k) {
  const int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  const Widened dy(k.dy), x(k.dw ? k.x : TensorView{}), w(k.w);
  if (k.dx)
    multiply_into<T>(k.dx.view.as<T>(), k.dx.accumulate, CblasNoTrans, rows, inner, cols, dy, w,
                     nullptr);
  if (k.dw)
    multiply(CblasTrans, CblasNoTrans, cols, inner, rows, dy.data(), x.data(),
             k.dw.accumulate ? 1.0f : 0.0f, k.dw.view.as<float>());
}

template <class T>
void forward_loops(const LinearForward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  const T *x = k.x.as<T>(), *w = k.w.as<T>(), *b = k.b.or_null<T>();
  T* y = k.y.as<T>();
#pragma omp parallel for collapse(2) schedule(static) if (rows * cols * inner > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t m = 0; m < cols; ++m) {
      y[n * cols + m] =
          static_cast<T>(dot(x + n * inner, w + m * inner, inner) + (b ? static_cast<W>(b[m]) : 0));
    }
  }
}

// out (rows, cols) = or += sum_i left[row, i] right[i, col], left given by its two strides.
template <class T, class Out>
void gemm_loops(Out* out, bool accumulate, const T* left, int64_t row_stride, int64_t sum_stride,
                const T* right, int64_t rows, int64_t cols, int64_t inner) {
  using W = wide_t<T>;
#pragma omp parallel for schedule(static) if (rows * cols * inner > kParallelElements)
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<W> sum(static_cast<std::size_t>(cols));
    for (int64_t i = 0; i < inner; ++i) {
      const W factor = static_cast<W>(left[r * row_stride + i * sum_stride]);
      for (int64_t c = 0; c < cols; ++c)
        sum[static_cast<std::size_t>(c)] += factor * static_cast<W>(right[i * cols + c]);
    }
    for (int64_t c = 0; c < cols; ++c)
      store(out, r * cols + c, sum[static_cast<std::size_t>(c)], accumulate);
  }
}

template <class T>
void backward_loops(const LinearBackward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  const T *dy = k.dy.as<T>(), *x = k.x.as<T>(), *w = k.w.as<T>();
  if (k.dx) gemm_loops(k.dx.view.as<T>(), k.dx.accumulate, dy, cols, 1, w, rows, inner, cols);
  if (k.dw) gemm_loops(k.dw.view.as<W>(), k.dw.accumulate, dy, 1, cols, x, cols, inner, rows);
}

template <class T>
void bias_gradient(const LinearBackward& k) {
  using W = wide_t<T>;
  const int64_t cols = k.w.rows();
  const T* dy = k.dy.as<T>();
  sum_rows<W>(k.db, k.x.rows(), cols,
              [=](int64_t n, int64_t c) { return static_cast<W>(dy[n * cols + c]); });
}
}  // namespace

void linear_forward_loops(const LinearForward& k) {
  dispatch_float(k.x.dtype, [&]<class T>() { forward_loops<T>(k); });
}

void linear_backward_loops(const LinearBackward& k) {
  dispatch_float(k.x.dtype, [&]<class T>() {
    backward_loops<T>(k);
    if (k.db) bias_gradient<T>(k);
  });
}

void check(const LinearForward& k) {
  const int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  const DType t = k.x.dtype;
  expect_floating(k.x, "linear_forward: x");
  WEFT_CHECK(inner > 0, "linear_forward: x needs at least one column, got ", shape_text(k.x));
  expect_matrix(k.w, t, cols, inner, "linear_forward: w");
  expect_matrix(k.y, t, rows, cols, "linear_forward: y");
  if (k.b) expect_size(k.b, t, cols, "linear_forward: b");
}

void check(const LinearBackward& k) {
  const int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  const DType t = k.x.dtype;
  expect_floating(k.x, "linear_backward: x");
  WEFT_CHECK(inner > 0, "linear_backward: x needs at least one column, got ", shape_text(k.x));
  expect_matrix(k.w, t, cols, inner, "linear_backward: w");
  expect_matrix(k.dy, t, rows, cols, "linear_backward: dy");
  if (k.dx) expect_matrix(k.dx.view, t, rows, inner, "linear_backward: dx");
  if (k.dw) expect_matrix(k.dw.view, wide(t), cols, inner, "linear_backward: dw");
  if (k.db) expect_size(k.db.view, wide(t), cols, "linear_backward: db");
}

void compute(CpuQueue&, const LinearForward& k) {
  if (k.y.size() == 0) return;
  if (k.x.dtype == DType::f64 || k.batch_invariant) return linear_forward_loops(k);
  dispatch_float(k.x.dtype, [&]<class T>() { forward_blas<T>(k); });
}

void compute(CpuQueue&, const LinearBackward& k) {
  if (k.x.dtype == DType::f64 || k.dy.size() == 0) return linear_backward_loops(k);
  dispatch_float(k.x.dtype, [&]<class T>() {
    backward_blas<T>(k);
    if (k.db) bias_gradient<T>(k);
  });
}
}  // namespace weft
