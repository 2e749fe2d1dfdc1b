// SPDX-License-Identifier: MIT
// Checks around every CUDA launch.
#include "kernels/device/cuda.cuh"
#include "kernels/queue.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace weft {
namespace {
std::chrono::steady_clock::time_point launch_began;  // launches come from one thread

[[noreturn]] void launch_failure(const char* kernel, cudaError_t status) {
  fail(kernel, ": the CUDA launch failed: ", cudaGetErrorString(status), " (",
       cudaGetErrorName(status),
       "); WEFT_DEBUG=2 waits for every launch and names the first that fails");
}

// NaN and infinity are counted in whole numbers, so that blocks may add theirs in any order.
constexpr int kThreads = 256, kGroup = 8;
constexpr unsigned kBlocks = 1024;  // all resident at once on a large GPU
constexpr int kMost = 8191;         // of a thread: kBlocks * kThreads * kMost stays below 2^31

template <class T>
__global__ void __launch_bounds__(kThreads)
    count_kernel(int32_t* count, const T* x, int64_t n, bool packed) {
  int found = 0;
  const int64_t turn = int64_t{gridDim.x} * kThreads * kGroup;
#pragma unroll 4
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup; i < n;
       i += turn) {
    float v[kGroup];
    load(v, x + i, n - i, packed);  // zeros behind the end
#pragma unroll
    for (int j = 0; j < kGroup; ++j) found += !isfinite(v[j]);
  }
  found = block_sum<kThreads>(min(found, kMost));
  if (threadIdx.x == 0 && found > 0) atomicAdd(count, found);
}
}  // namespace

void begin(CudaQueue& q) {
  if (debug_level() < 2 || is_captured(q)) return;
  WEFT_CUDA_CHECK(cudaStreamSynchronize(q.stream));
  launch_began = std::chrono::steady_clock::now();
}

void finish(CudaQueue& q, const char* kernel) {
  const cudaError_t launched = cudaGetLastError();
  if (launched != cudaSuccess) launch_failure(kernel, launched);
  if (debug_level() == 0) return;
  if (debug_level() == 1 || is_captured(q)) {
    std::fprintf(stderr, "weft: cuda %s\n", kernel);
    return;
  }
  const cudaError_t ran = cudaStreamSynchronize(q.stream);
  if (ran != cudaSuccess) launch_failure(kernel, ran);
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - launch_began;
  std::fprintf(stderr, "weft: cuda %s %.3f ms\n", kernel, took.count());
}

void compute(CudaQueue& q, const CountNonFinite& k) {
  auto* const count = k.count.as<int32_t>();
  const int64_t n = k.x.size();
  WEFT_CUDA_CHECK(cudaMemsetAsync(count, 0, sizeof(*count), q.stream));
  if (n == 0) return;
  const unsigned blocks = std::min(kBlocks, blocks_for(n, kThreads * kGroup));
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    count_kernel<<<blocks, kThreads, 0, q.stream>>>(count, k.x.as<T>(), n, aligned16(k.x));
  });
}

void check_finite(CudaQueue& q, const char* kernel, const std::vector<TensorView>& outputs) {
  if (is_captured(q)) return;
  auto* const count = static_cast<int32_t*>(q.workspace);
  for (const TensorView& x : outputs) {
    if (!x) continue;
    run(q, CountNonFinite{{count, DType::i32, 1}, x});
    int32_t found = 0;
    WEFT_CUDA_CHECK(
        cudaMemcpyAsync(&found, count, sizeof(found), cudaMemcpyDeviceToHost, q.stream));
    WEFT_CUDA_CHECK(cudaStreamSynchronize(q.stream));
    WEFT_CHECK(found == 0, kernel, ": ", found, " of the ", x.size(), " elements of an output ",
               shape_text(x), " are NaN or infinite");
  }
}

// ---- time of launches on a GPU, between two events. What events add is measured with an empty
// kernel against launches in a CUDA graph, and subtracted. If the host is not ahead, it is the
// launch's time. ----

namespace {
constexpr int kEmptyLaunches = 200;
// cycles, about 3 ms: the host enqueues those launches meanwhile
constexpr long long kHeadStart = 6'000'000;

__global__ void do_nothing() {}

__global__ void wait_cycles(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {}
}

// Milliseconds of an empty launch between two events.
double time_alone(const CudaQueue& q) {
  std::vector<CudaEvent> began(kEmptyLaunches), ended(kEmptyLaunches);
  std::vector<double> apart;
  wait_cycles<<<1, 1, 0, q.stream>>>(kHeadStart);
  for (int i = 0; i < kEmptyLaunches; ++i) {
    began[i].record(q);
    do_nothing<<<1, 1, 0, q.stream>>>();
    ended[i].record(q);
  }
  for (int i = 0; i < kEmptyLaunches; ++i) apart.push_back(ended[i].since(began[i]));
  std::nth_element(apart.begin(), apart.begin() + kEmptyLaunches / 2, apart.end());
  return apart[kEmptyLaunches / 2];
}

// The same among others in a CUDA graph.
double time_in_graph(const CudaQueue& q) {
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t graph = nullptr;
  WEFT_CUDA_CHECK(cudaStreamBeginCapture(q.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kEmptyLaunches; ++i) do_nothing<<<1, 1, 0, q.stream>>>();
  WEFT_CUDA_CHECK(cudaStreamEndCapture(q.stream, &recorded));
  WEFT_CUDA_CHECK(cudaGraphInstantiate(&graph, recorded, 0));
  WEFT_CUDA_CHECK(cudaGraphDestroy(recorded));
  CudaEvent began, ended;
  double together = 0;
  for (int i = 0; i < 3; ++i) {  // the first launch uploads it
    began.record(q);
    WEFT_CUDA_CHECK(cudaGraphLaunch(graph, q.stream));
    ended.record(q);
    together = ended.since(began);
  }
  WEFT_CUDA_CHECK(cudaGraphExecDestroy(graph));
  return together / kEmptyLaunches;
}

class CudaProfile : public LaunchProfile {
 public:
  explicit CudaProfile(const CudaQueue& queue)
      : queue_(queue),
        of_events_(std::max(0.0, time_alone(queue) - time_in_graph(queue))) {}

  void begin() override {
    if (used_ == began_.size()) {
      began_.emplace_back();
      ended_.emplace_back();
    }
    began_[used_].record(queue_);
  }

  void end(const char* kernel, LaunchCost cost) override {
    ended_[used_++].record(queue_);
    records_.push_back({kernel, std::move(cost), 0});
  }

  std::vector<LaunchRecord> take() override {
    for (std::size_t i = 0; i < used_; ++i)
      records_[i].milliseconds = std::max(0.0, ended_[i].since(began_[i]) - of_events_);
    used_ = 0;
    return std::exchange(records_, {});
  }

 private:
  CudaQueue queue_;
  double of_events_;
  std::vector<CudaEvent> began_, ended_;  // reused after take()
  std::size_t used_ = 0;
  std::vector<LaunchRecord> records_;
};
}  // namespace

std::unique_ptr<LaunchProfile> make_launch_profile(CudaQueue& queue) {
  return std::make_unique<CudaProfile>(queue);
}

// ---- time: between two events around each run, and by the clocks that a kernel reads when it runs

namespace {
// Two blocks fill a multiprocessor; with four for each, every one gets a block.
constexpr int kReaderThreads = 1024;
constexpr unsigned kReadersPerMultiprocessor = 4;

__device__ int64_t nanoseconds_now() {
  int64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

// Blocks on the same multiprocessor write the same row; any of their readings will do.
__global__ void __launch_bounds__(kReaderThreads)
    read_clocks_kernel(ClockReading* readings, unsigned count) {
  if (threadIdx.x != 0) return;
  unsigned multiprocessor = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  if (multiprocessor < count) readings[multiprocessor] = {clock64(), nanoseconds_now()};
}

__global__ void count_time_kernel(int64_t* nanoseconds, bool ends) {
  *nanoseconds += ends ? nanoseconds_now() : -nanoseconds_now();
}
}  // namespace

std::vector<double> time_runs(CudaQueue& q, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work) {
  std::vector<CudaEvent> began(static_cast<std::size_t>(repeats)),
      ended(static_cast<std::size_t>(repeats));
  for (std::size_t i = 0; i < began.size(); ++i) {
    before();
    began[i].record(q);
    work();
    ended[i].record(q);
  }
  std::vector<double> milliseconds;
  for (std::size_t i = 0; i < began.size(); ++i) milliseconds.push_back(ended[i].since(began[i]));
  return milliseconds;
}

int64_t multiprocessors(CudaQueue&) { return multiprocessors(); }

void read_clocks(CudaQueue& q, ClockReading* readings) {
  const auto count = static_cast<unsigned>(multiprocessors(q));
  read_clocks_kernel<<<kReadersPerMultiprocessor * count, kReaderThreads, 0, q.stream>>>(readings,
                                                                                         count);
  WEFT_CUDA_CHECK(cudaGetLastError());
}

void count_time(CudaQueue& q, int64_t* nanoseconds, bool ends) {
  count_time_kernel<<<1, 1, 0, q.stream>>>(nanoseconds, ends);
  WEFT_CUDA_CHECK(cudaGetLastError());
}
}  // namespace weft
