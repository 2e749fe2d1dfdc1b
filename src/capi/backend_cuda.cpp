// SPDX-License-Identifier: MIT
// Plans on a CUDA device. Kernels run on the caller's stream; the thread's current device stays as
// it was.
#include "src/capi/handles.h"

#include <memory>

#ifdef WEFT_CUDA
#include <cuda_runtime.h>
#include <vector>

namespace weft::capi {
namespace {
void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  const weft_status code =
      status == cudaErrorMemoryAllocation ? WEFT_OUT_OF_MEMORY : WEFT_CUDA_ERROR;
  throw StatusError(
      code, str(what, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")"));
}

class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    check(cudaGetDevice(&before_), "device");
    if (before_ == device) return;
    check(cudaSetDevice(device), "device");
    changed_ = true;
  }

  DeviceScope& operator=(DeviceScope&&) = delete;  // nor copied

  ~DeviceScope() {
    if (changed_) static_cast<void>(cudaSetDevice(before_));
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(int device)
      : device_(device) {
    int count = 0;
    check(cudaGetDeviceCount(&count), "device");
    require(device < count, "device is ", device, ", there are ", count,
            " CUDA devices; WEFT_CPU works");
    int major = 0, minor = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "device");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "device");
    check(cudaDeviceGetAttribute(&reads_host_memory_, cudaDevAttrPageableMemoryAccess, device),
          "device");
    if (major < 8)
      unsupported("device ", device, " has compute capability ", major, ".", minor,
                  ", 8.0 or newer is needed");
    capability_ = 10 * major + minor;
  }

  ~CudaBackend() override {
    if (memory_) static_cast<void>(cudaFree(memory_));
  }

  bool is_cuda() const override { return true; }

  AttentionMaps place(const PackedMaps& maps) override {
    const DeviceScope scope(device_);
    const cudaError_t status = cudaMalloc(&memory_, maps.bytes());
    if (status != cudaSuccess) memory_ = nullptr;
    check(status, str("plan: ", maps.bytes(), " bytes of tables").c_str());
    std::vector<char> image(maps.bytes());
    const AttentionMaps placed = maps.write(image.data(), memory_);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "plan");
    const std::unique_ptr<CUstream_st, cudaError_t (*)(cudaStream_t)> guard(stream,
                                                                            cudaStreamDestroy);
    check(cudaMemcpyAsync(memory_, image.data(), image.size(), cudaMemcpyHostToDevice, stream),
          "plan");
    check(cudaStreamSynchronize(stream), "plan");
    return placed;
  }

  void check_memory(const char* name, const void* pointer) const override {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, pointer), name);
    const bool host =
        attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
    require(attributes.type != cudaMemoryTypeUnregistered || reads_host_memory_ != 0, name,
            " is host memory, and the plan is one for CUDA device ", device_);
    require(host || attributes.type == cudaMemoryTypeManaged || attributes.device == device_, name,
            " is memory of CUDA device ", attributes.device, ", and the plan is one for device ",
            device_);
  }

  const char* kernel_name(const attention::Problem& problem,
                          const AttentionPass& pass) const override {
    return name_of(attention::select(problem, pass, capability_));
  }

  void run(const AttentionForward& f, void* stream) const override { launch(f, stream); }

  void run(const AttentionBackward& g, void* stream) const override { launch(g, stream); }

 private:
  template <class Kernel>
  void launch(const Kernel& kernel, void* stream) const {
    const DeviceScope scope(device_);
    if (const cudaError_t earlier = cudaPeekAtLastError(); earlier != cudaSuccess)
      throw StatusError(WEFT_CUDA_ERROR,
                        str("an error of an earlier CUDA call of this thread is pending: ",
                            cudaGetErrorString(earlier), " (", cudaGetErrorName(earlier), ")"));
    CudaQueue queue;
    queue.stream = static_cast<cudaStream_t>(stream);
    try {
      weft::run(queue, kernel);
    } catch (const Error& e) {
      if (cudaGetLastError() != cudaSuccess) throw StatusError(WEFT_CUDA_ERROR, e.what());
      throw;
    }
    check(cudaGetLastError(), Kernel::kName);
  }

  const int device_;
  int capability_ = 0, reads_host_memory_ = 0;
  void* memory_ = nullptr;
};
}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<CudaBackend>(device);
}
}  // namespace weft::capi

#else

namespace weft::capi {
std::unique_ptr<Backend> make_cuda_backend(int device) {
  unsupported("device ", device, ": this library was built without CUDA; WEFT_CPU works");
}
}  // namespace weft::capi

#endif
