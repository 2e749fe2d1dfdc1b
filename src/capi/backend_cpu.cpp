// SPDX-License-Identifier: MIT
// Plans on the CPU.
#include "src/capi/handles.h"

#include <cstdint>
#include <dlfcn.h>
#include <memory>
#include <vector>

namespace weft::capi {
namespace {
// Whether the CUDA driver, where the process has loaded it, knows `pointer` as memory that only a
// GPU reads. The call needs no context: a CPU plan never wakes a GPU.
bool is_device_memory(const void* pointer) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!driver) return false;
  // CUresult cuPointerGetAttribute(void* data, CUpointer_attribute, CUdeviceptr)
  using GetAttribute = int (*)(void*, int, unsigned long long);
  constexpr int kMemoryType = 2, kIsManaged = 8;
  constexpr unsigned kDevice = 2;
  const auto get = reinterpret_cast<GetAttribute>(dlsym(driver, "cuPointerGetAttribute"));
  const auto address = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(pointer));
  unsigned type = 0, managed = 0;
  const bool device = get && get(&type, kMemoryType, address) == 0 && type == kDevice &&
                      !(get(&managed, kIsManaged, address) == 0 && managed != 0);
  dlclose(driver);
  return device;
}

class CpuBackend : public Backend {
 public:
  bool is_cuda() const override { return false; }

  AttentionMaps place(const PackedMaps& maps) override {
    memory_.resize(maps.bytes());
    return maps.write(memory_.data(), memory_.data());
  }

  void check_memory(const char* name, const void* pointer) const override {
    require(!is_device_memory(pointer), name, " is GPU memory, and the plan is one for the CPU");
  }

  const char* kernel_name(const attention::Problem& problem, const AttentionPass&) const override {
    if (problem.form != AttentionForm::automatic)
      unsupported("form: on the CPU there is one form, WEFT_AUTOMATIC");
    return "cpu";
  }

  void run(const AttentionForward& f, void*) const override {
    CpuQueue queue;
    weft::run(queue, f);
  }

  void run(const AttentionBackward& g, void*) const override {
    CpuQueue queue;
    weft::run(queue, g);
  }

 private:
  std::vector<char> memory_;
};
}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }
}  // namespace weft::capi
