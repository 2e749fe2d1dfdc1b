// SPDX-License-Identifier: MIT
// The commands of `bench`. Each prints rows to `out`, as text or JSON objects. Error: a result is
// wrong.
#pragma once

#include "data/dataset.h"
#include "models/model.h"
#include "src/processes.h"
#include "train/trainer/data_parallel.h"

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

namespace weft {
struct Commands;  // train/program/options.h

// Commands of `bench` that lie where train/ may not look: a file that the program is linked with
// appends what adds its command, before main() runs.
inline std::vector<void (*)(Commands)>& linked_commands() {
  static std::vector<void (*)(Commands)> commands;
  return commands;
}

// `bench attention`: both passes at the shapes of the paper's models or at others. Each row is
// checked against f64 first; every timed run starts with cold caches.
struct BenchAttentionOptions {
  std::string shapes = "paper";  // "paper": all of them; or names, separated by commas
  std::string modes;             // separated by commas; empty: those of the shape
  std::string custom;            // "B,H,n,Dqk,Dv,stride,c": another shape, instead of `shapes`
  std::string device = "auto";
  std::string dtype = "bf16";        // f32, f16 or bf16, or several of them, separated by commas
  std::string form = "automatic";    // which CUDA kernels: see AttentionForm
  int pause_ms = 0;                  // the device is idle for so long before each timed run
  bool json = false, verify = true;  // one object a row; check first
};

// A row a pattern: median times of the forward pass and of both passes, FLOP/s of the needed pairs,
// bandwidth with each tensor counted once, speedup over `all` if measured before, the kernels that
// ran. JSON rows add the mean clock. GEMM rate and copy bandwidth of the device come first,
// measured in the same process.
void bench_attention(const BenchAttentionOptions&, std::ostream& out);

// `bench decode`: sampling in batches from a model with random weights, once cached logits agree
// with those of forward passes, from the first position on and behind a prompt. `floor_ms` of a
// position is the time for its bytes, weights and keys and values that are read, at the measured
// copy bandwidth; `steps` depend on each other. `first_ms`: until the first token of one text,
// behind prompts of several lengths.
struct BenchDecodeOptions {
  std::string config;
  std::vector<std::string> overrides;  // "a.b=c"
  std::string device = "auto";
  int64_t batch = 8;
  int64_t positions = 0;  // of a text, prompt included; 0: the context
  int64_t prompt = 0;     // tokens of its prompt
  bool json = false;
};

void bench_decode(const BenchDecodeOptions&, std::ostream& out);

// `bench step`: times whole updates of a config on random tokens.
struct BenchStepOptions {
  std::string config;
  std::vector<std::string> overrides;  // "a.b=c"
  std::string device = "auto";
  int64_t steps = 20;     // timed, after the warm-up
  bool json = false;      // one object
  bool breakdown = true;  // by kernel, too
};

// Milliseconds a step (median, fastest, slowest, and back to back), tokens/s, FLOP/s of the needed
// pairs, MFU of the measured GEMM rate, peak memory, the seconds up to the end of the first step,
// and where the time of a step goes (train/bench/step_breakdown.h). Several processes time the
// update of all of them, then what they lose to each other. `out` counts on rank 0.
void bench_step(const BenchStepOptions&, Processes&, std::ostream& out);

// What several processes add to it; a part sets it (src/parts/parts.h).
struct BenchExchange {
  // For people, and members of a JSON object, each with a comma before it.
  struct Result {
    std::string text, json;
  };

  // What they lose to each other. Collective.
  Result (*measure)(Device&, DataParallel&, Model&, ParameterStore&, const Config&,
                    const TokenDataset&, int64_t steps) = nullptr;
  // A step in which they wait for each other, and sums take next to no time.
  std::unique_ptr<SharedStep> (*lockstep)(DataParallel&, ParameterStore&,
                                          const TrainConfig&) = nullptr;
};

void set_bench_exchange(BenchExchange);
}  // namespace weft
