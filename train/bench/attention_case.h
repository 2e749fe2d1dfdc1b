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
#include "train/bench/attention.h"

namespace weft {

// Random inputs, and outputs, of one shape and type; patterns share them.
class AttentionWorkload {
 public:
  AttentionWorkload(Device&, const AttentionBenchShape&, DType);
  const AttentionTensors& tensors() const { return x_; }
  DType dtype() const { return x_.y.dtype(); }
  AttentionForward forward(const AttentionMaps&, AttentionForm) const;
  AttentionBackward backward(const AttentionMaps&, AttentionForm) const;  // without scratch

 private:
  HeadsView q(const Tensor& t) const { return heads_of(t, 0, x_.heads, x_.qk_size); }
  HeadsView k(const Tensor& t) const { return heads_of(t, x_.heads * x_.qk_size, x_.heads, x_.qk_size); }
  HeadsView v(const Tensor& t) const { return heads_of(t, 2 * x_.heads * x_.qk_size, x_.heads, x_.v_size); }
  double scale() const;
  AttentionTensors x_;
  Tensor delta_;
};

// A pattern of a workload. Both outlive it.
class AttentionBenchCase {
 public:
  // Runs both passes once. Throws Error where a result differs from f64 by more than rounding explains, if
  // `verify`.
  AttentionBenchCase(Device&, const AttentionBenchShape&, const std::string& mode, const AttentionWorkload&,
                     AttentionForm, bool verify);
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

}  // namespace weft
