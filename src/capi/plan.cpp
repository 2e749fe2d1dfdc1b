// SPDX-License-Identifier: MIT
// Plans. Sizes are checked before the tables are built.
#include "src/capi/handles.h"
#include "src/config/names.h"
#include "src/patterns/pattern.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

namespace weft::capi {
namespace {
constexpr int64_t kCudaStep = 8, kCudaLargest = 256;  // sizes of heads

void check_head_size(const char* name, int64_t size, int32_t device) {
  require(size >= 1 && size <= kMaxHeadSize, name, " must be 1 to ", kMaxHeadSize, ", got ", size);
  if (device != WEFT_CPU && (size % kCudaStep != 0 || size > kCudaLargest))
    unsupported(name, " is ", size,
                ": on CUDA heads have 8 to 256 numbers in steps of 8; the nearest is ",
                std::min(kCudaLargest, (size + kCudaStep - 1) / kCudaStep * kCudaStep));
}

// A lower bound of what the tables take, from a few queries: 16 bytes a visited tile, 8 a position.
double least_bytes(const weft_pattern& p, Lengths n) {
  constexpr int64_t kSamples = 32;
  const int64_t step = std::max<int64_t>(1, n.queries / kSamples);
  double keys = 0;
  int64_t samples = 0;
  std::vector<KeyRun> runs;
  for (int64_t i = step / 2; i < n.queries; i += step, ++samples) {
    runs.clear();
    p.pattern->key_runs(0, i, runs);
    keys += static_cast<double>(keys_in(runs, n.keys));
  }
  const double pairs =
      samples ? keys / static_cast<double>(samples) * static_cast<double>(n.queries) : 0;
  return 16 * pairs / (kTile * kTile) + 8 * static_cast<double>(n.queries + n.keys);
}

void check_memory(const weft_pattern& pattern, Lengths n) {
  const double present =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const double needed = least_bytes(pattern, n);
  if (needed > present)
    throw StatusError(
        WEFT_OUT_OF_MEMORY,
        str("n_q, n_k: the tables of ", pattern.name, " for ", n.queries, " queries and ", n.keys,
            " keys take at least ", needed / 1e9, " GB, this machine has ", present / 1e9));
}
}  // namespace

std::unique_ptr<weft_attention_plan> make_plan(const weft_pattern* pattern, Lengths n, int64_t d_qk,
                                               int64_t d_v, int32_t device) {
  require(pattern != nullptr, "pattern is NULL");
  require(n.queries >= 1 && n.queries <= kMaxPositions, "n_q must be 1 to ", kMaxPositions,
          ", got ", n.queries);
  require(n.keys >= 1 && n.keys <= kMaxPositions, "n_k must be 1 to ", kMaxPositions, ", got ",
          n.keys);
  const Lengths made_for = pattern->pattern->lengths();
  require(made_for.queries == 0 || n.queries <= made_for.queries, "n_q is ", n.queries, ", ",
          pattern->name, " is made for ", made_for.queries, " queries");
  require(made_for.keys == 0 || n.keys <= made_for.keys, "n_k is ", n.keys, ", ", pattern->name,
          " is made for ", made_for.keys, " keys");
  require(device >= WEFT_CPU, "device must be WEFT_CPU or a CUDA device from 0 on, got ", device);
  check_head_size("d_qk", d_qk, device);
  check_head_size("d_v", d_v, device);
  auto plan = std::make_unique<weft_attention_plan>();
  plan->heads = pattern->heads;
  plan->n = n;
  plan->d_qk = d_qk;
  plan->d_v = d_v;
  plan->backend = device == WEFT_CPU ? make_cpu_backend() : make_cuda_backend(device);
  check_memory(*pattern, n);
  const PackedMaps packed(*pattern->pattern, pattern->heads, n, std::max(d_qk, d_v));
  for (int head = 0; head < pattern->heads; ++head) plan->pairs += packed.pairs(head);
  plan->bytes = static_cast<int64_t>(packed.bytes());
  plan->maps = plan->backend->place(packed);
  return plan;
}

attention::Problem problem_of(const weft_attention_plan& plan, DType dtype, AttentionForm form,
                              bool segments) {
  return {
      .form = form,
      .dtype = dtype,
      .heads = plan.heads,
      .time = plan.n.queries,
      .qk_size = plan.d_qk,
      .v_size = plan.d_v,
      .segments = segments,
  };
}

const char* kernel_names(const weft_attention_plan& plan, const attention::Problem& problem) {
  std::vector<std::string> names;
  for (int p = 0; p < plan.maps.passes; ++p) {
    const std::string name = plan.backend->kernel_name(problem, plan.maps.pass[p]);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  static std::mutex mutex;
  static std::set<std::string> known;  // callers keep the pointer
  const std::lock_guard lock(mutex);
  return known.insert(joined(names, "+")).first->c_str();
}
}  // namespace weft::capi
