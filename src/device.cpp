// SPDX-License-Identifier: MIT
#include "src/device.h"

#include "kernels/layers/pointwise.h"
#include "kernels/linear/linear.h"
#include "kernels/memory.h"
#include "src/config/names.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <omp.h>
#include <string>
#include <string_view>
#include <vector>

#ifdef WEFT_CUDA
#include "src/cuda/graph.h"
#endif

namespace weft {
namespace {
// On the CPU, work is done when it is enqueued.
class PassedMark : public QueueMark {
 public:
  void record() override {}

  void wait() override {}
};

class CpuDevice : public Device {
 public:
  CpuDevice() {
    name = "cpu";
    queue = CpuQueue{};
    pool = make_cpu_pool();
    host_pool = pool;
  }

  void upload(const TensorView& dst, const void* src) override {
    weft::upload(queue, dst.data, src, static_cast<std::size_t>(dst.bytes()));
  }

  void download(void* dst, const TensorView& src) override {
    weft::download(queue, dst, src.data, static_cast<std::size_t>(src.bytes()));
  }

  void upload_async(void* dst, const void* src, std::size_t bytes) override {
    weft::upload(queue, dst, src, bytes);
  }

  void zero(const TensorView& dst) override {
    weft::zero(queue, dst.data, static_cast<std::size_t>(dst.bytes()));
  }

  void synchronize() override {}

  std::unique_ptr<QueueMark> make_mark() override { return std::make_unique<PassedMark>(); }

  std::string description() const override {
    const int threads = omp_get_max_threads();
    return str("CPU, ", threads, threads == 1 ? " thread" : " threads");
  }

  std::size_t memory_free() const override {
    std::ifstream in("/proc/meminfo");
    std::string key, unit;
    std::size_t kib = 0;
    while (in >> key >> kib) {
      if (key == "MemAvailable:") return kib * 1024 + pool->reserved() - pool->in_use();
      std::getline(in, unit);
    }
    fail("/proc/meminfo has no MemAvailable line: the free memory of this machine is not known");
  }
};

// The number N of "cuda:N"; "cuda" is 0.
int cuda_index(const std::string& name) {
  if (name == "cuda") return 0;
  const auto index = number_in<int>(std::string_view(name).substr(5));
  if (!index || *index < 0) fail("device '", name, "': expected cuda:N with N = 0, 1, ...");
  return *index;
}

#ifdef WEFT_CUDA
std::unique_ptr<Device> open_cuda(const std::string& name) {
  return make_cuda_device(cuda_index(name));
}

// A GPU that cannot be used is reported, not passed over in silence.
std::unique_ptr<Device> open_any() {
  if (gpu_count() == 0) return std::make_unique<CpuDevice>();
  try {
    return make_cuda_device(0);
  } catch (const Error& error) {
    std::fprintf(stderr, "device auto: using the CPU (%s)\n", error.what());
    return std::make_unique<CpuDevice>();
  }
}
#else
std::unique_ptr<Device> open_cuda(const std::string& name) {
  cuda_index(name);
  fail("device '", name,
       "': this program was built without CUDA; build with a CUDA toolkit installed (cmake "
       "--workflow "
       "--preset cuda), or use --device cpu");
}

std::unique_ptr<Device> open_any() { return std::make_unique<CpuDevice>(); }
#endif

// One block of random numbers, repeated.
void fill_with_noise(Device& device, const Tensor& tensor) {
  constexpr int64_t kBlock = int64_t{1} << 18;
  const auto count = static_cast<std::size_t>(std::min(kBlock, tensor.size()));
  std::vector<float> values(count);
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  const auto upload = [&](const void* block) {
    for (int64_t first = 0; first < tensor.size(); first += kBlock)
      device.upload(tensor.slice(first, {std::min(kBlock, tensor.size() - first)}), block);
  };
  if (tensor.dtype() == DType::f32) return upload(values.data());
  const bool half = tensor.dtype() == DType::f16;
  std::vector<uint16_t> bits(count);
  std::transform(values.begin(), values.end(), bits.begin(),
                 [half](float x) { return half ? f16::encode(x) : bf16::encode(x); });
  upload(bits.data());
}

// Rows of a matmul that gives each thread of the CPU as many pieces: they have 256 rows, and there
// are 4 to 16 of them (kernels/linear/linear.cpp).
int64_t rows_of_peak() {
  const int64_t threads = std::min(omp_get_max_threads(), 16);
  return 256 * threads * ((threads + 3) / threads);
}

// Of one of `calls` calls of `work` in a row.
double median_seconds(Device& device, int calls, const std::function<void()>& work) {
  constexpr int kRepeats = 7, kUncounted = 2;  // the first ones load libraries and raise clocks
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats + kUncounted; ++i) {
    device.synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) work();
    device.synchronize();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (i >= kUncounted) seconds.push_back(elapsed.count() / calls);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
  return seconds[kRepeats / 2];
}
}  // namespace

#ifndef WEFT_CUDA
int gpu_count() { return 0; }
#endif

double Device::peak_flops(DType compute) {
  double& rate = peak_flops_[static_cast<int>(compute)];
  if (rate > 0) return rate;
  WEFT_CHECK(compute == DType::f32 || compute == DType::f16 || compute == DType::bf16,
             "peak_flops: expected f32, f16 or bf16, got ", name_of(compute));
  const int64_t n = is_cuda() ? 4096 : 1024, rows = is_cuda() ? n : rows_of_peak();
  const Tensor x(*pool, {rows, n}, compute, "peak FLOP/s"),
      w(*pool, {n, n}, compute, "peak FLOP/s"), y(*pool, {rows, n}, compute, "peak FLOP/s");
  fill_with_noise(*this, x);
  fill_with_noise(*this, w);
  const double seconds = median_seconds(*this, is_cuda() ? 10 : 1, [&] {
    launch(queue, LinearForward{.y = y, .x = x, .w = w, .b = {}});
  });
  return rate = 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(n) /
                seconds;
}

double Device::copy_bandwidth() {
  if (copy_bandwidth_ > 0) return copy_bandwidth_;
  const int64_t n = int64_t{1} << (is_cuda() ? 28 : 24);  // elements: many times the caches
  const Tensor from(*pool, {n}, DType::f32, "copy bandwidth"),
      to(*pool, {n}, DType::f32, "copy bandwidth");
  zero(from);
  const double seconds = median_seconds(*this, is_cuda() ? 10 : 1,
                                        [&] { launch(queue, Add{.out = {to}, .x = from}); });
  return copy_bandwidth_ = 2.0 * static_cast<double>(from.view().bytes()) / seconds;
}

std::unique_ptr<Device> make_device(const std::string& name) {
  if (name == "cpu") return std::make_unique<CpuDevice>();
  if (name == "auto") return open_any();
  if (name == "cuda" || name.starts_with("cuda:")) return open_cuda(name);
  fail("device '", name, "': expected cpu, cuda, cuda:N or auto");
}

std::vector<double> to_host(Device& device, const TensorView& view) {
  return to_host(device.queue, view);
}

// ---- GraphedStep ----

#ifdef WEFT_CUDA

struct GraphedStep::State {
  static constexpr int kEagerCalls = 2;
  Device& device;
  bool enabled;
  int calls = 0;
  CudaGraph graph;
  bool captured = false;

  State(Device& d, bool on)
      : device(d),
        enabled(on && d.is_cuda()) {}

  State& operator=(State&&) = delete;  // nor copied

  ~State() {
    if (captured) device.pool->release_graph();
  }

  // Puts the pool back as it was, whatever `work` throws.
  struct GraphSide {
    MemoryPool& pool;

    GraphSide(MemoryPool& p, bool frozen)
        : pool(p) {
      pool.use_graph_side(true);
      pool.freeze(frozen);
    }

    ~GraphSide() {
      pool.use_graph_side(false);
      pool.freeze(false);
    }
  };

  void run(const std::function<void()>& work) {
    if (!enabled) return work();
    CudaQueue& queue = std::get<CudaQueue>(device.queue);
    if (captured) return graph.launch(queue);
    {
      const GraphSide side(*device.pool, calls == kEagerCalls);
      if (calls < kEagerCalls) {
        work();
        ++calls;
        return;
      }
      graph.capture(queue, work);
    }
    captured = true;
    device.pool->hold_graph();
    graph.launch(queue);
  }
};

#else

struct GraphedStep::State {
  static constexpr bool captured = false;

  State(Device&, bool) {}

  void run(const std::function<void()>& work) { work(); }
};

#endif

GraphedStep::GraphedStep(Device& device, bool enabled)
    : state_(std::make_unique<State>(device, enabled)) {}

GraphedStep::~GraphedStep() = default;
GraphedStep::GraphedStep(GraphedStep&&) noexcept = default;

void GraphedStep::run(const std::function<void()>& work) { state_->run(work); }

bool GraphedStep::replaying() const { return state_->captured; }
}  // namespace weft
