// SPDX-License-Identifier: MIT
// Memory of other processes' GPUs by CUDA's interprocess handles; flags in it that streams write and wait
// for.
#include "src/cuda/peer_sums.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "kernels/pointwise.h"
#include "src/cuda/check.h"

namespace weft {
namespace {

constexpr std::size_t kFlagBytes = 4096, kSlotBytes = std::size_t{16} << 20;
constexpr int kMostRanks = 64;                // whose flags fit
constexpr unsigned long long kArena = ~0ull;  // in place of a buffer's number

// Functions of the driver, which programs do not link to.
struct Driver {
  decltype(&cuStreamBatchMemOp) batch = find<decltype(&cuStreamBatchMemOp)>("cuStreamBatchMemOp");
  decltype(&cuMemGetAddressRange) range = find<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange");
  decltype(&cuPointerGetAttribute) attribute =
      find<decltype(&cuPointerGetAttribute)>("cuPointerGetAttribute");

  template <class Function>
  static Function find(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
    WEFT_CHECK(error == cudaSuccess && found == cudaDriverEntryPointSuccess, "the NVIDIA driver has no ",
               name);
    return reinterpret_cast<Function>(function);
  }
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

void check(CUresult result, const char* what) {
  WEFT_CHECK(result == CUDA_SUCCESS, what, ": CUDA error ", static_cast<int>(result));
}

// Opening memory is no work of the stream that is being captured.
class OutsideCapture {
 public:
  OutsideCapture() { WEFT_CUDA_CALL(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~OutsideCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

struct Place {  // of a tensor in a process
  unsigned long long buffer = 0, offset = 0;
  cudaIpcMemHandle_t handle{};
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
template <class T>
T from_bytes(const std::string& bytes) {
  WEFT_CHECK(bytes.size() == sizeof(T), "a rank sent ", bytes.size(), " bytes for ", sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

PeerSums::PeerSums(ProcessGroup& group)
    : group_(group),
      rank_(group.rank()),
      size_(group.size()),
      arenas_(static_cast<std::size_t>(group.size())) {}

PeerSums::~PeerSums() {
  for (const auto& [key, memory] : opened_) static_cast<void>(cudaIpcCloseMemHandle(memory));
  // The own arena stays until the process ends: others may have it open still.
}

std::unique_ptr<PeerSums> PeerSums::make(ProcessGroup& group) {
  if (group.world().local_size != group.size() || group.size() > kMostRanks) return nullptr;
  std::unique_ptr<PeerSums> sums(new PeerSums(group));
  std::string trouble;
  const auto all_agree = [&] {
    const std::vector<std::string> troubles = group.all_gather(trouble);
    return std::all_of(troubles.begin(), troubles.end(), [](const std::string& t) { return t.empty(); });
  };
  cudaIpcMemHandle_t handle{};
  void* arena = nullptr;
  try {
    const std::size_t bytes = kFlagBytes + kSlotBytes * static_cast<std::size_t>(group.size());
    WEFT_CUDA_CALL(cudaMalloc(&arena, bytes));
    WEFT_CUDA_CALL(cudaMemset(arena, 0, kFlagBytes));
    WEFT_CUDA_CALL(cudaDeviceSynchronize());
    WEFT_CUDA_CALL(cudaIpcGetMemHandle(&handle, arena));
    static_cast<void>(driver());
  } catch (const Error& error) { trouble = error.what(); }
  const std::vector<std::string> handles = group.all_gather(bytes_of(handle));
  if (!all_agree()) return nullptr;
  try {
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      sums->arenas_[i] = static_cast<char*>(
          rank == group.rank() ? arena
                               : sums->opened(rank, kArena, from_bytes<cudaIpcMemHandle_t>(handles[i])));
    }
  } catch (const Error& error) { trouble = error.what(); }
  if (!all_agree()) return nullptr;
  if (!sums->answers()) trouble = "no answer";
  if (!all_agree()) return nullptr;
  return sums;
}

// Do flags arrive that the ranks send each other?
bool PeerSums::answers() {
  cudaStream_t stream = nullptr;
  bool arrived = false;
  try {
    WEFT_CUDA_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    signal_all(kArrived, stream);
    wait_for_all(kArrived, stream);
    signal_all(kDone, stream);
    wait_for_all(kDone, stream);
    for (int i = 0; i < 2000 && !arrived; ++i) {
      arrived = cudaStreamQuery(stream) == cudaSuccess;
      if (!arrived) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const Error&) {}
  static_cast<void>(cudaGetLastError());
  if (!arrived) set_own_flags();  // lets the stream go
  static_cast<void>(cudaStreamDestroy(stream));
  return arrived;
}

void PeerSums::set_own_flags() {
  const std::vector<std::uint32_t> ones(kFlags * kMostRanks, 1);
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return;
  static_cast<void>(cudaMemcpyAsync(arenas_[static_cast<std::size_t>(rank_)], ones.data(),
                                    ones.size() * sizeof(std::uint32_t), cudaMemcpyHostToDevice, stream));
  static_cast<void>(cudaStreamSynchronize(stream));
  static_cast<void>(cudaStreamDestroy(stream));
}

CUdeviceptr PeerSums::flag(int of_rank, Flag flag, int from_rank) const {
  return reinterpret_cast<CUdeviceptr>(arenas_[static_cast<std::size_t>(of_rank)]) +
         sizeof(std::uint32_t) * static_cast<std::size_t>(flag * kMostRanks + from_rank);
}

char* PeerSums::slot(int of_rank, int from_rank) const {
  return arenas_[static_cast<std::size_t>(of_rank)] + kFlagBytes +
         kSlotBytes * static_cast<std::size_t>(from_rank);
}

// Everything that the stream has done is seen by the others before the flag is.
void PeerSums::signal_all(Flag which, cudaStream_t stream) const {
  std::vector<CUstreamBatchMemOpParams> writes;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    CUstreamBatchMemOpParams& write = writes.emplace_back();
    write = {};
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.writeValue.address = flag(rank, which, rank_);
    write.writeValue.value = 1;
    write.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  }
  check(driver().batch(stream, static_cast<unsigned>(writes.size()), writes.data(), 0), "a sum's signal");
}

// Takes the flags back as well: the next ones come only after this rank's next signal.
void PeerSums::wait_for_all(Flag which, cudaStream_t stream) const {
  std::vector<CUstreamBatchMemOpParams> waits, resets;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    CUstreamBatchMemOpParams& wait = waits.emplace_back();
    wait = {};
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.waitValue.address = flag(rank_, which, rank);
    wait.waitValue.value = 1;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    CUstreamBatchMemOpParams& reset = resets.emplace_back();
    reset = {};
    reset.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    reset.writeValue.address = flag(rank_, which, rank);
    reset.writeValue.value = 0;
    reset.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  }
  check(driver().batch(stream, static_cast<unsigned>(waits.size()), waits.data(), 0), "a sum's wait");
  check(driver().batch(stream, static_cast<unsigned>(resets.size()), resets.data(), 0), "a sum's signal");
}

void* PeerSums::opened(int rank, unsigned long long buffer, const cudaIpcMemHandle_t& handle) {
  void*& memory = opened_[{rank, buffer}];
  if (!memory) WEFT_CUDA_CALL(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  return memory;
}

// Where each rank has this tensor, as this process sees it.
std::vector<char*> PeerSums::everywhere(const TensorView& t) {
  const OutsideCapture relaxed;
  const auto address = reinterpret_cast<CUdeviceptr>(t.data);
  Place mine;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  check(driver().range(&base, &bytes, address), "the allocation of a tensor");
  check(driver().attribute(&mine.buffer, CU_POINTER_ATTRIBUTE_BUFFER_ID, address),
        "the allocation of a tensor");
  mine.offset = address - base;
  const auto [known, added] = handles_.try_emplace(mine.buffer);
  if (added) WEFT_CUDA_CALL(cudaIpcGetMemHandle(&known->second, reinterpret_cast<void*>(base)));
  mine.handle = known->second;
  const std::vector<std::string> all = group_.all_gather(bytes_of(mine));
  std::vector<char*> places;
  for (int rank = 0; rank < size_; ++rank) {
    const auto place = from_bytes<Place>(all[static_cast<std::size_t>(rank)]);
    places.push_back(rank == rank_
                         ? static_cast<char*>(t.data)
                         : static_cast<char*>(opened(rank, place.buffer, place.handle)) + place.offset);
  }
  return places;
}

void PeerSums::sum_chunk(const TensorView& chunk, const std::vector<char*>& places, CudaQueue& queue) const {
  const std::int64_t width = size_of(chunk.dtype), count = chunk.size();
  const std::int64_t piece = ((count + size_ - 1) / size_ + 7) / 8 * 8;  // 16 bytes at a time
  const auto first = [&](int rank) { return std::min(count, rank * piece); };
  const auto bytes = [&](int rank) {
    return static_cast<std::size_t>((first(rank + 1) - first(rank)) * width);
  };
  const auto copy = [&](void* to, const void* from, std::size_t n) {
    if (n > 0) WEFT_CUDA_CALL(cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, queue.stream));
  };
  char* mine = static_cast<char*>(chunk.data);
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_;
    copy(slot(to, rank_), mine + first(to) * width, bytes(to));
  }
  signal_all(kArrived, queue.stream);
  wait_for_all(kArrived, queue.stream);
  TensorView own = chunk;
  own.data = mine + first(rank_) * width;
  own.rank = 1;
  std::fill(own.shape, own.shape + 5, 1);
  own.shape[0] = first(rank_ + 1) - first(rank_);
  for (int rank = 0; rank < size_ && own.shape[0] > 0; ++rank) {
    if (rank == rank_) continue;
    TensorView other = own;
    other.data = slot(rank_, rank);
    Queue on_stream = queue;
    launch(on_stream, Add{.out = {own, true}, .x = other});
  }
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_;
    copy(places[static_cast<std::size_t>(to)] + first(rank_) * width, own.data, bytes(rank_));
  }
  signal_all(kDone, queue.stream);
  wait_for_all(kDone, queue.stream);
}

void PeerSums::sum(const TensorView& t, CudaQueue& queue) {
  const std::vector<char*> places = everywhere(t);
  const std::int64_t width = size_of(t.dtype);
  const std::int64_t most = static_cast<std::int64_t>(kSlotBytes) / width * size_;
  for (std::int64_t begin = 0; begin < t.size(); begin += most) {
    TensorView chunk = t;
    chunk.data = static_cast<char*>(t.data) + begin * width;
    chunk.rank = 1;
    std::fill(chunk.shape, chunk.shape + 5, 1);
    chunk.shape[0] = std::min(most, t.size() - begin);
    std::vector<char*> there = places;
    for (char*& place : there) place += begin * width;
    sum_chunk(chunk, there, queue);
  }
}

}  // namespace weft
