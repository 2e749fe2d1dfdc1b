// SPDX-License-Identifier: MIT
// GEMMs through cuBLASLt: descriptions, candidates, and the choice between them.
#include "kernels/linear/linear.h"
#include "kernels/linear/matmul.cuh"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr int kCandidates = 8;        // asked for; the library names no more
constexpr double kWorthTuning = 1e9;  // FLOP: a smaller GEMM costs as much as its launch

using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using Algorithms = std::vector<Algorithm>;

cudaDataType_t type_of(DType t) {
  switch (t) {
    case DType::f32: return CUDA_R_32F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: fail("linear: CUDA takes f32, f16 or bf16, got ", name_of(t));
  }
}

// The largest power of two, at most 256, that divides an address and the bytes from there to the
// next.
uint32_t alignment_of(const void* p, int64_t stride = 0, DType t = DType::u8) {
  const auto address =
      reinterpret_cast<std::uintptr_t>(p) | static_cast<std::uintptr_t>(stride * size_of(t));
  return static_cast<uint32_t>(
      address == 0 ? 256 : std::min<std::uintptr_t>(256, address & (~address + 1)));
}

// Everything that the choice of an algorithm depends on, besides the device and the library.
using Key = std::array<int64_t, 18>;

Key key_of(const CudaQueue& q, const Gemm& p) {
  return {static_cast<int64_t>(q.workspace_bytes),
          p.rows,
          p.cols,
          p.inner,
          p.transpose_a,
          p.transpose_b,
          p.accumulate,
          static_cast<int64_t>(p.in),
          static_cast<int64_t>(p.to),
          alignment_of(p.a),
          alignment_of(p.b),
          alignment_of(p.out),
          p.bias ? alignment_of(p.bias) : 0,
          p.addend ? alignment_of(p.addend) : 0,
          p.batch,
          p.stride_a,
          p.stride_b,
          p.stride_out};
}

// WEFT_TUNE from the environment: 1 (or unset) measures, 0 takes the library's own choice.
bool tuning_enabled() {
  const char* text = std::getenv("WEFT_TUNE");
  const std::string value = text ? text : "";
  if (!value.empty() && value != "0" && value != "1")
    fail("WEFT_TUNE: expected 0 or 1, got '", value, "'");
  return value != "0";
}

template <class Value>
void set(const GemmPlan& plan, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  WEFT_CUBLAS_CHECK(
      cublasLtMatmulDescSetAttribute(plan.operation.handle, attribute, &value, sizeof(value)));
}

template <class Value>
void set(Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const Value& value) {
  WEFT_CUBLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof(value)));
}

void describe_layout(cublasLtMatrixLayout_t& layout, DType type, int64_t rows, int64_t cols,
                     int64_t batch, int64_t stride) {
  WEFT_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type_of(type), static_cast<uint64_t>(rows),
                                               static_cast<uint64_t>(cols), rows));
  if (batch == 1) return;
  const auto count = static_cast<int32_t>(batch);
  WEFT_CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                     &count, sizeof count));
  WEFT_CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(
      layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
}

// The library's ranking of its algorithms: at most `count`, best first.
Algorithms ask_for_algorithms(const CudaQueue& q, const Gemm& p, int count) {
  const GemmPlan plan(p);
  Preference preference;
  WEFT_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference.handle));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(q.workspace_bytes));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                            CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                            CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a, p.stride_a, p.in));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b, p.stride_b, p.in));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      alignment_of(p.addend ? p.addend : p.out, p.stride_out, p.to));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
      alignment_of(p.out, p.stride_out, p.to));
  cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      q.cublaslt, plan.operation.handle, plan.a.handle, plan.b.handle, plan.out.handle,
      plan.out.handle, preference.handle, count, results, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  WEFT_CUBLAS_CHECK(status);
  Algorithms algorithms;
  for (int i = 0; i < found; ++i) {
    if (i == 0) WEFT_CUBLAS_CHECK(results[i].state);
    if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back({results[i].algo});
  }
  return algorithms;
}

// The algorithms in use with one handle of the library, which is one device.
class Chooser {
 public:
  // Null when the library has no algorithm.
  const Algorithm* algorithm_for(CudaQueue& q, const Gemm& p) {
    const auto [at, is_new] = entries_.try_emplace(key_of(q, p));
    Algorithms& entry = at->second;
    if (is_new) {
      const bool tuned = tuning_enabled() && p.flops() >= kWorthTuning;
      entry = ask_for_algorithms(q, p, tuned ? kCandidates : 1);
    }
    if (entry.empty()) return nullptr;
    if (entry.size() > 1 && !is_captured(q)) entry = {entry[fastest_of(q, p, entry)]};
    return &entry.front();
  }

 private:
  std::map<Key, Algorithms> entries_;  // candidates, or once chosen, that one
};

struct Choosers {
  std::mutex mutex;
  std::map<cublasLtHandle_t, Chooser> of_handle;
};

// Never destroyed: a device may be among the last things that are.
Choosers& choosers() {
  static auto* const all = new Choosers;
  return *all;
}
}  // namespace

GemmPlan::GemmPlan(const Gemm& p) {
  WEFT_CUBLAS_CHECK(cublasLtMatmulDescCreate(&operation.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(*this, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(*this, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(*this, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(*this, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    set(*this, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.to));
  }
  describe_layout(a.handle, p.in, p.transpose_a ? p.inner : p.rows,
                  p.transpose_a ? p.rows : p.inner, p.batch, p.stride_a);
  describe_layout(b.handle, p.in, p.transpose_b ? p.cols : p.inner,
                  p.transpose_b ? p.inner : p.cols, p.batch, p.stride_b);
  describe_layout(out.handle, p.to, p.rows, p.cols, p.batch, p.stride_out);
}

cublasStatus_t GemmPlan::run(CudaQueue& q, const Gemm& p, const Algorithm& algorithm) const {
  const float beta = p.accumulate || p.addend ? p.beta : 0.0f;
  return cublasLtMatmul(q.cublaslt, operation.handle, &p.alpha, p.a, a.handle, p.b, b.handle, &beta,
                        p.addend ? p.addend : p.out, out.handle, p.out, out.handle,
                        &algorithm.value, q.workspace, q.workspace_bytes, q.stream);
}

void forget_algorithms(cublasLtContext* handle) {
  Choosers& known = choosers();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.of_handle.erase(handle);
}

bool multiply(CudaQueue& q, const Gemm& p) {
  const Algorithm* algorithm = nullptr;
  {
    Choosers& known = choosers();
    const std::lock_guard<std::mutex> lock(known.mutex);
    algorithm = known.of_handle[q.cublaslt].algorithm_for(q, p);
  }
  if (!algorithm) return false;
  WEFT_CUBLAS_CHECK(GemmPlan(p).run(q, p, *algorithm));
  return true;
}

void require_multiply(CudaQueue& q, const Gemm& p, const char* kernel) {
  WEFT_CHECK(multiply(q, p), kernel, ": cuBLASLt has no algorithm for ", p.rows, " x ", p.cols,
             " x ", p.inner, " of ", name_of(p.in), " that adds partial sums in a fixed order");
}
}  // namespace weft
