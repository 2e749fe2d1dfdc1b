// SPDX-License-Identifier: MIT
// Affine map on CUDA through cuBLASLt. The library is column-major: a row-major (R, C) matrix is its (C, R)
// matrix with leading dimension C, so y = x w^T is asked for as y^T = w x^T. Only algorithms whose partial
// sums are added in a fixed order are allowed. db is our own sum over rows.
#include <cublasLt.h>

#include <array>
#include <map>
#include <mutex>

#include "kernels/columns.cuh"
#include "kernels/cuda.cuh"
#include "kernels/decode_linear.h"
#include "kernels/linear.h"

namespace weft {
namespace {

constexpr int kThreads = 256;

#define WEFT_CUBLAS_CHECK(statement)                                                                         \
  do {                                                                                                       \
    const cublasStatus_t weft_status = (statement);                                                          \
    if (weft_status != CUBLAS_STATUS_SUCCESS) {                                                              \
      fail(str("cuBLASLt: ", cublasLtGetStatusString(weft_status), "  [", #statement, " at ", __FILE_NAME__, \
               ":", __LINE__, "]"));                                                                         \
    }                                                                                                        \
  } while (0)

// A handle of the library, destroyed with its scope.
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle) kDestroy(handle);
  }
};
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(DType t) {
  switch (t) {
    case DType::f32: return CUDA_R_32F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: fail(str("linear: CUDA takes f32, f16 or bf16, got ", name_of(t)));
  }
}

// One product in the library's column-major terms: out (rows, cols) = op(a) op(b) + beta out, sums over
// `inner`.
struct Product {
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  const void* bias = nullptr;  // (rows), added to every column
  bool transpose_a = false, transpose_b = false, accumulate = false;
  std::int64_t rows = 0, cols = 0, inner = 0;
  DType in = DType::f32, to = DType::f32;
};

// The largest power of two, at most 256, that divides an address.
std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return static_cast<std::uint32_t>(address == 0 ? 256
                                                 : std::min<std::uintptr_t>(256, address & (~address + 1)));
}

// Everything the choice of an algorithm depends on.
using Key = std::array<std::int64_t, 14>;
Key key_of(const CudaQueue& q, const Product& p) {
  return {static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(q.cublaslt)),
          static_cast<std::int64_t>(q.workspace_bytes),
          p.rows,
          p.cols,
          p.inner,
          p.transpose_a,
          p.transpose_b,
          p.accumulate,
          static_cast<std::int64_t>(p.in),
          static_cast<std::int64_t>(p.to),
          alignment_of(p.a),
          alignment_of(p.b),
          alignment_of(p.out),
          p.bias ? alignment_of(p.bias) : 0};
}

struct Plan {
  Operation operation;
  Layout a, b, out;
};

void describe_layout(Layout& layout, DType type, std::int64_t rows, std::int64_t cols) {
  WEFT_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout.handle, type_of(type),
                                               static_cast<std::uint64_t>(rows),
                                               static_cast<std::uint64_t>(cols), rows));
}

template <class Value>
void set(Operation& operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  WEFT_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation.handle, attribute, &value, sizeof(value)));
}

template <class Value>
void set(Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  WEFT_CUBLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof(value)));
}

void describe(Plan& plan, const Product& p) {
  WEFT_CUBLAS_CHECK(cublasLtMatmulDescCreate(&plan.operation.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.to));
  }
  describe_layout(plan.a, p.in, p.transpose_a ? p.inner : p.rows, p.transpose_a ? p.rows : p.inner);
  describe_layout(plan.b, p.in, p.transpose_b ? p.cols : p.inner, p.transpose_b ? p.inner : p.cols);
  describe_layout(plan.out, p.to, p.rows, p.cols);
}

// The library's first choice, or false when it has none.
bool ask_for_algorithm(const CudaQueue& q, const Product& p, const Plan& plan,
                       cublasLtMatmulAlgo_t& algorithm) {
  Preference preference;
  WEFT_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference.handle));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(q.workspace_bytes));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                                 CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.out));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.out));
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(q.cublaslt, plan.operation.handle, plan.a.handle, plan.b.handle,
                                     plan.out.handle, plan.out.handle, preference.handle, 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0)) return false;
  WEFT_CUBLAS_CHECK(status);
  WEFT_CUBLAS_CHECK(result.state);
  algorithm = result.algo;
  return true;
}

// The algorithm for a product, asked for once; null when the library has none.
const cublasLtMatmulAlgo_t* algorithm_for(const CudaQueue& q, const Product& p, const Plan& plan) {
  struct Entry {
    bool exists = false;
    cublasLtMatmulAlgo_t algorithm = {};
  };
  static std::mutex mutex;
  static std::map<Key, Entry> entries;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [at, is_new] = entries.try_emplace(key_of(q, p));
  if (is_new) at->second.exists = ask_for_algorithm(q, p, plan, at->second.algorithm);
  return at->second.exists ? &at->second.algorithm : nullptr;
}

// False when the library has no algorithm; nothing is launched then.
bool multiply(CudaQueue& q, const Product& p) {
  Plan plan;
  describe(plan, p);
  const cublasLtMatmulAlgo_t* algorithm = algorithm_for(q, p, plan);
  if (!algorithm) return false;
  const float alpha = 1.0f, beta = p.accumulate ? 1.0f : 0.0f;
  WEFT_CUBLAS_CHECK(cublasLtMatmul(q.cublaslt, plan.operation.handle, &alpha, p.a, plan.a.handle, p.b,
                                   plan.b.handle, &beta, p.out, plan.out.handle, p.out, plan.out.handle,
                                   algorithm, q.workspace, q.workspace_bytes, q.stream));
  return true;
}

void require(bool done, const char* what, const Product& p) {
  WEFT_CHECK(done, what, ": cuBLASLt has no algorithm for ", p.rows, " x ", p.cols, " x ", p.inner, " of ",
             name_of(p.in), " with sums in a fixed order");
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    bias_rows(T* y, const T* b, std::int64_t size, std::int64_t cols) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) y[i] = from_float<T>(to_float(y[i]) + to_float(b[i % cols]));
}

// y += b, row by row: for shapes that the library's own bias epilogue does not take.
void add_bias(CudaQueue& q, const TensorView& y, const TensorView& b) {
  dispatch_cuda(y.dtype, [&]<class T>() {
    bias_rows<<<blocks_for(y.size(), kThreads), kThreads, 0, q.stream>>>(y.as<T>(), b.as<T>(), y.size(),
                                                                         y.cols());
  });
}

// db's terms: the rows of dy.
template <class T>
struct RowTerms {
  const T* dy;
  std::int64_t cols;
  bool packed;
  __device__ void operator()(std::int64_t row, std::int64_t first, float (&terms)[1][8]) const {
    load(terms[0], dy + row * cols + first, cols - first, packed);
  }
};

}  // namespace

void run(CudaQueue& q, const LinearForward& k) {
  check(k);
  if (k.y.size() == 0) return;
  if (k.batch_invariant) return run(q, DecodeLinear{.y = k.y, .x = k.x, .w = k.w, .b = k.b});
  Product p;
  p.a = k.w.data;
  p.transpose_a = true;
  p.b = k.x.data;
  p.out = k.y.data;
  p.rows = k.w.rows();
  p.cols = k.x.rows();
  p.inner = k.x.cols();
  p.in = p.to = k.x.dtype;
  // The bias epilogue reads the bias in vectors: it is asked for where these are aligned.
  if (k.b && aligned16(k.b) && k.b.bytes() % 16 == 0) {
    p.bias = k.b.data;
    if (multiply(q, p)) return;
    p.bias = nullptr;
  }
  require(multiply(q, p), LinearForward::kName, p);
  if (k.b) add_bias(q, k.y, k.b);
}

void run(CudaQueue& q, const LinearBackward& k) {
  check(k);
  const std::int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  if (k.dx && k.dx.view.size() > 0) {  // dx^T (K, N) = w^T (K, M) dy^T (M, N)
    Product p;
    p.a = k.w.data;
    p.b = k.dy.data;
    p.out = k.dx.view.data;
    p.rows = inner;
    p.cols = rows;
    p.inner = cols;
    p.in = p.to = k.x.dtype;
    p.accumulate = k.dx.accumulate;
    require(multiply(q, p), LinearBackward::kName, p);
  }
  if (k.dw && rows == 0 && !k.dw.accumulate) {
    WEFT_CUDA_CHECK(
        cudaMemsetAsync(k.dw.view.data, 0, static_cast<std::size_t>(k.dw.view.bytes()), q.stream));
  } else if (k.dw && rows > 0) {  // dw^T (K, M) = x^T (K, N) dy (N, M)
    Product p;
    p.a = k.x.data;
    p.b = k.dy.data;
    p.transpose_b = true;
    p.out = k.dw.view.data;
    p.rows = inner;
    p.cols = cols;
    p.inner = rows;
    p.in = k.x.dtype;
    p.to = DType::f32;
    p.accumulate = k.dw.accumulate;
    require(multiply(q, p), LinearBackward::kName, p);
  }
  if (!k.db) return;
  dispatch_cuda(k.dy.dtype, [&]<class T>() {
    launch_column_sums<1>(q, column_sums(k.db), ColumnSums{}, rows, cols,
                          RowTerms<T>{k.dy.as<T>(), cols, aligned_rows(k.dy)}, LinearBackward::kName);
  });
}

}  // namespace weft
