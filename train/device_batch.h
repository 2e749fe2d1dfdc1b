// SPDX-License-Identifier: MIT
// Sequences in device memory that stays where it is, filled batch after batch: a captured graph reads each.
#pragma once

#include "data/batch_source.h"
#include "src/device.h"
#include "src/ops.h"

namespace weft {

class DeviceBatch {
 public:
  DeviceBatch(Device& device, const char* name) : device_(device), name_(name) {}

  // Tensors are made for the first batch (count sequences of `context` tokens); later ones must have the same
  // parts and sizes until reset(). The host's memory may change as soon as this returns.
  void upload(const HostBatch&, std::int64_t count, std::int64_t context);
  void reset() { sequences_ = Sequences(Tensor()); }
  const Sequences& sequences() const { return sequences_; }

 private:
  Device& device_;
  const char* name_;
  Sequences sequences_{Tensor()};
};

}  // namespace weft
