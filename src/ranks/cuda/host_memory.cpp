// SPDX-License-Identifier: MIT
// A file without a name, which the others open through the process that has it.
#include "src/ranks/cuda/host_memory.h"

#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "src/cuda/check.h"

namespace weft {
namespace {

class File {
 public:
  explicit File(int number) : number_(number) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  const int number_;
};

}  // namespace

// What cannot be had is said to all, so that all go the same way. A mark in the memory tells whether the
// others have opened that file and no other: what a process is called, each container decides for itself.
std::unique_ptr<HostMemory> HostMemory::make(ProcessGroup& group, std::size_t bytes) {
  if (group.world().local_size != group.size()) return nullptr;
  std::unique_ptr<HostMemory> memory(new HostMemory(bytes, group.size()));
  const auto all_well = [&](bool well) {
    const std::vector<std::string> answers = group.all_gather(well ? "1" : "0");
    return std::all_of(answers.begin(), answers.end(), [](const std::string& a) { return a == "1"; });
  };
  bool well = true;
  const auto attempt = [&](const auto& work) {
    try {
      work();
    } catch (const Error&) {
      well = false;
      static_cast<void>(cudaGetLastError());
    }
  };
  const bool first = group.rank() == 0;
  const std::string mark = str(std::chrono::steady_clock::now().time_since_epoch().count(), ' ', getpid());
  const File own(first ? memfd_create("weft", MFD_CLOEXEC) : -1);
  if (first) {
    attempt([&] {
      WEFT_CHECK(own.number() >= 0 && ftruncate(own.number(), static_cast<off_t>(memory->all_)) == 0,
                 "memory of the host that several processes share: ", std::strerror(errno));
      memory->map(own.number());
      std::memcpy(memory->of(0), mark.c_str(), mark.size() + 1);
    });
  }
  const std::string path =
                        group.broadcast(first && well ? str("/proc/", getpid(), "/fd/", own.number()) : ""),
                    of_first = group.broadcast(mark);
  if (!first) {
    attempt([&] {
      const File theirs(open(path.c_str(), O_RDWR | O_CLOEXEC));
      memory->map(theirs.number());
      WEFT_CHECK(std::memcmp(memory->of(0), of_first.c_str(), of_first.size() + 1) == 0, "another file");
    });
  }
  if (!all_well(well)) return nullptr;
  // A rank's part is first touched by itself: it lies where that process runs.
  std::memset(memory->of(group.rank()), 0, bytes);
  attempt([&] { memory->pin(); });
  if (!all_well(well)) return nullptr;
  double mine = 0;
  attempt([&] { mine = memory->time_copies(group.rank()); });
  for (const std::string& seconds : group.all_gather(str(mine)))
    memory->seconds_per_byte_ = std::max(memory->seconds_per_byte_, std::stod(seconds));
  return all_well(well) ? std::move(memory) : nullptr;
}

void HostMemory::map(int file) {
  struct stat status {};
  WEFT_CHECK(file >= 0 && fstat(file, &status) == 0 && status.st_size == static_cast<off_t>(all_),
             "memory of the host that several processes share is not there");
  void* memory = mmap(nullptr, all_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  WEFT_CHECK(memory != MAP_FAILED, "memory of the host that several processes share: ", std::strerror(errno));
  memory_ = static_cast<char*>(memory);
}

void HostMemory::pin() {
  WEFT_CUDA_CALL(cudaHostRegister(memory_, all_, cudaHostRegisterPortable));
  pinned_ = true;
}

// Once to warm up.
double HostMemory::time_copies(int rank) const {
  constexpr int kTimes = 4;
  void* buffer = nullptr;
  WEFT_CUDA_CALL(cudaMalloc(&buffer, bytes_));
  const auto there_and_back = [&](int times) {
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < 2 * times && error == cudaSuccess; ++i)
      error = i % 2 == 0 ? cudaMemcpyAsync(of(rank), buffer, bytes_, cudaMemcpyDefault, cudaStreamPerThread)
                         : cudaMemcpyAsync(buffer, of(rank), bytes_, cudaMemcpyDefault, cudaStreamPerThread);
    return error == cudaSuccess ? cudaStreamSynchronize(cudaStreamPerThread) : error;
  };
  cudaError_t error = there_and_back(1);
  const auto began = std::chrono::steady_clock::now();
  if (error == cudaSuccess) error = there_and_back(kTimes);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  static_cast<void>(cudaFree(buffer));
  WEFT_CUDA_CALL(error);
  return took.count() / (2.0 * kTimes * static_cast<double>(bytes_));
}

// After an error the GPU may wait for ever for what does not come, and giving memory back would wait for it.
HostMemory::~HostMemory() {
  if (std::uncaught_exceptions() > exceptions_) return;
  if (pinned_) static_cast<void>(cudaHostUnregister(memory_));
  if (memory_) munmap(memory_, all_);
}

}  // namespace weft
