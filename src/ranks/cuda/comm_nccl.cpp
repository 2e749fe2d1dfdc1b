// SPDX-License-Identifier: MIT
// Collectives of GPUs on their own stream: through host memory where that is fast enough, else by
// NCCL.

#include "src/cuda/staging.h"
#include "src/ranks/communicator.h"
#include "src/ranks/cuda/host_reduce.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <nccl.h>
#include <span>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr int kMaxBlocks = 8;  // thread blocks of a collective; NCCL_MAX_CTAS overrides it

ncclDataType_t nccl_type(DType type) {
  switch (type) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::u8: break;
  }
  return ncclUint8;
}

void check(ncclResult_t result, ncclComm_t comm, const char* what) {
  if (result == ncclSuccess) return;
  const char* more = ncclGetLastError(comm);
  fail(what, ": NCCL: ", ncclGetErrorString(result), more && *more ? str(" (", more, ")") : "",
       "; NCCL_DEBUG=INFO says more");
}

// The order of additions in a ring depends on the number of ranks alone; NVLink multicast is
// opt-in.
void choose_algorithm() {
  setenv("NCCL_ALGO", "Ring", 0);
  setenv("NCCL_NVLS_ENABLE", "0", 0);
}

void check_gpus(int index, ProcessGroup& group) {
  cudaDeviceProp properties{};
  WEFT_CUDA_CALL(cudaGetDeviceProperties(&properties, index));
  const std::string mine(properties.uuid.bytes, sizeof properties.uuid.bytes);
  const std::vector<std::string> all = group.all_gather(mine);
  std::string trouble;
  for (int rank = 0; rank < group.rank() && trouble.empty(); ++rank)
    if (all[static_cast<std::size_t>(rank)] == mine)
      trouble = str("its GPU, cuda:", index, ", is that of rank ", rank,
                    " too; every process needs its own: start as many as there are GPUs");
  group.require_all(trouble);
}

// WEFT_HOST_REDUCE: 0: all is left to NCCL; 1: what the host's memory takes goes there; else as is
// planned.
enum class HostWay { never, as_planned, always };

HostWay wanted_way() {
  const char* text = std::getenv("WEFT_HOST_REDUCE");
  const std::string wanted = text ? text : "";
  if (!wanted.empty() && wanted != "0" && wanted != "1")
    fail("WEFT_HOST_REDUCE: expected 0 or 1, got '", wanted, "'");
  return wanted.empty() ? HostWay::as_planned : wanted == "1" ? HostWay::always : HostWay::never;
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(Device& device, ProcessGroup& group)
      : Communicator(group.rank(), group.size()),
        queue_(std::get<CudaQueue>(device.queue)) {
    const int index = std::atoi(device.name.c_str() + std::strlen("cuda:"));
    WEFT_CUDA_CALL(cudaSetDevice(index));
    check_gpus(index, group);
    choose_algorithm();
    ncclUniqueId id{};
    if (group.rank() == 0) check(ncclGetUniqueId(&id), nullptr, "communication between GPUs");
    const std::string bytes = group.broadcast({id.internal, sizeof id.internal});
    WEFT_CHECK(bytes.size() == sizeof id.internal, "rank 0 sent ", bytes.size(),
               " bytes for NCCL's id");
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = kMaxBlocks;
    check(ncclCommInitRankConfig(&comm_, group.size(), id, group.rank(), &config), nullptr,
          "communication between GPUs could not begin");
    int lowest = 0, highest = 0;
    WEFT_CUDA_CALL(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    WEFT_CUDA_CALL(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest));
    WEFT_CUDA_CALL(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming));
    WEFT_CUDA_CALL(cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming));
    side_ = queue_;
    side_.stream = stream_;
    side_.profile = nullptr;
    if (way_ != HostWay::never) host_ = HostReduce::make(group);
    WEFT_CHECK(host_ || way_ != HostWay::always,
               "WEFT_HOST_REDUCE=1: the GPUs share no memory of the host");
    by_host_ = host_ != nullptr;
  }

  // After an error the others may never come to what this rank still waits for.
  ~NcclCommunicator() override {
    if (std::uncaught_exceptions() > exceptions_) {
      static_cast<void>(ncclCommAbort(comm_));
    } else {
      static_cast<void>(cudaStreamSynchronize(stream_));
      static_cast<void>(ncclCommDestroy(comm_));
    }
    host_.reset();
    static_cast<void>(cudaEventDestroy(forked_));
    static_cast<void>(cudaEventDestroy(joined_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  std::string carrier() const override {
    const std::string nccl = "NCCL " + nccl_version();
    if (by_host_) return "memory of the host, small ones by " + nccl;
    return nccl +
           (host_ || way_ == HostWay::never ? "" : " (the GPUs share no memory of the host)");
  }

  // Of an all-reduce, a GPU copies all terms, its own sums and those of the others.
  void plan(int64_t bytes, double seconds) override {
    if (!host_ || way_ != HostWay::as_planned) return;
    const double copied = static_cast<double>(bytes) * (1 + 2.0 * (size() - 1) / size());
    by_host_ = copied < HostReduce::kBandwidth * seconds;
  }

  void fork() override {
    WEFT_CUDA_CALL(cudaEventRecord(forked_, queue_.stream));
    WEFT_CUDA_CALL(cudaStreamWaitEvent(stream_, forked_));
    beside_ = true;
  }

  void join() override {
    WEFT_CUDA_CALL(cudaEventRecord(joined_, stream_));
    WEFT_CUDA_CALL(cudaStreamWaitEvent(queue_.stream, joined_));
    beside_ = false;
  }

  void all_reduce_sum(const TensorView& t) override { all_reduce_sums({&t, 1}); }

  void all_reduce_sums(std::span<const TensorView> tensors) override {
    for (const TensorView& t : tensors) expect_floating(t, "all_reduce_sum: the tensor");
    start([&] {
      if (by_host_ && std::all_of(tensors.begin(), tensors.end(), HostReduce::takes))
        return host_->all_reduce(tensors, side_);
      check(ncclGroupStart(), comm_, "all_reduce_sum");
      for (const TensorView& t : tensors)
        check(ncclAllReduce(t.data, t.data, static_cast<std::size_t>(t.size()), nccl_type(t.dtype),
                            ncclSum, comm_, stream_),
              comm_, "all_reduce_sum");
      check(ncclGroupEnd(), comm_, "all_reduce_sum");
    });
  }

  void reduce_scatter_sum(const TensorView& t) override {
    expect_floating(t, "reduce_scatter_sum: the tensor");
    const int64_t piece = piece_elements(t, "reduce_scatter_sum");
    start([&] {
      if (by_host_ && HostReduce::takes(t)) return host_->reduce_scatter(t, side_);
      check(ncclReduceScatter(t.data, own_piece(t, piece), static_cast<std::size_t>(piece),
                              nccl_type(t.dtype), ncclSum, comm_, stream_),
            comm_, "reduce_scatter_sum");
    });
  }

  void all_gather(const TensorView& t) override {
    const int64_t piece = piece_elements(t, "all_gather");
    start([&] {
      check(ncclAllGather(own_piece(t, piece), t.data, static_cast<std::size_t>(piece),
                          nccl_type(t.dtype), comm_, stream_),
            comm_, "all_gather");
    });
  }

 private:
  // Outside fork() and join(), a collective is in line with what the queue gets.
  template <class Call>
  void start(const Call& call) {
    const bool in_line = !beside_;
    if (in_line) fork();
    call();
    if (in_line) join();
  }

  void* own_piece(const TensorView& t, int64_t piece) const {
    return static_cast<char*>(t.data) + rank() * piece * size_of(t.dtype);
  }

  const CudaQueue queue_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  CudaQueue side_;
  const HostWay way_ = wanted_way();
  std::unique_ptr<HostReduce> host_;  // null: there is none
  bool by_host_ = false;
  cudaEvent_t forked_ = nullptr, joined_ = nullptr;
  bool beside_ = false;
  const int exceptions_ = std::uncaught_exceptions();
};
}  // namespace

std::string nccl_version() {
  int version = 0;
  check(ncclGetVersion(&version), nullptr, "the version of NCCL");
  return str(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

std::unique_ptr<Communicator> make_nccl_communicator(Device& device, ProcessGroup& group) {
  return std::make_unique<NcclCommunicator>(device, group);
}
}  // namespace weft
