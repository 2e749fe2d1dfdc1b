// SPDX-License-Identifier: MIT
// CUDA's interprocess handles, and the driver's operations on memory in line with a stream.
#include "src/ranks/cuda/peer_memory.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "src/cuda/check.h"

namespace weft {
namespace {

constexpr std::size_t kFlagBytes = 4096;
// CUDA keeps several smaller allocations in one block, which another process opens as a whole.
constexpr std::size_t kLeastAllocation = std::size_t{2} << 20;
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

struct Place {  // of a tensor in a process
  unsigned long long buffer = 0, offset = 0;
  bool can_be_opened = false;
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

OutsideCapture::OutsideCapture() { WEFT_CUDA_CALL(cudaThreadExchangeStreamCaptureMode(&mode_)); }
OutsideCapture::~OutsideCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

PeerMemory::PeerMemory(ProcessGroup& group)
    : group_(group),
      rank_(group.rank()),
      size_(group.size()),
      arenas_(static_cast<std::size_t>(group.size())) {}

PeerMemory::~PeerMemory() {
  for (const auto& [key, memory] : opened_) static_cast<void>(cudaIpcCloseMemHandle(memory));
  // The own arena stays until the process ends: others may have it open still.
}

std::unique_ptr<PeerMemory> PeerMemory::make(ProcessGroup& group) {
  if (group.world().local_size != group.size() || group.size() > kMostRanks) return nullptr;
  std::unique_ptr<PeerMemory> memory(new PeerMemory(group));
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
      memory->arenas_[i] = static_cast<char*>(
          rank == group.rank() ? arena
                               : memory->opened(rank, kArena, from_bytes<cudaIpcMemHandle_t>(handles[i])));
    }
  } catch (const Error& error) { trouble = error.what(); }
  if (!all_agree()) return nullptr;
  if (!memory->answers()) trouble = "no answer";
  if (!all_agree()) return nullptr;
  return memory;
}

// Do flags arrive that the ranks send each other?
bool PeerMemory::answers() {
  cudaStream_t stream = nullptr;
  bool arrived = false;
  try {
    WEFT_CUDA_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    meet(Flag::arrived, stream);
    meet(Flag::done, stream);
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

void PeerMemory::set_own_flags() {
  const std::vector<std::uint32_t> ones(kFlags * kMostRanks, 1);
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return;
  static_cast<void>(cudaMemcpyAsync(arenas_[static_cast<std::size_t>(rank_)], ones.data(),
                                    ones.size() * sizeof(std::uint32_t), cudaMemcpyHostToDevice, stream));
  static_cast<void>(cudaStreamSynchronize(stream));
  static_cast<void>(cudaStreamDestroy(stream));
}

CUdeviceptr PeerMemory::flag(int of_rank, Flag which, int from_rank) const {
  return reinterpret_cast<CUdeviceptr>(arenas_[static_cast<std::size_t>(of_rank)]) +
         sizeof(std::uint32_t) * static_cast<std::size_t>(static_cast<int>(which) * kMostRanks + from_rank);
}

char* PeerMemory::slot(int of_rank, int from_rank) const {
  return arenas_[static_cast<std::size_t>(of_rank)] + kFlagBytes +
         kSlotBytes * static_cast<std::size_t>(from_rank);
}

// All in one batch, in this order. A flag is taken back by the rank that waited for it: the next one comes
// only after this rank's signal of the other flag.
void PeerMemory::meet(Flag which, cudaStream_t stream) const {
  std::vector<CUstreamBatchMemOpParams> signals, waits, resets;
  const auto write = [](CUdeviceptr address, std::uint32_t value) {
    CUstreamBatchMemOpParams op = {};
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = address;
    op.writeValue.value = value;
    op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // after all that the stream has done
    return op;
  };
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    signals.push_back(write(flag(rank, which, rank_), 1));
    CUstreamBatchMemOpParams& wait = waits.emplace_back();
    wait = {};
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.waitValue.address = flag(rank_, which, rank);
    wait.waitValue.value = 1;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    resets.push_back(write(flag(rank_, which, rank), 0));
  }
  std::vector<CUstreamBatchMemOpParams>& all = signals;
  all.insert(all.end(), waits.begin(), waits.end());
  all.insert(all.end(), resets.begin(), resets.end());
  check(driver().batch(stream, static_cast<unsigned>(all.size()), all.data(), 0), "a meeting of ranks");
}

void* PeerMemory::opened(int rank, unsigned long long buffer, const cudaIpcMemHandle_t& handle) {
  void*& memory = opened_[{rank, buffer}];
  if (!memory) WEFT_CUDA_CALL(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  return memory;
}

// Where each rank has this tensor, as this process sees it.
std::vector<char*> PeerMemory::everywhere(const TensorView& t) {
  const OutsideCapture relaxed;
  const auto address = reinterpret_cast<CUdeviceptr>(t.data);
  Place mine;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  check(driver().range(&base, &bytes, address), "the allocation of a tensor");
  check(driver().attribute(&mine.buffer, CU_POINTER_ATTRIBUTE_BUFFER_ID, address),
        "the allocation of a tensor");
  mine.offset = address - base;
  mine.can_be_opened = bytes >= kLeastAllocation;
  const auto [known, added] = handles_.try_emplace(mine.buffer);
  if (added && mine.can_be_opened)
    WEFT_CUDA_CALL(cudaIpcGetMemHandle(&known->second, reinterpret_cast<void*>(base)));
  mine.handle = known->second;
  const std::vector<std::string> all = group_.all_gather(bytes_of(mine));
  std::vector<Place> theirs;
  for (const std::string& place : all) theirs.push_back(from_bytes<Place>(place));
  if (!std::all_of(theirs.begin(), theirs.end(), [](const Place& p) { return p.can_be_opened; })) return {};
  std::vector<char*> places;
  for (int rank = 0; rank < size_; ++rank) {
    const Place& place = theirs[static_cast<std::size_t>(rank)];
    places.push_back(rank == rank_
                         ? static_cast<char*>(t.data)
                         : static_cast<char*>(opened(rank, place.buffer, place.handle)) + place.offset);
  }
  return places;
}

}  // namespace weft
