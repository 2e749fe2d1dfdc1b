// SPDX-License-Identifier: MIT
// Which rank sums what, and who sends what to whom.
#include "src/ranks/cuda/peer_sums.h"

#include <algorithm>

#include "kernels/layers/pointwise.h"
#include "src/cuda/check.h"

namespace weft {
namespace {

// Bytes that a rank may send so that every rank sums all of a tensor by itself: one way, without a way back.
constexpr std::int64_t kOneWayBytes = 8 << 20;
constexpr std::int64_t kAlign = 8;  // elements: 16 bytes at a time whatever the type
constexpr std::size_t kSlotAlign = 4096;
static_assert(PeerMemory::kMostRanks <= static_cast<int>(SumOf::kMost));

TensorView range_of(const TensorView& t, std::int64_t begin, std::int64_t end) {
  TensorView range = t;
  range.data = static_cast<char*>(t.data) + begin * size_of(t.dtype);
  range.rank = 1;
  std::fill(range.shape, range.shape + 5, 1);
  range.shape[0] = end - begin;
  return range;
}

void copy(void* to, const void* from, const TensorView& part, cudaStream_t stream) {
  if (part.size() > 0)
    WEFT_CUDA_CALL(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(part.bytes()), cudaMemcpyDefault, stream));
}

}  // namespace

// Rank r sums the `length` elements of t from begin + r * stride on, or as many as there are before `end`.
struct PeerSums::Split {
  TensorView t;
  std::int64_t begin, stride, length, end;
  std::size_t slot_offset = 0;

  TensorView of(int rank) const {
    const std::int64_t first = std::min(end, begin + rank * stride);
    return range_of(t, first, std::min(end, first + length));
  }
  bool same_for_all() const { return stride == 0; }
};

std::string PeerSums::way() const {
  const bool lacking = !host_ && way_ == Way::as_planned;
  return str("the GPUs' copy engines", by_host_ ? " through the host's memory" : " straight to each other",
             lacking ? " (they share no memory of the host)" : "");
}

// Of an all-reduce: the terms and the sum go there, the others' come back.
void PeerSums::plan(std::int64_t bytes, double seconds) {
  if (!host_ || way_ != Way::as_planned) return;
  const double copied = static_cast<double>(bytes) * (1 + 2.0 * (size_ - 1) / size_);
  by_host_ = copied * host_->seconds_per_byte() < seconds;
}

std::int64_t PeerSums::slot_elements(const TensorView& t) const {
  return static_cast<std::int64_t>(by_host_ ? host_slot_bytes() : PeerMemory::kSlotBytes) / size_of(t.dtype);
}

std::size_t PeerSums::host_slot_bytes() const {
  return kHostBytes / static_cast<std::size_t>(size_) / kSlotAlign * kSlotAlign;
}

char* PeerSums::host_slot(int from, int to) const {
  return host_->of(from) + host_slot_bytes() * static_cast<std::size_t>(to);
}

PeerSums::PeerSums(std::unique_ptr<PeerMemory> memory, std::unique_ptr<HostMemory> host, Way way)
    : memory_(std::move(memory)),
      host_(std::move(host)),
      rank_(memory_->rank()),
      size_(memory_->size()),
      way_(way),
      by_host_(host_ && way == Way::host) {
  streams_.resize(static_cast<std::size_t>(size_));
  sent_.resize(streams_.size());
  for (std::size_t step = 2; step < streams_.size(); ++step) {
    int lowest = 0, highest = 0;
    WEFT_CUDA_CALL(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    WEFT_CUDA_CALL(cudaStreamCreateWithPriority(&streams_[step], cudaStreamNonBlocking, highest));
    WEFT_CUDA_CALL(cudaEventCreateWithFlags(&sent_[step], cudaEventDisableTiming));
  }
  WEFT_CUDA_CALL(cudaEventCreateWithFlags(&begun_, cudaEventDisableTiming));
}

PeerSums::~PeerSums() {
  for (std::size_t step = 2; step < streams_.size(); ++step) {
    static_cast<void>(cudaEventDestroy(sent_[step]));
    static_cast<void>(cudaStreamDestroy(streams_[step]));
  }
  static_cast<void>(cudaEventDestroy(begun_));
}

// copy(rank, stream) for every other rank, each its successor first; `stream` goes on after all of them.
template <class Copy>
void PeerSums::to_each_peer(cudaStream_t stream, const Copy& copy) {
  WEFT_CUDA_CALL(cudaEventRecord(begun_, stream));
  for (int step = 2; step < size_; ++step) {
    const auto i = static_cast<std::size_t>(step);
    WEFT_CUDA_CALL(cudaStreamWaitEvent(streams_[i], begun_));
    copy((rank_ + step) % size_, streams_[i]);
    WEFT_CUDA_CALL(cudaEventRecord(sent_[i], streams_[i]));
  }
  copy((rank_ + 1) % size_, stream);
  for (std::size_t i = 2; i < streams_.size(); ++i) WEFT_CUDA_CALL(cudaStreamWaitEvent(stream, sent_[i]));
}

// By the host, what all ranks get goes there once, to the place of the next rank.
void PeerSums::send_terms(std::span<const Split> splits, cudaStream_t stream) {
  if (!by_host_) {
    return to_each_peer(stream, [&](int to, cudaStream_t peer) {
      for (const Split& split : splits)
        copy(memory_->slot(to, rank_) + split.slot_offset, split.of(to).data, split.of(to), peer);
    });
  }
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_;
    for (const Split& split : splits)
      if (step == 1 || !split.same_for_all())
        copy(host_slot(rank_, to) + split.slot_offset, split.of(to).data, split.of(to), stream);
  }
}

void PeerSums::fetch_terms(std::span<const Split> splits, cudaStream_t stream) {
  for (int step = 1; step < size_; ++step) {
    const int from = (rank_ + size_ - step) % size_;
    for (const Split& split : splits) {
      const int place = split.same_for_all() ? (from + 1) % size_ : rank_;
      copy(memory_->slot(rank_, from) + split.slot_offset, host_slot(from, place) + split.slot_offset,
           split.of(rank_), stream);
    }
  }
}

// Afterwards this rank has the sums of its parts. Slots are free again after a meeting of Flag::done.
void PeerSums::sum_splits(std::span<const Split> splits, CudaQueue& queue) {
  finish(queue);
  send_terms(splits, queue.stream);
  memory_->meet(PeerMemory::Flag::arrived, queue.stream);
  if (by_host_) fetch_terms(splits, queue.stream);
  Queue on_stream = queue;
  for (const Split& split : splits) {
    SumOf sum{.out = split.of(rank_), .xs = {}};
    for (int rank = 0; rank < size_; ++rank) {
      TensorView& term = sum.xs.emplace_back(sum.out);
      if (rank != rank_) term.data = memory_->slot(rank_, rank) + split.slot_offset;
    }
    if (sum.out.size() > 0) launch(on_stream, sum);
  }
}

void PeerSums::share_own(const Split& split, const std::vector<char*>& places, cudaStream_t stream) {
  const TensorView own = split.of(rank_);
  const std::ptrdiff_t offset = static_cast<char*>(own.data) - static_cast<char*>(split.t.data);
  if (own.size() == 0) return;
  to_each_peer(stream, [&](int to, cudaStream_t peer) {
    copy(places[static_cast<std::size_t>(to)] + offset, own.data, own, peer);
  });
}

// Their places are free again when the ranks have met once more.
void PeerSums::fetch_shared(const Split& split, cudaStream_t stream) {
  for (int step = 1; step < size_; ++step) {
    const int from = (rank_ + size_ - step) % size_;
    const TensorView theirs = split.of(from);
    copy(theirs.data, host_slot(from, from), theirs, stream);
  }
}

bool PeerSums::all_reduce_sums(std::span<const TensorView> tensors, CudaQueue& queue) {
  std::int64_t bytes = 0;
  std::vector<Split> splits;
  for (const TensorView& t : tensors) {
    splits.push_back({t, 0, 0, t.size(), t.size(), static_cast<std::size_t>(bytes)});
    bytes += (t.bytes() + 15) / 16 * 16;
  }
  if (bytes * (size_ - 1) <= kOneWayBytes) {
    sum_splits(splits, queue);
    memory_->meet(PeerMemory::Flag::done, queue.stream);
    return true;
  }
  std::vector<std::vector<char*>> places;
  for (const TensorView& t : tensors) {
    places.push_back(by_host_ ? std::vector<char*>{} : memory_->everywhere(t));
    if (!by_host_ && places.back().empty()) return false;
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& t = tensors[i];
    const std::int64_t most = slot_elements(t) * size_;
    for (std::int64_t begin = 0; begin < t.size(); begin += most) {
      const std::int64_t end = std::min(t.size(), begin + most);
      const std::int64_t piece = ((end - begin + size_ - 1) / size_ + kAlign - 1) / kAlign * kAlign;
      const Split split{t, begin, piece, piece, end};
      sum_splits({&split, 1}, queue);
      const TensorView own = split.of(rank_);
      by_host_ ? copy(host_slot(rank_, rank_), own.data, own, queue.stream)
               : share_own(split, places[i], queue.stream);
      memory_->meet(PeerMemory::Flag::done, queue.stream);
      if (by_host_) fetch_shared(split, queue.stream);
    }
  }
  return true;
}

void PeerSums::reduce_scatter_sum(const TensorView& t, CudaQueue& queue) {
  const std::int64_t piece = t.size() / size_, most = slot_elements(t);
  for (std::int64_t begin = 0; begin < piece; begin += most) {
    const Split split{t, begin, piece, std::min(most, piece - begin), t.size()};
    sum_splits({&split, 1}, queue);
    memory_->meet(PeerMemory::Flag::done, queue.stream);
  }
}

bool PeerSums::all_gather(const TensorView& t, CudaQueue& queue) {
  const std::vector<char*> places = memory_->everywhere(t);
  if (places.empty()) return false;
  const std::int64_t piece = t.size() / size_;
  if (!gathering_)
    memory_->meet(PeerMemory::Flag::arrived, queue.stream);  // nobody reads the old ones any more
  gathering_ = true;
  share_own({t, 0, piece, piece, t.size()}, places, queue.stream);
  return true;
}

void PeerSums::finish(CudaQueue& queue) {
  if (gathering_) memory_->meet(PeerMemory::Flag::done, queue.stream);
  gathering_ = false;
}

}  // namespace weft
