// SPDX-License-Identifier: MIT
#include "src/ranks/cuda/host_reduce.h"

#include "kernels/layers/pointwise.h"
#include "src/cuda/memory_operations.h"
#include "src/cuda/staging.h"
#include "src/files/descriptor.h"
#include "src/ranks/sockets.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace weft {
namespace {
constexpr std::size_t kPage = 4096, kBytesOfRank = std::size_t{32} << 20;
constexpr int64_t kAlign = 8;  // elements: 16 bytes at a time whatever the type
static_assert(HostReduce::kMostRanks <= static_cast<int>(SumOf::kMost));

TensorView range_of(const TensorView& t, int64_t begin, int64_t end) {
  TensorView range = t;
  range.data = static_cast<char*>(t.data) + begin * size_of(t.dtype);
  range.rank = 1;
  std::fill(range.shape, range.shape + 5, 1);
  range.shape[0] = end - begin;
  return range;
}

void copy(void* to, const void* from, const TensorView& part, cudaStream_t stream) {
  if (part.size() > 0)
    WEFT_CUDA_CALL(cudaMemcpyAsync(to, from, static_cast<std::size_t>(part.bytes()),
                                   cudaMemcpyDefault, stream));
}
}  // namespace

struct HostReduce::Split {
  TensorView t;
  int64_t begin, stride, length, end;
  std::size_t offset = 0;

  TensorView of(int rank) const {
    const int64_t first = std::min(end, begin + rank * stride);
    return range_of(t, first, std::min(end, first + length));
  }
};

// The file: a page of flags, then for each rank a slot for each rank.
HostReduce::HostReduce(int rank, int size)
    : rank_(rank),
      size_(size),
      slot_bytes_(kBytesOfRank / static_cast<std::size_t>(size) / kPage * kPage),
      file_bytes_(kPage + kBytesOfRank * static_cast<std::size_t>(size)) {}

// All ranks learn of a failure, so that all go the same way. A mark in the memory tells whether
// they opened the same file: containers have their own process ids.
std::unique_ptr<HostReduce> HostReduce::make(ProcessGroup& group) {
  if (group.world().local_size != group.size() || group.size() > kMostRanks) return nullptr;
  std::unique_ptr<HostReduce> reduce(new HostReduce(group.rank(), group.size()));
  const auto on_all = [&](const std::function<void()>& work) {
    std::string mine = "1";
    try {
      work();
    } catch (const Error&) {
      mine = "0";
      static_cast<void>(cudaGetLastError());
    }
    const std::vector<std::string> answers = group.all_gather(mine);
    return std::all_of(answers.begin(), answers.end(),
                       [](const std::string& a) { return a == "1"; });
  };
  const bool first = group.rank() == 0;
  const std::string mark =
      group.broadcast(str(std::chrono::steady_clock::now().time_since_epoch().count()));
  const Descriptor own(first ? memfd_create("weft", MFD_CLOEXEC) : -1);
  const bool made = on_all([&] {
    if (!first) return;
    WEFT_CHECK(own && ftruncate(own.get(), static_cast<off_t>(reduce->file_bytes_)) == 0,
               "memory of the host that several processes share: ", std::strerror(errno));
    reduce->map(own.get());
    std::memcpy(reduce->slot(0, 0), mark.c_str(), mark.size() + 1);
  });
  const std::string path = group.broadcast(str("/proc/", getpid(), "/fd/", own.get()));
  if (!made) return nullptr;
  const bool mapped = on_all([&] {
    if (!first) reduce->map(Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC)).get());
    WEFT_CHECK(std::memcmp(reduce->slot(0, 0), mark.c_str(), mark.size() + 1) == 0, "another file");
  });
  if (!mapped || !on_all([&] { reduce->pin(); })) return nullptr;
  if (!on_all([&] { WEFT_CHECK(reduce->answers(), "a flag did not arrive"); })) return nullptr;
  return reduce;
}

void HostReduce::map(int file) {
  struct stat status {};

  WEFT_CHECK(
      file >= 0 && fstat(file, &status) == 0 && status.st_size == static_cast<off_t>(file_bytes_),
      "memory of the host that several processes share is not there");
  void* memory = mmap(nullptr, file_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  WEFT_CHECK(memory != MAP_FAILED,
             "memory of the host that several processes share: ", std::strerror(errno));
  host_ = static_cast<char*>(memory);
}

// A rank's part is first touched by itself: it lies where that process runs.
void HostReduce::pin() {
  std::memset(slot(rank_, 0), 0, slot_bytes_ * static_cast<std::size_t>(size_));
  WEFT_CUDA_CALL(
      cudaHostRegister(host_, file_bytes_, cudaHostRegisterPortable | cudaHostRegisterMapped));
  void* on_device = nullptr;
  WEFT_CUDA_CALL(cudaHostGetDevicePointer(&on_device, host_, 0));
  on_device_ = static_cast<char*>(on_device);
  void* terms = nullptr;
  WEFT_CUDA_CALL(cudaMalloc(&terms, slot_bytes_ * static_cast<std::size_t>(size_)));
  terms_ = static_cast<char*>(terms);
}

bool HostReduce::answers() {
  cudaStream_t stream = nullptr;
  WEFT_CUDA_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  meet(Flag::arrived, stream);
  meet(Flag::done, stream);
  bool arrived = false;
  for (int i = 0; i < 2000 && !arrived; ++i) {
    arrived = cudaStreamQuery(stream) == cudaSuccess;
    if (!arrived) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!arrived) {  // lets the stream go
    auto* flags = reinterpret_cast<volatile uint32_t*>(host_);
    for (std::size_t i = 0; i < kPage / sizeof *flags; ++i) flags[i] = 1;
  }
  static_cast<void>(cudaStreamDestroy(stream));
  return arrived;
}

// After an error the GPU may wait for ever, and freeing memory would wait for it.
HostReduce::~HostReduce() {
  if (std::uncaught_exceptions() > exceptions_) return;
  if (terms_) static_cast<void>(cudaFree(terms_));
  if (on_device_) static_cast<void>(cudaHostUnregister(host_));
  if (host_) munmap(host_, file_bytes_);
}

// What rank `from` has for rank `to`; for itself: its sums, for all.
char* HostReduce::slot(int from, int to) const {
  return host_ + kPage + kBytesOfRank * static_cast<std::size_t>(from) +
         slot_bytes_ * static_cast<std::size_t>(to);
}

CUdeviceptr HostReduce::flag(int of_rank, Flag which, int from_rank) const {
  const int number = (static_cast<int>(which) * kMostRanks + of_rank) * kMostRanks + from_rank;
  return reinterpret_cast<CUdeviceptr>(on_device_) +
         sizeof(uint32_t) * static_cast<std::size_t>(number);
}

// The stream waits until all ranks reach this flag's meeting; their earlier writes are then
// visible. The waiting rank resets the flag: the next signal comes after a meeting of the other
// flag.
void HostReduce::meet(Flag which, cudaStream_t stream) const {
  std::vector<MemoryOperation> all, waits, resets;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    all.push_back(write_word(flag(rank, which, rank_), 1));
    waits.push_back(wait_for_word(flag(rank_, which, rank), 1));
    resets.push_back(write_word(flag(rank_, which, rank), 0));
  }
  all.insert(all.end(), waits.begin(), waits.end());
  all.insert(all.end(), resets.begin(), resets.end());
  const CUresult result = enqueue(all, stream);
  WEFT_CHECK(result == CUDA_SUCCESS, "a meeting of ranks: CUDA error ", static_cast<int>(result));
}

// Leaves the sums of its parts here, with `share` those of all. A slot is rewritten after the next
// meeting.
void HostReduce::sum(std::span<const Split> splits, CudaQueue& queue, bool share) {
  const cudaStream_t stream = queue.stream;
  const auto of_others = [&](const auto& work) {  // each its neighbours first
    for (int step = 1; step < size_; ++step)
      for (const Split& split : splits) work((rank_ + step) % size_, split);
  };
  of_others([&](int to, const Split& split) {
    copy(slot(rank_, to) + split.offset, split.of(to).data, split.of(to), stream);
  });
  meet(Flag::arrived, stream);
  const auto term = [&](int from) { return terms_ + slot_bytes_ * static_cast<std::size_t>(from); };
  of_others([&](int from, const Split& split) {
    copy(term(from) + split.offset, slot(from, rank_) + split.offset, split.of(rank_), stream);
  });
  Queue on_stream = queue;
  for (const Split& split : splits) {
    SumOf sum{.out = split.of(rank_), .xs = {}};
    for (int rank = 0; rank < size_; ++rank) {
      TensorView& x = sum.xs.emplace_back(sum.out);
      if (rank != rank_) x.data = term(rank) + split.offset;
    }
    if (sum.out.size() == 0) continue;
    launch(on_stream, sum);
    if (share) copy(slot(rank_, rank_) + split.offset, sum.out.data, sum.out, stream);
  }
  meet(Flag::done, stream);
  if (!share) return;
  of_others([&](int from, const Split& split) {
    copy(split.of(from).data, slot(from, from) + split.offset, split.of(from), stream);
  });
}

// Small tensors go together; a large one takes as many rounds as it needs.
void HostReduce::all_reduce(std::span<const TensorView> tensors, CudaQueue& queue) {
  std::vector<Split> together;
  std::size_t used = 0;
  const auto sum_together = [&] {
    if (!together.empty()) sum(together, queue, true);
    together.clear();
    used = 0;
  };
  for (const TensorView& t : tensors) {
    const int64_t element = size_of(t.dtype);
    const int64_t most = static_cast<int64_t>(slot_bytes_) / element * size_;
    for (int64_t begin = 0; begin < t.size(); begin += most) {
      const int64_t end = std::min(t.size(), begin + most);
      const int64_t piece = ((end - begin + size_ - 1) / size_ + kAlign - 1) / kAlign * kAlign;
      const auto bytes = static_cast<std::size_t>((piece * element + 15) / 16 * 16);
      if (used + bytes > slot_bytes_) sum_together();
      together.push_back({t, begin, piece, piece, end, used});
      used += bytes;
    }
  }
  sum_together();
}

void HostReduce::reduce_scatter(const TensorView& t, CudaQueue& queue) {
  const int64_t piece = t.size() / size_,
                most = static_cast<int64_t>(slot_bytes_) / size_of(t.dtype);
  for (int64_t begin = 0; begin < piece; begin += most) {
    const Split split{t, begin, piece, std::min(most, piece - begin), t.size()};
    sum({&split, 1}, queue, false);
  }
}
}  // namespace weft
