// SPDX-License-Identifier: MIT
// NCCL between hosts: two processes of this machine that take themselves for two hosts. Each sees
// one GPU, and NCCL, which tells hosts by NCCL_HOSTID where it is set, has sockets alone to go
// through.
#include <cstdlib>
#include <string>
#include <vector>
#ifdef WEFT_CUDA
#include "tests/src/ranks/ranks.h"
#include "tests/train/ranks/ranks_testing.h"

#include <filesystem>
#include <memory>
#include <signal.h>
#include <sstream>

namespace weft {
namespace {
// The name of this machine's GPU `index` for CUDA_VISIBLE_DEVICES.
std::string visible_gpu(int index) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible || !*visible) return std::to_string(index);
  std::istringstream names(visible);
  std::string name;
  for (int i = 0; i <= index; ++i) std::getline(names, name, ',');
  return name;
}

class CudaMultiHosts : public GpuRuns {
 protected:
  using Hosts = std::vector<std::unique_ptr<Process>>;

  // The run <dir>/<name>, one process a host.
  Hosts start(const std::string& name, const std::vector<std::string>& overrides) const {
    const int port = free_port();
    const std::vector<std::string> words = arguments(name, overrides);
    Hosts hosts;
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<std::string> environment = rank_environment(rank, 2, port);
      environment.insert(
          environment.end(),
          {"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "CUDA_VISIBLE_DEVICES=" + visible_gpu(rank),
           str("NCCL_HOSTID=host", rank), "NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket",
           "NCCL_DEBUG=INFO", str("NCCL_DEBUG_FILE=", nccl_file(name, rank))});
      hosts.push_back(std::make_unique<Process>(
          dir, "train", words,
          ProcessOptions{.environment = environment, .name = str(name, rank)}));
    }
    return hosts;
  }

  void run_on_hosts(const std::string& name, const std::vector<std::string>& overrides) const {
    const Hosts hosts = start(name, overrides);
    for (const auto& host : hosts) ASSERT_EQ(host->wait(), 0) << host->out() << host->err();
    EXPECT_CONTAINS(
        hosts[0]->out(),
        "processes   2 on 2 hosts, started by torchrun; gradients are all-reduced by NCCL ");
    EXPECT_EQ(hosts[1]->out() + hosts[1]->err(), "");
    EXPECT_CONTAINS(read_file(nccl_file(name, 0)), " via NET/Socket");
  }

  std::string nccl_file(const std::string& name, int rank) const {
    return dir / str(name, ".nccl.", rank);
  }
};

// Two numbers have one sum, whatever carries it.
TEST_F(CudaMultiHosts, TrainTheModelOfOneHost) {
  const std::vector<std::string> fifty{"train.steps=50", "train.log_every=1",
                                       "train.eval_every=25"};
  run("host", 2, fifty);
  run_on_hosts("hosts", fifty);
  ASSERT_EQ(of("hosts", "loss").size(), 50u);
  EXPECT_EQ(timeless_metrics(dir / "hosts/metrics.jsonl"),
            timeless_metrics(dir / "host/metrics.jsonl"));
  expect_same_latest("hosts", "host");
}

TEST_F(CudaMultiHosts, ShareTheOptimizer) {
  const std::vector<std::string> sharded{"precision=bf16", "train.bucket_mb=1", "train.steps=12",
                                         "train.shard_optimizer=true"};
  run("host", 2, sharded);
  run_on_hosts("hosts", sharded);
  expect_same_latest("hosts", "host");
}

TEST_F(CudaMultiHosts, AHostThatDiesEndsTheOther) {
  const Hosts hosts =
      start("run", {"train.steps=10000000", "train.eval_every=0", "train.save_every=50"});
  ASSERT_TRUE(eventually([&] {
    return std::filesystem::exists(dir / "run/metrics.jsonl") && !of("run", "step").empty() &&
           of("run", "step").back() >= 100;
  })) << hosts[0]->out()
      << hosts[0]->err();
  let_ranks_report();
  const pid_t victim = hosts[1]->pid();
  hosts[1]->signal(SIGKILL);
  EXPECT_CONTAINS(error_line_of(*hosts[0]), str(", pid ", victim, ") stopped after step "));
}
}  // namespace
}  // namespace weft
#endif
