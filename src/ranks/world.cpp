// SPDX-License-Identifier: MIT
#include "src/config/names.h"
#include "src/device.h"
#include "src/ranks/process_group.h"

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <system_error>

namespace weft {
namespace {
template <class... Parts>
[[noreturn]] void fail_all(int rank, const Parts&... parts) {
  throw ErrorOfAllRanks(rank, str(parts...));
}

class Environment {
 public:
  explicit Environment(const EnvironmentLookup& lookup)
      : lookup_(lookup) {}

  // As whoever started this process says, whatever else is wrong: under mpirun and srun, RANK may
  // be stale.
  int rank_at_best() const {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "RANK"}) {
      const std::string value = has("TORCHELASTIC_RUN_ID") ? text("RANK") : text(name);
      if (!value.empty()) return whole(value).value_or(0);
    }
    return 0;
  }

  std::string text(const char* name) const {
    const char* value = lookup_(name);
    return value ? value : "";  // empty counts as not set
  }

  bool has(const char* name) const { return !text(name).empty(); }

  std::optional<int> number(const char* name) const {
    const std::string value = text(name);
    if (value.empty() || whole(value)) return whole(value);
    fail_all(rank_at_best(), "the environment says ", name, "=", value,
             ": expected a number from 0");
  }

  int required(const char* name, const char* beside) const {
    const std::optional<int> value = number(name);
    if (!value)
      fail_all(rank_at_best(), "the environment has ", beside, " and no ", name,
               ": set both or neither");
    return *value;
  }

  std::string first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (has(name)) return text(name);
    return "";
  }

 private:
  static std::optional<int> whole(const std::string& text) {  // a number from 0
    const auto value = number_in<int>(text);
    return value >= 0 ? value : std::nullopt;
  }

  const EnvironmentLookup& lookup_;
};

// A port that all processes of a job compute alike, FNV-1a: 15000 to 29999, below the ephemeral
// ports.
int port_of_job(const std::string& job) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return static_cast<int>(15000 + (hash ^ (hash >> 32)) % 15000);
}

// "node01" of "node[01-04,7],other": the host of the first process of a list as Slurm writes it.
std::string first_host(const std::string& list) {
  std::string host;
  for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const std::size_t closed = list.find(']', i);
    WEFT_CHECK(closed != std::string::npos, "the list of hosts '", list, "' has a [ without its ]");
    const std::string inside = list.substr(i + 1, closed - i - 1);
    host += inside.substr(0, inside.find_first_of("-,"));
    i = closed;
  }
  return host;
}

// The entry of node `index` of a list such as "4(x2),3", as Slurm writes how many tasks each node
// has.
std::optional<int> tasks_of_node(const std::string& list, int index) {
  const char *at = list.data(), *end = at + list.size();
  while (at < end) {
    int tasks = 0, times = 1;
    auto parsed = std::from_chars(at, end, tasks);
    if (parsed.ec != std::errc()) return std::nullopt;
    at = parsed.ptr;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      parsed = std::from_chars(at + 2, end, times);
      if (parsed.ec != std::errc() || parsed.ptr == end) return std::nullopt;
      at = parsed.ptr + 1;
    }
    if (index < times) return tasks;
    index -= times;
    if (at < end && *at != ',') return std::nullopt;
    ++at;
  }
  return std::nullopt;
}

struct Names {
  const char *source, *rank, *size, *local_rank, *local_size;
};

// `local_size`: where its variable is no number, but a list of those of all hosts.
World counted(const Environment& env, const Names& names,
              std::optional<int> local_size = std::nullopt) {
  World w;
  w.source = names.source;
  w.rank = env.required(names.rank, names.size);
  w.size = env.required(names.size, names.rank);
  w.local_rank = env.required(names.local_rank, names.rank);
  w.local_size = local_size ? *local_size : env.required(names.local_size, names.local_rank);
  const auto says = [](const char* name, int value, const char* other, int other_value,
                       const auto&... why) {
    fail("the environment says ", name, "=", value, " and ", other, "=", other_value, ": ", why...);
  };
  if (w.size < 1) fail("the environment says ", names.size, "=0: a world has at least one process");
  if (w.rank >= w.size)
    says(names.rank, w.rank, names.size, w.size, "ranks go from 0 to ", w.size - 1);
  if (w.local_size > w.size)
    says(names.local_size, w.local_size, names.size, w.size,
         "a host cannot have more processes than the world");
  if (w.local_rank >= w.local_size)
    says(names.local_rank, w.local_rank, names.local_size, w.local_size,
         "local ranks go from 0 to ", w.local_size - 1);
  return w;
}

// MASTER_ADDR and MASTER_PORT; where they are not set, one host is 127.0.0.1 and `job` gives the
// port.
void set_meeting_point(World& world, const Environment& env, const std::string& job,
                       const std::string& host, const char* advice) {
  world.run = job;
  world.address = env.text("MASTER_ADDR");
  if (world.address.empty() && world.local_size == world.size) world.address = "127.0.0.1";
  if (world.address.empty()) world.address = host;
  const std::optional<int> port = env.number("MASTER_PORT");
  if (port) {
    if (*port < 1 || *port > 65534)
      fail_all(world.rank, "the environment says MASTER_PORT=", *port, ": expected 1 to 65534");
    world.port = *port;
  } else if (!job.empty()) {
    world.port = port_of_job(job);
  }
  if (world.size == 1) return;
  if (world.address.empty())
    fail_all(world.rank, "the environment has no MASTER_ADDR, and the ", world.size,
             " processes are on several hosts: where is rank 0? ", advice);
  if (world.port == 0)
    fail_all(world.rank, "the environment has no MASTER_PORT: where does rank 0 listen? ", advice);
}

World of_torchrun(const Environment& env) {
  World world = counted(env, {env.has("WEFT_GPUS") ? "--gpus" : "torchrun", "RANK", "WORLD_SIZE",
                              "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  if (world.size > 1 && !env.has("MASTER_ADDR"))
    fail_all(world.rank, "the environment says WORLD_SIZE=", world.size,
             " and has no MASTER_ADDR: where is rank 0? (torchrun sets it)");
  set_meeting_point(world, env, "", "", "Set MASTER_ADDR and MASTER_PORT (torchrun does).");
  world.run = env.first_of({"WEFT_RUN", "TORCHELASTIC_RUN_ID"});
  // torchrun itself listens at MASTER_PORT, for PyTorch's processes to ask.
  if (env.has("TORCHELASTIC_RUN_ID") && world.port > 0) ++world.port;
  return world;
}

World of_mpirun(const Environment& env) {
  World world = counted(env, {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  std::string job =
      env.first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"});
  if (job.empty()) job = "mpirun";
  set_meeting_point(world, env, job, "",
                    "mpirun -x MASTER_ADDR=<host of rank 0> -x MASTER_PORT=29500 says it.");
  return world;
}

World of_srun(const Environment& env) {
  const Names names{"srun", "SLURM_PROCID",
                    env.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
                    "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"};
  const std::string each = env.first_of({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  std::optional<int> local_size = tasks_of_node(each, env.number("SLURM_NODEID").value_or(0));
  const int nodes =
      env.number("SLURM_STEP_NUM_NODES").value_or(env.number("SLURM_NNODES").value_or(0));
  if (nodes == 1) local_size = env.required(names.size, names.rank);
  if (!local_size)
    fail_all(env.rank_at_best(), "the environment of srun says SLURM_STEP_TASKS_PER_NODE='", each,
             "': how many processes has this host? expected a list such as 8(x2)");
  World world = counted(env, names, local_size);
  // Rank 0 is on the first host, but for srun -m arbitrary, whose list is sorted all the same.
  const bool sorted = env.text("SLURM_DISTRIBUTION") != "arbitrary";
  set_meeting_point(
      world, env,
      str("srun ", env.text("SLURM_JOB_ID"), '.', env.first_of({"SLURM_STEP_ID", "SLURM_STEPID"})),
      sorted ? first_host(env.first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})) : "",
      "Export MASTER_ADDR before srun.");
  return world;
}
}  // namespace

World world_from(const EnvironmentLookup& lookup) {
  const Environment env(lookup);
  const bool mpirun = env.has("OMPI_COMM_WORLD_RANK") || env.has("OMPI_COMM_WORLD_SIZE");
  if (env.has("RANK") || env.has("WORLD_SIZE")) {
    const World world = of_torchrun(env);
    // mpirun may start torchrun, once a host. Otherwise it agrees with what is exported, or that is
    // stale.
    if (mpirun && !env.has("TORCHELASTIC_RUN_ID") && !env.has("WEFT_GPUS")) {
      const World other = of_mpirun(env);
      if (other.rank != world.rank || other.size != world.size)
        fail("RANK and WORLD_SIZE say rank ", world.rank, " of ", world.size, ", mpirun says rank ",
             other.rank, " of ", other.size, ": unset RANK and WORLD_SIZE");
    }
    return world;
  }
  if (mpirun) return of_mpirun(env);
  // A batch script has SLURM_PROCID and SLURM_NTASKS as well, and is one process; only srun gives a
  // step.
  if (env.has("SLURM_PROCID") && (env.has("SLURM_STEP_ID") || env.has("SLURM_STEPID")))
    return of_srun(env);
  return {};
}

World world_from_environment() {
  return world_from([](const char* name) { return std::getenv(name); });
}

std::string rank_device(const World& world, const std::string& device) {
  if (world.size == 1 || device == "cpu") return device;
  if (device.starts_with("cuda:") && world.local_size > 1)
    fail("--device ", device, ": the ", world.local_size,
         " processes of this host each take a GPU of their own; say cuda");
  if (device == "auto" && gpu_count() == 0) return "cpu";
  if (device != "auto" && device != "cuda") return device;
  // srun may show each process its own GPU and no other.
  const bool bound = world.source == "srun" && gpu_count() == 1;
  return str("cuda:", bound ? 0 : world.local_rank);
}
}  // namespace weft
