// SPDX-License-Identifier: MIT
// The fastest of several algorithms for a GEMM, among those that give the same bits.
#include "kernels/device/event.cuh"
#include "kernels/linear/matmul.cuh"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr int kThreads = 256;
constexpr int kRounds = 5;  // of timing; the fastest run of each candidate counts
// a candidate this much slower than the first is not timed again
constexpr double kHopeless = 1.25;
// the first stays unless another one needs at most this share of its time
constexpr double kWorth = 0.98;

// Memory for this call alone; null when there is not enough.
using Scratch = std::shared_ptr<void>;

Scratch take_scratch(const CudaQueue& q, int64_t bytes) {
  void* p = nullptr;
  if (cudaMallocAsync(&p, static_cast<std::size_t>(bytes), q.stream) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  return {p, [queue = q](void* block) { static_cast<void>(cudaFreeAsync(block, queue.stream)); }};
}

// About normal numbers of deviation 1, a function of (seed, i).
template <class T>
__global__ void __launch_bounds__(kThreads) fill_random(T* x, int64_t size, uint32_t seed) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  uint32_t bits = static_cast<uint32_t>(i) * 0x9e3779b9u ^ seed;
  float sum = -2.0f;
#pragma unroll
  for (int k = 0; k < 4; ++k) {  // rounds of the 32-bit finalizer of MurmurHash3
    bits = (bits ^ bits >> 16) * 0x85ebca6bu;
    bits = (bits ^ bits >> 13) * 0xc2b2ae35u;
    bits ^= bits >> 16;
    sum += static_cast<float>(bits >> 8) * 0x1p-24f;
  }
  x[i] = from_float<T>(sum * 1.7320508f);
}

// *found = 1 where two blocks of `words` words differ.
__global__ void __launch_bounds__(kThreads)
    find_difference(int32_t* found, const uint32_t* x, const uint32_t* y, int64_t words) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < words && x[i] != y[i]) *found = 1;
}

// One run of a GEMM.
struct Run {
  CudaEvent began, ended;

  double milliseconds() const { return ended.since(began); }  // waits
};

// Operands of a GEMM in scratch memory, and room for two results. Only differing() waits.
class Trial {
 public:
  Trial(CudaQueue& q, const Gemm& p, std::size_t candidates)
      : q_(q),
        in_(p.in),
        out_(p.to),
        out_size_(p.batch * p.rows * p.cols),
        a_(operand(p.batch * p.rows * p.inner, in_, 1)),
        b_(operand(p.batch * p.inner * p.cols, in_, 2)),
        bias_(operand(p.rows, out_, 3)),
        first_(take_scratch(q, out_bytes())),
        other_(take_scratch(q, out_bytes())),
        differs_(candidates),
        found_(take_scratch(q, found_bytes())),
        gemm_(on_scratch(p)),
        plan_(gemm_) {
    if (found_) WEFT_CUDA_CHECK(cudaMemsetAsync(found_.get(), 0, found_bytes(), q.stream));
  }

  bool ready() const { return a_ && b_ && bias_ && first_ && other_ && found_; }

  // What `accumulate` adds to; where it does not, the two differ, so that what is not written
  // shows.
  void prepare(bool first) {
    fill(first ? first_ : other_, out_size_, out_, first || gemm_.accumulate ? 4 : 5);
  }

  // A run into the first or the other result; false where the library refuses.
  bool start(Run& run, const Algorithm& algorithm, bool into_first) {
    gemm_.out = (into_first ? first_ : other_).get();
    run.began.record(q_);
    if (plan_.run(q_, gemm_, algorithm) != CUBLAS_STATUS_SUCCESS) return false;
    run.ended.record(q_);
    return true;
  }

  // Whether the other result, of this candidate, differs from the first one: differing() says so.
  void compare(std::size_t candidate) {
    CudaQueue& q = q_;
    const int64_t words = out_bytes() / 4;
    find_difference<<<blocks_for(words, kThreads), kThreads, 0, q.stream>>>(
        static_cast<int32_t*>(found_.get()) + candidate, static_cast<const uint32_t*>(first_.get()),
        static_cast<const uint32_t*>(other_.get()), words);
  }

  // 1 for each candidate whose results differ. Waits.
  const std::vector<int32_t>& differing() {
    CudaQueue& q = q_;
    Run copy;
    copy.began.record(q);
    WEFT_CUDA_CHECK(cudaMemcpyAsync(differs_.data(), found_.get(), found_bytes(),
                                    cudaMemcpyDeviceToHost, q.stream));
    copy.ended.record(q);
    static_cast<void>(copy.milliseconds());
    return differs_;
  }

 private:
  int64_t out_bytes() const { return (out_size_ * size_of(out_) + 3) / 4 * 4; }

  std::size_t found_bytes() const { return differs_.size() * sizeof(int32_t); }

  void fill(const Scratch& block, int64_t size, DType type, uint32_t seed) {
    CudaQueue& q = q_;
    dispatch_cuda(type, [&]<class T>() {
      fill_random<<<blocks_for(size, kThreads), kThreads, 0, q.stream>>>(
          static_cast<T*>(block.get()), size, seed * 0x27220a95u);
    });
  }

  Gemm on_scratch(Gemm p) const {
    p.a = a_.get();
    p.b = b_.get();
    if (p.bias) p.bias = bias_.get();
    p.accumulate = p.accumulate || std::exchange(p.addend, nullptr);
    p.stride_a = p.rows * p.inner, p.stride_b = p.inner * p.cols, p.stride_out = p.rows * p.cols;
    return p;
  }

  Scratch operand(int64_t size, DType type, uint32_t seed) {
    Scratch block = take_scratch(q_, size * size_of(type));
    if (block) fill(block, size, type, seed);
    return block;
  }

  CudaQueue& q_;
  DType in_, out_;
  int64_t out_size_;
  Scratch a_, b_, bias_, first_, other_;
  std::vector<int32_t> differs_;
  Scratch found_;
  Gemm gemm_;
  GemmPlan plan_;
};
}  // namespace

std::size_t fastest_of(CudaQueue& q, const Gemm& p, const std::vector<Algorithm>& candidates) {
  Trial trial(q, p, candidates.size());
  if (!trial.ready()) return 0;
  std::vector<Run> runs(candidates.size());
  std::vector<std::size_t> running;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    trial.prepare(c == 0);
    if (!trial.start(runs[c], candidates[c], c == 0)) continue;  // loads its code
    if (c > 0) trial.compare(c);
    running.push_back(c);
  }
  const std::vector<int32_t>& differing = trial.differing();
  std::erase_if(running, [&](std::size_t c) { return differing[c] != 0; });
  // Turn by turn, so that a clock that changes meanwhile is fair to all.
  std::vector<double> fastest(candidates.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round) {
    std::erase_if(running,
                  [&](std::size_t c) { return !trial.start(runs[c], candidates[c], false); });
    for (const std::size_t c : running) fastest[c] = std::min(fastest[c], runs[c].milliseconds());
    std::erase_if(running, [&](std::size_t c) { return fastest[c] > kHopeless * fastest[0]; });
  }
  const auto best =
      static_cast<std::size_t>(std::min_element(fastest.begin(), fastest.end()) - fastest.begin());
  return fastest[best] <= kWorth * fastest[0] ? best : 0;
}
}  // namespace weft
