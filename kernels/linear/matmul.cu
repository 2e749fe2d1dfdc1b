// SPDX-License-Identifier: MIT
// GEMMs through cuBLASLt: descriptions, and the algorithms in use.
#include "kernels/linear/matmul.cuh"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "kernels/linear/linear.h"

namespace weft {
namespace {

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

using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using Algorithm = cublasLtMatmulAlgo_t;

// The library's description of a GEMM.
struct GemmPlan {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a, b, out;

  explicit GemmPlan(const Gemm&);
};

cudaDataType_t type_of(DType t) {
  switch (t) {
    case DType::f32: return CUDA_R_32F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: fail(str("linear: CUDA takes f32, f16 or bf16, got ", name_of(t)));
  }
}

// The largest power of two, at most 256, that divides an address.
std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return static_cast<std::uint32_t>(address == 0 ? 256
                                                 : std::min<std::uintptr_t>(256, address & (~address + 1)));
}

// Everything that the choice of an algorithm depends on, besides the device and the library.
using Key = std::array<std::int64_t, 13>;
Key key_of(const CudaQueue& q, const Gemm& p) {
  return {static_cast<std::int64_t>(q.workspace_bytes),
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

template <class Value>
void set(const GemmPlan& plan, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  WEFT_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(plan.operation.handle, attribute, &value, sizeof(value)));
}

template <class Value>
void set(Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  WEFT_CUBLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof(value)));
}

void describe_layout(cublasLtMatrixLayout_t& layout, DType type, std::int64_t rows, std::int64_t cols) {
  WEFT_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type_of(type), static_cast<std::uint64_t>(rows),
                                               static_cast<std::uint64_t>(cols), rows));
}

// The library's first choice, or nothing when it has no algorithm.
std::optional<Algorithm> ask_for_algorithm(const CudaQueue& q, const Gemm& p) {
  const GemmPlan plan(p);
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
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  WEFT_CUBLAS_CHECK(status);
  if (found == 0) return {};
  WEFT_CUBLAS_CHECK(result.state);
  return result.algo;
}

// The algorithms in use, by handle of the library, which is one device.
struct Algorithms {
  std::mutex mutex;
  std::map<cublasLtHandle_t, std::map<Key, std::optional<Algorithm>>> of_handle;
};
// Never destroyed: a device may be among the last things that are.
Algorithms& algorithms() {
  static auto* const all = new Algorithms;
  return *all;
}

std::optional<Algorithm> algorithm_for(const CudaQueue& q, const Gemm& p) {
  Algorithms& known = algorithms();
  const std::lock_guard<std::mutex> lock(known.mutex);
  auto& of_device = known.of_handle[q.cublaslt];
  const Key key = key_of(q, p);
  const auto at = of_device.find(key);
  return at != of_device.end() ? at->second : of_device[key] = ask_for_algorithm(q, p);
}

GemmPlan::GemmPlan(const Gemm& p) {
  WEFT_CUBLAS_CHECK(cublasLtMatmulDescCreate(&operation.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(*this, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(*this, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(*this, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(*this, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    set(*this, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.to));
  }
  describe_layout(a.handle, p.in, p.transpose_a ? p.inner : p.rows, p.transpose_a ? p.rows : p.inner);
  describe_layout(b.handle, p.in, p.transpose_b ? p.cols : p.inner, p.transpose_b ? p.inner : p.cols);
  describe_layout(out.handle, p.to, p.rows, p.cols);
}

}  // namespace

void forget_algorithms(cublasLtContext* handle) {
  Algorithms& known = algorithms();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.of_handle.erase(handle);
}

bool multiply(CudaQueue& q, const Gemm& p) {
  const std::optional<Algorithm> algorithm = algorithm_for(q, p);
  if (!algorithm) return false;
  const GemmPlan plan(p);
  const float alpha = 1.0f, beta = p.accumulate ? 1.0f : 0.0f;
  WEFT_CUBLAS_CHECK(cublasLtMatmul(q.cublaslt, plan.operation.handle, &alpha, p.a, plan.a.handle, p.b,
                                   plan.b.handle, &beta, p.out, plan.out.handle, p.out, plan.out.handle,
                                   &*algorithm, q.workspace, q.workspace_bytes, q.stream));
  return true;
}

}  // namespace weft
