// SPDX-License-Identifier: MIT
// The CUDA device: one non-blocking stream, cuBLASLt, a pool over cudaMalloc, and copies. Host code
// only.
#include "src/device.h"

#include "kernels/linear/linear.h"
#include "kernels/memory.h"
#include "src/cuda/graph.h"
#include "src/cuda/staging.h"

#include <cctype>
#include <cstddef>
#include <cublasLt.h>
#include <fstream>
#include <memory>
#include <string>
#include <variant>

namespace weft {
namespace {
constexpr int kOldestMajor = 8;  // compute capability: Ampere

std::string version_text(int version) { return str(version / 1000, '.', version % 1000 / 10); }

// "580.159.03" from "NVRM version: NVIDIA UNIX ... Kernel Module  580.159.03  ..."; "" without that
// file.
std::string kernel_driver_version() {
  std::ifstream in("/proc/driver/nvidia/version");
  std::string word, previous;
  while (in >> word) {
    const bool follows = previous == "Module" || previous == "x86_64";
    if (follows && std::isdigit(static_cast<unsigned char>(word[0]))) return word;
    if (word != "for") previous = word;
  }
  return "";
}

// Drivers of one major CUDA version run programs of every minor one.
void check_driver() {
  int driver = 0, runtime = 0;
  WEFT_CUDA_CALL(cudaDriverGetVersion(&driver));
  WEFT_CUDA_CALL(cudaRuntimeGetVersion(&runtime));
  if (driver == 0)
    fail("no NVIDIA driver was found: install one for CUDA ", runtime / 1000,
         ".0 or newer, or use --device cpu");
  if (driver / 1000 >= runtime / 1000) return;
  const std::string version = kernel_driver_version();
  fail("the NVIDIA driver ", version.empty() ? "" : version + " ", "is too old: it supports CUDA ",
       version_text(driver), ", this program needs a driver for CUDA ", runtime / 1000,
       ".0 or newer", "; update the driver, or use --device cpu");
}

std::shared_ptr<MemoryPool> make_cuda_pool(const std::string& name, int index) {
  const auto take = [index, queue = CudaQueue{}](std::size_t bytes) mutable -> void* {
    WEFT_CUDA_CALL(cudaSetDevice(index));
    return allocate(queue, bytes);  // the pool says what is out of memory
  };
  return std::make_shared<MemoryPool>(
      name, take, [queue = CudaQueue{}](void* p) mutable { release(queue, p); });
}

// Pinned: kernels write to it through its address on the host.
std::shared_ptr<MemoryPool> make_pinned_pool() {
  const auto allocate = [](std::size_t bytes) -> void* {
    void* p = nullptr;
    WEFT_CUDA_CALL(cudaMallocHost(&p, bytes));
    return p;
  };
  return std::make_shared<MemoryPool>("the host, pinned", allocate,
                                      [](void* p) { static_cast<void>(cudaFreeHost(p)); });
}

class CudaMark : public QueueMark {
 public:
  explicit CudaMark(cudaStream_t stream)
      : stream_(stream) {
    WEFT_CUDA_CALL(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }

  CudaMark& operator=(CudaMark&&) = delete;  // nor copied

  ~CudaMark() override { static_cast<void>(cudaEventDestroy(event_)); }

  void record() override { WEFT_CUDA_CALL(cudaEventRecord(event_, stream_)); }

  void wait() override { WEFT_CUDA_CALL(cudaEventSynchronize(event_)); }

 private:
  cudaStream_t stream_;
  cudaEvent_t event_ = nullptr;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index)
      : index_(index) {
    WEFT_CUDA_CALL(cudaSetDevice(index));
    WEFT_CUDA_CALL(cudaGetDeviceProperties(&properties_, index));
    if (properties_.major < kOldestMajor)
      fail("cuda:", index, " (", properties_.name, ") has compute capability ", properties_.major,
           '.', properties_.minor, "; ", kOldestMajor,
           ".0 (Ampere) or newer is needed; choose another GPU with --device cuda:N, or --device "
           "cpu");
    name = str("cuda:", index);
    compute_capability = 10 * properties_.major + properties_.minor;
    pool = make_cuda_pool(name, index);
    host_pool = make_pinned_pool();
    workspace_ = pool->take(kWorkspaceBytes, "workspace");
    const CudaQueue made = make_cuda_queue(workspace_.get());
    stream_ = made.stream;
    cublaslt_ = made.cublaslt;
    queue = made;
  }

  CudaDevice& operator=(CudaDevice&&) = delete;  // nor copied

  ~CudaDevice() override {
    static_cast<void>(cudaStreamSynchronize(stream_));
    forget_algorithms(cublaslt_);
    static_cast<void>(cublasLtDestroy(cublaslt_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  void upload(const TensorView& dst, const void* src) override {
    weft::upload(queue, dst.data, src, static_cast<std::size_t>(dst.bytes()));
    staging_.follow();
  }

  void download(void* dst, const TensorView& src) override {
    weft::download(queue, dst, src.data, static_cast<std::size_t>(src.bytes()));
    staging_.follow();
  }

  void upload_async(void* dst, const void* src, std::size_t bytes) override {
    if (bytes == 0) return;
    if (CudaGraph* const graph = CudaGraph::in_capture())
      return graph->add_upload(staging_, dst, src, bytes);
    upload_pinned(std::get<CudaQueue>(queue), dst, staging_.stage(src, bytes), bytes);
    staging_.mark(stream_);
  }

  void zero(const TensorView& dst) override {
    weft::zero(queue, dst.data, static_cast<std::size_t>(dst.bytes()));
  }

  void synchronize() override {
    staging_.follow();
    WEFT_CUDA_CALL(cudaStreamSynchronize(stream_));
  }

  std::unique_ptr<QueueMark> make_mark() override { return std::make_unique<CudaMark>(stream_); }

  std::string description() const override {
    int driver = 0;
    WEFT_CUDA_CALL(cudaDriverGetVersion(&driver));
    const std::string version = kernel_driver_version();
    return str(properties_.name, ", ", bytes_text(properties_.totalGlobalMem), ", driver ",
               version.empty() ? "for CUDA " + version_text(driver) : version, ", sm_",
               properties_.major, properties_.minor);
  }

  std::size_t memory_free() const override {
    std::size_t free = 0, total = 0;
    WEFT_CUDA_CALL(cudaMemGetInfo(&free, &total));
    return free + pool->reserved() - pool->in_use();
  }

 private:
  int index_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t cublaslt_ = nullptr;
  std::shared_ptr<void> workspace_;
  StagingRing staging_;
};
}  // namespace

int gpu_count() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaErrorInsufficientDriver) {
    int driver = 0;
    static_cast<void>(cudaDriverGetVersion(&driver));
    return driver > 0 ? 1 : 0;  // a GPU with an old driver: opening it says so
  }
  return result == cudaSuccess ? count : 0;
}

std::unique_ptr<Device> make_cuda_device(int index) {
  check_driver();
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaErrorNoDevice || (result == cudaSuccess && count == 0))
    fail("no NVIDIA GPU was found (is CUDA_VISIBLE_DEVICES empty?); use --device cpu");
  WEFT_CUDA_CALL(result);
  if (index >= count)
    fail("device cuda:", index, " does not exist: ",
         count == 1 ? "there is one GPU, cuda:0"
                    : str("there are ", count, " GPUs, cuda:0 to cuda:", count - 1),
         "; name one of those, or use --device cpu");
  return std::make_unique<CudaDevice>(index);
}
}  // namespace weft
