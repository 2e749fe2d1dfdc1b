// SPDX-License-Identifier: MIT
// Sequences in device memory that stays in place, batch after batch: a captured graph fills and reads it.
#pragma once

#include "data/batch_source.h"
#include "src/device.h"
#include "src/ops.h"

namespace weft {

class DeviceBatch {
 public:
  DeviceBatch(Device& device, const char* name) : device_(device), name_(name) {}

  // Makes tensors for batches like this one: count sequences of `context` tokens.
  void make(const HostBatch&, std::int64_t count, std::int64_t context);
  void check(const HostBatch&) const;  // throws Error unless parts and sizes are those of the first
  // After check(). The host's memory may change afterwards; in a GraphedStep, as Device::upload_async says.
  void upload(const HostBatch&);
  void reset() { sequences_ = Sequences(Tensor()); }
  bool made() const { return static_cast<bool>(sequences_.tokens); }
  const Sequences& sequences() const { return sequences_; }

 private:
  Device& device_;
  const char* name_;
  Sequences sequences_{Tensor()};
};

}  // namespace weft
