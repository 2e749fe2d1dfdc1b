// SPDX-License-Identifier: MIT
// Collectives between GPUs, one process each, alone and as a branch of a CUDA graph; and what is
// said when a GPU is shared or a process dies. Each rank is a process of its own: this program
// again, told to run one of the disabled tests.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#ifdef WEFT_CUDA

#include "kernels/layers/pointwise.h"
#include "src/device.h"
#include "src/files/error_line.h"
#include "src/files/files.h"
#include "src/ranks/communicator.h"
#include "tests/src/ranks/ranks.h"
#include "tests/testing.h"

#include <cstdlib>
#include <cstring>

namespace weft {
namespace {
using std::chrono::seconds;

// ---- this side: starts the processes

// Why this machine cannot run a test with so many GPUs; "" if it can.
std::string lacking(int gpus) {
  if (nccl_version().empty()) return "built without NCCL";
  if (gpu_count() < gpus)
    return str("needs ", gpus, gpus == 1 ? " GPU, " : " GPUs, ", gpu_count(), " here");
  return "";
}

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// The process of a rank becomes this program with the test `name` of the suite CudaMultiCommRank.
Ranks::Work become(const std::string& name, const std::string& file = "") {
  return [=](const World& world) {
    set("RANK", std::to_string(world.rank));
    set("WORLD_SIZE", std::to_string(world.size));
    set("LOCAL_RANK", std::to_string(world.local_rank));
    set("LOCAL_WORLD_SIZE", std::to_string(world.local_size));
    set("MASTER_ADDR", world.address);
    set("MASTER_PORT", std::to_string(world.port));
    set("WEFT_TEST_FILE", file);
    // The shards of this process: one of them would have the only test of the child.
    unsetenv("GTEST_TOTAL_SHARDS");
    unsetenv("GTEST_SHARD_INDEX");
    dup2(STDERR_FILENO, STDOUT_FILENO);
    const std::string filter = "--gtest_filter=CudaMultiCommRank.DISABLED_" + name;
    execl("/proc/self/exe", "weft_tests", filter.c_str(), "--gtest_also_run_disabled_tests",
          "--gtest_brief=1", static_cast<char*>(nullptr));
    _exit(127);
  };
}

// ---- the other side: a rank

struct Rank {
  ProcessGroup group{world_from_environment(), "test", seconds(60)};
  std::unique_ptr<Device> device = make_device(str("cuda:", group.world().local_rank));
  std::unique_ptr<Communicator> comm = make_communicator(*device, group);

  template <class T>
  Tensor upload(const std::vector<T>& values) {
    const Tensor t(*device->pool, {static_cast<int64_t>(values.size())}, dtype_of<T>);
    device->upload(t, values.data());
    return t;
  }

  template <class T>
  std::vector<T> download(const TensorView& t) {
    std::vector<T> values(static_cast<std::size_t>(t.size()));
    device->download(values.data(), t);
    return values;
  }

  template <class T>
  void expect_same_everywhere(const std::vector<T>& values) {
    const std::string mine(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    EXPECT_TRUE(group.broadcast(mine) == mine);
  }
};

template <class T>
std::vector<T> values_of(int rank, int64_t count, int step = 0) {
  std::vector<T> values(static_cast<std::size_t>(count));
  uint32_t state = 7919u * static_cast<uint32_t>(rank + 1) + static_cast<uint32_t>(step);
  for (T& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<T>(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
  }
  return values;
}

// The sum over the ranks, and how far from it a sum may be that is rounded to T after each rank.
template <class T>
void expect_sums(const std::vector<T>& got, int ranks, int step, int64_t first, int64_t total) {
  constexpr double kRounding = std::is_same_v<T, double>  ? 0x1p-53
                               : std::is_same_v<T, float> ? 0x1p-24
                               : std::is_same_v<T, f16>   ? 0x1p-11
                                                          : 0x1p-8;
  std::vector<double> sums(got.size()), sizes(got.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<T> values = values_of<T>(rank, total, step);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto value = static_cast<double>(values[static_cast<std::size_t>(first) + i]);
      sums[i] += value;
      sizes[i] += std::abs(value);
    }
  }
  int wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    wrong +=
        !(std::abs(static_cast<double>(got[i]) - sums[i]) <= kRounding * (ranks - 1) * sizes[i]);
  EXPECT_EQ(wrong, 0) << "of " << got.size() << " sums of " << name_of(dtype_of<T>);
}

// Sums through memory of the host, which take all tensors of such types that are not small: in f32,
// in the order of the ranks, rounded once.
template <class T>
void expect_order_of_ranks(Rank& r, const std::vector<T>& got, int64_t first, int64_t total) {
  if (!r.comm->carrier().starts_with("memory of the host")) return;
  if (sizeof(T) > 4 || total * static_cast<int64_t>(sizeof(T)) < 64 << 10) return;
  std::vector<float> sums(got.size());
  for (int rank = 0; rank < r.comm->size(); ++rank) {
    const std::vector<T> values = values_of<T>(rank, total);
    for (std::size_t i = 0; i < got.size(); ++i)
      sums[i] += static_cast<float>(values[static_cast<std::size_t>(first) + i]);
  }
  int wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    wrong += static_cast<float>(got[i]) != static_cast<float>(static_cast<T>(sums[i]));
  EXPECT_EQ(wrong, 0) << "of " << got.size() << " sums of " << name_of(dtype_of<T>);
}

template <class T>
void check_sums(Rank& r) {
  const int ranks = r.comm->size(), me = r.comm->rank();
  std::vector<int64_t> pieces{1, 1001, 20001, 3 << 19};
  if (std::is_same_v<T, float> && ranks == 2)
    pieces.push_back((9 << 19) + 3);  // more than goes at a time
  for (const int64_t piece : pieces) {
    const int64_t count = piece * ranks;
    const Tensor sum = r.upload(values_of<T>(me, count));
    r.comm->fork();
    r.comm->all_reduce_sum(sum);
    r.comm->join();
    const std::vector<T> sums = r.download<T>(sum);
    expect_sums(sums, ranks, 0, 0, count);
    expect_order_of_ranks(r, sums, 0, count);
    r.expect_same_everywhere(sums);

    const Tensor part = r.upload(values_of<T>(me, count));
    r.comm->reduce_scatter_sum(part);
    expect_sums(r.download<T>(part.slice(me * piece, {piece})), ranks, 0, me * piece, count);
    r.comm->all_gather(part);
    const std::vector<T> gathered = r.download<T>(part);
    expect_sums(gathered, ranks, 0, 0, count);
    expect_order_of_ranks(r, gathered, 0, count);
    r.expect_same_everywhere(gathered);
  }
}

// Several ranges of a tensor at a time, small and large; what lies between them stays.
template <class T>
void check_ranges(Rank& r, int64_t first, int64_t second) {
  const int ranks = r.comm->size(), me = r.comm->rank();
  const int64_t gap = 24, count = first + gap + second;
  const std::vector<T> mine = values_of<T>(me, count);
  const Tensor t = r.upload(mine);
  const TensorView parts[] = {t.slice(0, {first}), t.slice(first + gap, {second})};
  r.comm->all_reduce_sums(parts);
  const std::vector<T> sums = r.download<T>(t);
  const auto of = [&](const std::vector<T>& all, int64_t begin, int64_t end) {
    return std::vector<T>(all.begin() + begin, all.begin() + end);
  };
  expect_sums(of(sums, 0, first), ranks, 0, 0, count);
  expect_sums(of(sums, first + gap, count), ranks, 0, first + gap, count);
  EXPECT_EQ(
      std::memcmp(&sums[static_cast<std::size_t>(first)], &mine[static_cast<std::size_t>(first)],
                  static_cast<std::size_t>(gap) * sizeof(T)),
      0);
  r.expect_same_everywhere(of(sums, 0, first));
  r.expect_same_everywhere(of(sums, first + gap, count));
}

TEST(CudaMultiCommRank, DISABLED_Sums) {
  Rank r;
  check_ranges<float>(r, 245760, 200000);
  check_ranges<float>(r, 100001, 40001);
  check_ranges<bf16>(r, 1 << 20, 2 << 20);
  check_ranges<float>(r, 3 << 20, 2 << 20);
  check_sums<float>(r);
  check_sums<f16>(r);
  check_sums<bf16>(r);
  check_sums<double>(r);
}

// A step as training has it: two buckets are summed beside the kernels that make and read other
// tensors.
TEST(CudaMultiCommRank, DISABLED_Graph) {
  Rank r;
  constexpr int64_t kCount = (int64_t{3} << 20) + 5;
  const int me = r.comm->rank(), ranks = r.comm->size();
  Device& device = *r.device;
  const Tensor x(*device.pool, {kCount}, DType::f32), first(*device.pool, {kCount}, DType::f32),
      second(*device.pool, {kCount}, DType::f32), beside(*device.pool, {kCount}, DType::f32),
      after(*device.pool, {kCount}, DType::f32);
  GraphedStep step(device, true);
  for (int i = 0; i < 8; ++i) {
    device.upload(x, values_of<float>(me, kCount, i).data());
    step.run([&] {
      launch(device.queue, Add{.out = {first}, .x = x});
      r.comm->fork();
      r.comm->all_reduce_sum(first);
      launch(device.queue, Add{.out = {second}, .x = x});
      launch(device.queue, Add{.out = {second, true}, .x = x});
      r.comm->fork();
      r.comm->all_reduce_sum(second);
      launch(device.queue, Add{.out = {beside}, .x = x});
      r.comm->join();
      launch(device.queue, Add{.out = {after}, .x = first});
      launch(device.queue, Add{.out = {after, true}, .x = second});
    });
    const std::vector<float> sums = r.download<float>(first);
    expect_sums(sums, ranks, i, 0, kCount);
    EXPECT_TRUE(r.download<float>(beside) == values_of<float>(me, kCount, i));
    const std::vector<float> sum_of_sums = r.download<float>(after);
    int wrong = 0;
    for (std::size_t e = 0; e < sums.size(); ++e) wrong += sum_of_sums[e] != sums[e] + 2 * sums[e];
    EXPECT_EQ(wrong, 0);
    r.expect_same_everywhere(sum_of_sums);
  }
  EXPECT_TRUE(step.replaying());
}

// The sums of a hundred calls, in this process the same each time; their bytes go to a file.
TEST(CudaMultiCommRank, DISABLED_Repeat) {
  Rank r;
  std::string all;
  for (const int64_t count : {int64_t{3001}, (int64_t{1} << 20) + 3, int64_t{12} << 20}) {
    std::vector<bf16> first;
    for (int i = 0; i < 20; ++i) {
      const Tensor sum = r.upload(values_of<bf16>(r.comm->rank(), count));
      r.comm->all_reduce_sum(sum);
      const std::vector<bf16> sums = r.download<bf16>(sum);
      if (i == 0) first = sums;
      EXPECT_EQ(std::memcmp(sums.data(), first.data(), sums.size() * sizeof(bf16)), 0);
    }
    all.append(reinterpret_cast<const char*>(first.data()), first.size() * sizeof(bf16));
  }
  if (r.comm->rank() == 0) write_file(getenv("WEFT_TEST_FILE"), all);
}

TEST(CudaMultiCommRank, DISABLED_SharedGpu) {
  set("LOCAL_RANK", "0");
  try {
    Rank r;
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    print_error_line(error.what());
    _exit(1);
  }
}

TEST(CudaMultiCommRank, DISABLED_Dies) {
  Rank r;
  const Tensor sum = r.upload(values_of<float>(r.comm->rank(), 1 << 20));
  r.comm->all_reduce_sum(sum);
  r.device->synchronize();
  r.group.report_step(17);
  r.group.barrier();
  if (r.comm->rank() == 1) {
    std::this_thread::sleep_for(seconds(1));
    raise(SIGKILL);
  }
  r.comm->all_reduce_sum(sum);  // waits for rank 1 in the GPU
  r.device->synchronize();
  ADD_FAILURE() << "a sum without rank 1";
}

// ---- the tests

// Does `work` with all sums left to NCCL, and with those of large tensors going through memory of
// the host.
void in_both_ways(const std::function<void()>& work) {
  for (const char* host : {"0", "1"}) {
    SCOPED_TRACE(str("WEFT_HOST_REDUCE=", host));
    set("WEFT_HOST_REDUCE", host);
    work();
  }
  unsetenv("WEFT_HOST_REDUCE");
}

void run_on_gpus(const std::string& name, int gpus) {
  if (const std::string why = lacking(gpus); !why.empty()) GTEST_SKIP() << why;
  in_both_ways([&] {
    Ranks ranks(gpus, become(name));
    expect_all_well(ranks, seconds(120));
  });
}

TEST(CudaMultiComm, TwoGpusSumAsTheHostDoes) { run_on_gpus("Sums", 2); }

TEST(CudaMultiComm, FourGpusSumAsTheHostDoes) { run_on_gpus("Sums", 4); }

TEST(CudaMultiComm, SumsAreABranchOfACudaGraph) { run_on_gpus("Graph", 2); }

TEST(CudaMultiComm, FourGpusSumInACudaGraph) { run_on_gpus("Graph", 4); }

TEST(CudaMultiComm, EveryRunHasTheSameBits) {
  if (const std::string why = lacking(2); !why.empty()) GTEST_SKIP() << why;
  const int gpus = std::min(4, gpu_count() / 2 * 2);
  in_both_ways([&] {
    const TempDir folder;
    std::vector<std::string> runs;
    for (const char* run : {"first", "second"}) {
      Ranks ranks(gpus, become("Repeat", folder / run));
      expect_all_well(ranks, seconds(120));
      runs.push_back(read_file(folder / run));
    }
    EXPECT_GT(runs[0].size(), std::size_t{24} << 20);
    EXPECT_TRUE(runs[0] == runs[1]);
  });
}

TEST(CudaMultiComm, ADeadRankEndsThoseThatWaitInTheGpu) {
  if (const std::string why = lacking(2); !why.empty()) GTEST_SKIP() << why;
  Ranks ranks(2, become("Dies"));
  ASSERT_TRUE(ranks.end({}, seconds(60)));
  EXPECT_EQ(ranks.code(0), 1);
  EXPECT_EQ(ranks.code(1), Ranks::kKilled);
  EXPECT_CONTAINS(ranks.errors(0), "error: rank 1 (");
  EXPECT_CONTAINS(ranks.errors(0),
                  ") stopped after step 17: its connection is lost: it ended, or was killed");
}

TEST(CudaComm, AGpuForTwoProcessesIsRefused) {
  if (const std::string why = lacking(1); !why.empty()) GTEST_SKIP() << why;
  Ranks ranks(2, become("SharedGpu"));
  ASSERT_TRUE(ranks.end({}, seconds(120)));
  EXPECT_EQ(ranks.code(0), 1);
  EXPECT_EQ(ranks.code(1), 1);
  EXPECT_CONTAINS(ranks.errors(0), "error: rank 1: its GPU, cuda:0, is that of rank 0 too");
  EXPECT_EQ(ranks.errors(1).find("error:"), std::string::npos) << ranks.errors(1);
}
}  // namespace
}  // namespace weft

#endif
