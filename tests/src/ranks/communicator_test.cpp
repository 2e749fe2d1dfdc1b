// SPDX-License-Identifier: MIT
// Sums and copies over two and three processes of the CPU: right, in the order of the ranks, the
// same bits on all.
#include "src/ranks/communicator.h"

#include "tests/src/ranks/ranks.h"
#include "tests/testing.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace weft {
namespace {
template <class T>
std::vector<T> terms_of(int rank, int64_t count) {
  return converted<T>(normals(count, 100 + static_cast<unsigned>(rank), rank == 1 ? 1000 : 1));
}

// Exact, and rounded once.
template <class T>
std::vector<T> sums_of(int ranks, int64_t count) {
  std::vector<double> sums(static_cast<std::size_t>(count));
  std::vector<float> narrow(static_cast<std::size_t>(count));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<T> values = terms_of<T>(rank, count);
    for (std::size_t i = 0; i < values.size(); ++i) {
      sums[i] += static_cast<double>(values[i]);
      narrow[i] += static_cast<float>(values[i]);
    }
  }
  if (sizeof(T) < 4) return converted<T>(narrow);
  return converted<T>(sums);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
void check_cpu_sums(Communicator& comm, ProcessGroup& group) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{999}, int64_t{70001}}) {
    std::vector<T> values = terms_of<T>(comm.rank(), count);
    comm.fork();
    comm.all_reduce_sum(view_of(values, {count}));
    comm.join();
    EXPECT_TRUE(same_bits(values, sums_of<T>(comm.size(), count))) << count;
    const std::string bytes(reinterpret_cast<const char*>(values.data()),
                            std::min<std::size_t>(values.size(), 999) * sizeof(T));
    EXPECT_TRUE(group.broadcast(bytes) == bytes);
  }
}

template <class T>
void check_pieces(Communicator& comm) {
  const int64_t piece = 1001, count = piece * comm.size();
  std::vector<T> values = terms_of<T>(comm.rank(), count);
  comm.reduce_scatter_sum(view_of(values, {count}));
  const std::vector<T> sums = sums_of<T>(comm.size(), count);
  const auto mine = static_cast<std::ptrdiff_t>(comm.rank() * piece);
  EXPECT_TRUE(same_bits(std::vector<T>(values.begin() + mine, values.begin() + mine + piece),
                        std::vector<T>(sums.begin() + mine, sums.begin() + mine + piece)));
  // What the other pieces hold is undefined; all_gather makes the sum whole again.
  for (int64_t i = 0; i < count; ++i)
    if (i / piece != comm.rank()) values[static_cast<std::size_t>(i)] = static_cast<T>(-1.0f);
  comm.all_gather(view_of(values, {comm.size(), piece}));
  EXPECT_TRUE(same_bits(values, sums));
}

TEST(Communicator, ProcessesOfTheCpuSumTheirTensors) {
  for (const int count : {2, 3}) {
    expect_cpu_ranks(count, [count](CpuRank& r) {
      EXPECT_EQ(r.comm->rank(), r.rank());
      EXPECT_EQ(r.comm->size(), count);
      check_cpu_sums<double>(*r.comm, r.group);
      check_cpu_sums<float>(*r.comm, r.group);
      check_cpu_sums<f16>(*r.comm, r.group);
      check_cpu_sums<bf16>(*r.comm, r.group);
      check_pieces<double>(*r.comm);
      check_pieces<float>(*r.comm);
      check_pieces<f16>(*r.comm);
      check_pieces<bf16>(*r.comm);
    });
  }
}

TEST(Communicator, LargeTensorsGoInPieces) {
  expect_cpu_ranks(2, [](CpuRank& r) {
    const int64_t count = (int64_t{10} << 20) / 4 + 6;
    std::vector<float> values(static_cast<std::size_t>(count), static_cast<float>(r.rank() + 1));
    values.back() += 0.5f;
    r.comm->all_reduce_sum(view_of(values, {count}));
    EXPECT_EQ(std::count(values.begin(), values.end(), 3.0f), count - 1);
    EXPECT_EQ(values.back(), 4.0f);
    std::fill(values.begin(), values.end(), static_cast<float>(r.rank() + 1));
    r.comm->all_gather(view_of(values, {count}));
    EXPECT_EQ(std::count(values.begin(), values.begin() + count / 2, 1.0f), count / 2);
    EXPECT_EQ(std::count(values.begin() + count / 2, values.end(), 2.0f), count / 2);
  });
}

TEST(Communicator, AloneItDoesNothing) {
  ProcessGroup group({}, "");
  const auto device = make_device("cpu");
  const auto comm = make_communicator(*device, group);
  std::vector<float> values{1, 2, 3};
  comm->fork();
  comm->all_reduce_sum(view_of(values, {3}));
  comm->reduce_scatter_sum(view_of(values, {3}));
  comm->all_gather(view_of(values, {3}));
  comm->join();
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(comm->size(), 1);
}

TEST(Communicator, TensorsThatCannotBe) {
  Ranks ranks(2, [](const World& world) {
    CpuRank r(world);
    std::vector<float> three{1, 2, 3};
    std::vector<int32_t> whole{1, 2};
    EXPECT_CONTAINS(error_of([&] { r.comm->reduce_scatter_sum(view_of(three, {3})); }),
                    "2 pieces of one length");
    EXPECT_CONTAINS(error_of([&] { r.comm->all_gather(view_of(three, {3})); }),
                    "2 pieces of one length");
    EXPECT_CONTAINS(error_of([&] { r.comm->all_reduce_sum(view_of(whole, {2})); }),
                    "must be f64, f32, f16 or bf16");
    r.group.barrier();
    std::vector<float> other(world.rank == 0 ? 5 : 6);
    r.comm->all_reduce_sum(view_of(other, {static_cast<int64_t>(other.size())}));
  });
  ASSERT_TRUE(ranks.end());
  EXPECT_EQ(ranks.code(0), 1);
  EXPECT_CONTAINS(ranks.errors(0), "other shapes");
}
}  // namespace
}  // namespace weft
