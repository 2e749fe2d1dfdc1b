// SPDX-License-Identifier: MIT
#include "src/ranks/communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace weft {
namespace {
class Alone : public Communicator {
 public:
  Alone()
      : Communicator(0, 1) {}

  std::string carrier() const override { return "nothing"; }

  void all_reduce_sum(const TensorView&) override {}

  void reduce_scatter_sum(const TensorView&) override {}

  void all_gather(const TensorView&) override {}
};

// Bytes that travel at a time: what rank 0 holds of every rank.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

// The sum of `count` elements of every rank, in the order of the ranks, rounded once.
template <class T>
std::string sum_of(const std::vector<std::string>& ranks, std::size_t count) {
  using Sum = std::conditional_t<sizeof(T) >= 4, double, float>;
  std::string sums(count * sizeof(T), '\0');
  for (std::size_t i = 0; i < count; ++i) {
    Sum sum = 0;
    for (const std::string& of_rank : ranks) {
      T value;
      std::memcpy(&value, of_rank.data() + i * sizeof(T), sizeof(T));
      sum += static_cast<Sum>(value);
    }
    const T rounded = static_cast<T>(sum);
    std::memcpy(sums.data() + i * sizeof(T), &rounded, sizeof(T));
  }
  return sums;
}

class CpuCommunicator : public Communicator {
 public:
  explicit CpuCommunicator(ProcessGroup& group)
      : Communicator(group.rank(), group.size()),
        group_(group) {}

  std::string carrier() const override { return "TCP"; }

  void all_reduce_sum(const TensorView& t) override {
    expect_floating(t, "all_reduce_sum: the tensor");
    const int64_t piece = kPieceBytes / size_of(t.dtype);
    for (int64_t first = 0; first < t.size(); first += piece) {
      char* at = static_cast<char*>(t.data) + first * size_of(t.dtype);
      const auto count = static_cast<std::size_t>(std::min(piece, t.size() - first));
      const std::size_t bytes = count * static_cast<std::size_t>(size_of(t.dtype));
      const std::vector<std::string> ranks = group_.gather(std::string(at, bytes));
      std::string sums;
      if (rank() == 0) {
        for (const std::string& of_rank : ranks) check_length(of_rank.size(), bytes);
        dispatch_float(t.dtype, [&]<class T>() { sums = sum_of<T>(ranks, count); });
      }
      sums = group_.broadcast(sums);
      check_length(sums.size(), bytes);
      std::memcpy(at, sums.data(), bytes);
    }
  }

  void reduce_scatter_sum(const TensorView& t) override {
    piece_elements(t, "reduce_scatter_sum");
    all_reduce_sum(t);
  }

  void all_gather(const TensorView& t) override {
    const int64_t mine = piece_elements(t, "all_gather") * size_of(t.dtype);
    char* all = static_cast<char*>(t.data);
    for (int64_t first = 0; first < mine; first += kPieceBytes) {
      const auto bytes = static_cast<std::size_t>(std::min(kPieceBytes, mine - first));
      const std::vector<std::string> ranks =
          group_.all_gather(std::string(all + rank() * mine + first, bytes));
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        check_length(ranks[r].size(), bytes);
        std::memcpy(all + static_cast<int64_t>(r) * mine + first, ranks[r].data(), bytes);
      }
    }
  }

 private:
  static void check_length(std::size_t got, std::size_t want) {
    WEFT_CHECK(got == want,
               "a collective of tensors: one rank's has other shapes than another's: ", got,
               " and ", want, " bytes");
  }

  ProcessGroup& group_;
};
}  // namespace

int64_t Communicator::piece_elements(const TensorView& t, const char* what) const {
  WEFT_CHECK(t.size() % size() == 0, what, ": the tensor must be ", size(),
             " pieces of one length, got ", shape_text(t));
  return t.size() / size();
}

#ifndef WEFT_NCCL
std::string nccl_version() { return ""; }

std::unique_ptr<Communicator> make_nccl_communicator(Device& device, ProcessGroup& group) {
  fail(group.size(), " processes train on GPUs (", device.name,
       "), and this program was built without NCCL, over which GPUs speak: install it (Debian, "
       "Ubuntu: "
       "libnccl-dev; Python: pip install nvidia-nccl-cu13), then configure (NCCL_ROOT names its "
       "folder) and "
       "build again; or --device cpu");
}
#endif

std::unique_ptr<Communicator> make_communicator(Device& device, ProcessGroup& group) {
  if (group.size() == 1) return std::make_unique<Alone>();
  if (!device.is_cuda()) return std::make_unique<CpuCommunicator>(group);
  return make_nccl_communicator(device, group);
}
}  // namespace weft
