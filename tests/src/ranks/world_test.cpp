// SPDX-License-Identifier: MIT
// Who a process is, from the environments of torchrun, mpirun and srun, and which of them cannot
// be.
#include "src/ranks/process_group.h"
#include "tests/temp_dir.h"

#include <gtest/gtest.h>
#include <map>
#include <string>
#include <utility>

namespace weft {
namespace {
using Variables = std::map<std::string, std::string>;

World world_of(const Variables& variables) {
  return world_from([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

void expect_world(const World& world, int rank, int size, int local_rank, int local_size,
                  const std::string& address, const std::string& source) {
  EXPECT_EQ(world.rank, rank);
  EXPECT_EQ(world.size, size);
  EXPECT_EQ(world.local_rank, local_rank);
  EXPECT_EQ(world.local_size, local_size);
  EXPECT_EQ(world.address, address);
  EXPECT_EQ(world.source, source);
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"}};
const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"PMIX_NAMESPACE", "prterun-host-4711@1"}};
const Variables kSrun = {{"SLURM_PROCID", "9"},
                         {"SLURM_STEP_NUM_TASKS", "16"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_STEP_TASKS_PER_NODE", "8(x2)"},
                         {"SLURM_JOB_ID", "77"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_JOB_NODELIST", "node[01-04]"}};

TEST(World, AProcessAloneIsTheWholeWorld) {
  const World world = world_of({});
  expect_world(world, 0, 1, 0, 1, "127.0.0.1", "alone");
  expect_world(world_of({{"RANK", ""}, {"WORLD_SIZE", ""}}), 0, 1, 0, 1, "127.0.0.1", "alone");
}

TEST(World, Torchrun) {
  const World world = world_of(kTorchrun);
  expect_world(world, 5, 8, 1, 4, "node0", "torchrun");
  EXPECT_EQ(world.port, 29500);
  // torchrun itself listens at MASTER_PORT.
  EXPECT_EQ(world_of(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}})).port, 29501);
  EXPECT_EQ(world_of(with(kTorchrun, {{"WEFT_GPUS", "8"}})).source, "--gpus");
  EXPECT_EQ(
      world_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}})
          .size,
      1);
}

TEST(World, ContradictionsAreErrors) {
  const struct {
    Variables variables;
    std::string says;
  } cases[] = {
      {with(kTorchrun, {{"RANK", "8"}}), "RANK=8 and WORLD_SIZE=8: ranks go from 0 to 7"},
      {with(kTorchrun, {{"RANK", "-1"}}), "RANK=-1: expected a number"},
      {with(kTorchrun, {{"RANK", "2x"}}), "RANK=2x: expected a number"},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE=0"},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), "local ranks go from 0 to 3"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "more processes than the world"},
      {with(kTorchrun, {{"MASTER_PORT", "70000"}}), "MASTER_PORT=70000"},
      {without(kTorchrun, "WORLD_SIZE"), "RANK and no WORLD_SIZE"},
      {without(kTorchrun, "RANK"), "WORLD_SIZE and no RANK"},
      {without(kTorchrun, "LOCAL_RANK"), "no LOCAL_RANK"},
      {without(kTorchrun, "LOCAL_WORLD_SIZE"), "no LOCAL_WORLD_SIZE"},
      {without(kTorchrun, "MASTER_ADDR"), "no MASTER_ADDR"},
      {without(kTorchrun, "MASTER_PORT"), "no MASTER_PORT"},
      {with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}), "mpirun -x MASTER_ADDR"},
      {with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "4"}}), "OMPI_COMM_WORLD_RANK=4"},
      {with(with(kTorchrun, kMpirun), {}), "unset RANK and WORLD_SIZE"},
      {with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "x"}}), "SLURM_STEP_TASKS_PER_NODE='x'"},
      {with(kSrun, {{"SLURM_PROCID", "16"}}), "SLURM_PROCID=16"},
      {with(kSrun, {{"SLURM_JOB_NODELIST", "node[01-04"}}), "has a [ without its ]"},
      {without(kSrun, "SLURM_JOB_NODELIST"), "no MASTER_ADDR"},
  };

  for (const auto& c : cases) EXPECT_CONTAINS(error_of([&] { world_of(c.variables); }), c.says);
}

TEST(World, MpirunOfOneHostNeedsNothingElse) {
  const World world = world_of(kMpirun);
  expect_world(world, 1, 4, 1, 4, "127.0.0.1", "mpirun");
  EXPECT_GE(world.port, 15000);
  EXPECT_LT(world.port, 30000);
  EXPECT_EQ(world_of(with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "2"}})).port, world.port);
  EXPECT_NE(world_of(with(kMpirun, {{"PMIX_NAMESPACE", "prterun-host-4712@1"}})).port, world.port);
  EXPECT_EQ(world_of(without(kMpirun, "PMIX_NAMESPACE")).address, "127.0.0.1");

  const World two_hosts = world_of(with(
      kMpirun,
      {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "4000"}}));
  expect_world(two_hosts, 1, 4, 1, 2, "10.0.0.1", "mpirun");
  EXPECT_EQ(two_hosts.port, 4000);
}

TEST(World, MpirunMayStartTorchrunOncePerHost) {
  expect_world(world_of(with(with(kTorchrun, kMpirun), {{"TORCHELASTIC_RUN_ID", "none"}})), 5, 8, 1,
               4, "node0", "torchrun");
}

TEST(World, SrunFindsTheFirstHostAndAPort) {
  const World world = world_of(kSrun);
  expect_world(world, 9, 16, 1, 8, "node01", "srun");
  EXPECT_EQ(world_of(with(kSrun, {{"SLURM_PROCID", "3"}})).port, world.port);
  EXPECT_NE(world_of(with(kSrun, {{"SLURM_JOB_ID", "78"}})).port, world.port);
  EXPECT_NE(world_of(with(kSrun, {{"SLURM_STEP_ID", "1"}})).port, world.port);
  const std::pair<const char*, const char*> lists[] = {{"node[01-04]", "node01"},
                                                       {"a1,b2", "a1"},
                                                       {"node[3,5-7],x", "node3"},
                                                       {"r[1-2]n[10-12]", "r1n10"},
                                                       {"gpu-7.cluster", "gpu-7.cluster"}};
  for (const auto& [list, first] : lists)
    EXPECT_EQ(world_of(with(kSrun, {{"SLURM_JOB_NODELIST", list}})).address, first);
  // The hosts of the step go before those of the job.
  EXPECT_EQ(world_of(with(kSrun, {{"SLURM_STEP_NODELIST", "node[03-04]"}})).address, "node03");
  EXPECT_EQ(world_of(with(kSrun, {{"MASTER_ADDR", "head"}})).address, "head");
  // Where a file of hosts says which rank is where, the list does not say where rank 0 is.
  const Variables arbitrary = with(kSrun, {{"SLURM_DISTRIBUTION", "arbitrary"}});
  EXPECT_CONTAINS(error_of([&] { world_of(arbitrary); }), "no MASTER_ADDR");
  EXPECT_EQ(world_of(with(arbitrary, {{"MASTER_ADDR", "head"}})).address, "head");
  EXPECT_EQ(world_of(with(kSrun, {{"SLURM_DISTRIBUTION", "cyclic"}})).address, "node01");
}

TEST(World, SrunOnOneHost) {
  EXPECT_EQ(world_of(without(kSrun, "SLURM_STEP_NUM_NODES")).local_size, 8)
      << "a number that nobody says";
  const World world = world_of(with(kSrun, {{"SLURM_STEP_NUM_NODES", "1"},
                                            {"SLURM_STEP_TASKS_PER_NODE", "16"},
                                            {"SLURM_LOCALID", "9"},
                                            {"SLURM_NODEID", "0"}}));
  expect_world(world, 9, 16, 9, 16, "127.0.0.1", "srun");
}

TEST(World, SrunWithUnevenHosts) {
  const Variables uneven =
      with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "4(x2),3,5"}, {"SLURM_STEP_NUM_NODES", "4"}});
  const int sizes[] = {4, 4, 3, 5};
  for (int node = 0; node < 4; ++node)
    EXPECT_EQ(world_of(with(uneven, {{"SLURM_NODEID", std::to_string(node)}})).local_size,
              sizes[node]);
}

TEST(World, ABatchScriptIsNoStep) {
  EXPECT_EQ(world_of(without(kSrun, "SLURM_STEP_ID")).size, 1);
  // What srun starts may start others, which say who they are.
  expect_world(world_of(with(kSrun, kTorchrun)), 5, 8, 1, 4, "node0", "torchrun");
}

TEST(World, ErrorsOfAllRanksSayWhichRankThisIs) {
  const auto rank_of = [](const Variables& variables) {
    try {
      world_of(variables);
    } catch (const ErrorOfAllRanks& error) {
      return error.rank;
    } catch (const Error&) {
      return -1;
    }
    return -2;
  };
  EXPECT_EQ(rank_of(with(kTorchrun, {{"MASTER_PORT", "99999"}})), 5);
  EXPECT_EQ(rank_of(without(kTorchrun, "LOCAL_RANK")), 5);
  EXPECT_EQ(rank_of(with(kMpirun, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})), 1) << "RANK is stale";
  EXPECT_EQ(rank_of(with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "many"}})), 9);
  for (const char* rank : {"-1", "99999999999", "1x"})
    EXPECT_EQ(rank_of(with(kTorchrun, {{"RANK", rank}})), 0)
        << rank << ": nobody else would say it";
  EXPECT_EQ(rank_of(with(kTorchrun, {{"RANK", "8"}})), -1) << "which no other rank has";
}
}  // namespace
}  // namespace weft
