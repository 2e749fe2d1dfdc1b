// SPDX-License-Identifier: MIT
// One pattern at one shape for `bench attention`: its tensors, its launches, and whether they are right.
#pragma once

#include <memory>
#include <string>

#include "kernels/attention/attention.h"
#include "src/attention_maps.h"
#include "src/device.h"
#include "src/patterns/pattern.h"
#include "train/attention/spot_check.h"
#include "train/bench/bench.h"
#include "train/bench/table.h"
#include "train/program/json.h"

namespace weft {

// One shape of attention, with the numbers that its patterns take.
struct AttentionBenchShape {
  std::string name;
  std::int64_t batch = 1, heads = 1, length = 1, qk_size = 64, v_size = 64;  // B, H, n, Dqk, Dv
  std::int64_t stride = 128, c = 32;
  std::vector<std::string> modes = {"all", "local", "strided", "fixed", "merged_strided"};
};

// Random inputs, and outputs, of one shape and type; patterns share them.
struct AttentionWorkload {
  AttentionWorkload(Device&, const AttentionBenchShape&, DType);
  DType dtype() const { return tensors.y.dtype(); }
  AttentionTensors tensors;
  Tensor delta;
};

// A pattern of a workload. Both outlive it.
class AttentionBenchCase {
 public:
  // Runs both passes once; with options.verify, Error if a result is further from f64 than rounding explains.
  AttentionBenchCase(Device&, const AttentionBenchShape&, const std::string& mode, const AttentionWorkload&,
                     const BenchAttentionOptions&);
  void run_forward() const { launch(device_.queue, forward_); }
  void run_both() const {
    launch(device_.queue, forward_);
    launch(device_.queue, backward_);
  }

  std::string form;                          // the kernels that ran
  double pairs = 0, waste = 0, error = 0;    // error: the largest, relative to the largest number of a row
  double forward_bytes = 0, both_bytes = 0;  // of the tensors

 private:
  Device& device_;
  std::unique_ptr<AttentionPattern> pattern_;
  DeviceMaps maps_;
  AttentionForward forward_;
  AttentionBackward backward_;
  Tensor scratch_;
};

// What a JSON row says of its shape and pattern.
JsonMembers shape_members(const AttentionBenchShape&, const std::string& mode);

// `--f16-against-bf16`: two rows a pattern, forward and forward + backward, each with both types. Sustained:
// each type in turn runs for 0.3 s, then 0.3 s are timed, in four rounds. Rested: single runs in turn after
// options.pause_ms (20 if 0).
void bench_f16_against_bf16(Device&, const AttentionBenchShape&, const std::vector<std::string>& modes,
                            const BenchAttentionOptions&, std::ostream& out);
const Columns& f16_against_bf16_columns();

}  // namespace weft
