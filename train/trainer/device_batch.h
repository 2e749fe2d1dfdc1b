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
  void make(const HostBatch& batch, std::int64_t count, std::int64_t context) {
    const auto tensor_for = [&](const std::vector<std::int32_t>& host, const Shape& shape) {
      return host.empty() ? Tensor() : Tensor(*device_.pool, shape, DType::i32, name_);
    };
    sequences_.tokens = tensor_for(batch.tokens, {count, context});
    sequences_.offsets = tensor_for(batch.offsets, {count});
    sequences_.positions = tensor_for(batch.positions, {count, context});
    sequences_.conditions = tensor_for(batch.conditions, {count, std::ssize(batch.conditions) / count});
  }
  // Throws Error unless parts and sizes are those of the first.
  void check(const HostBatch& batch) const {
    for_each_part(batch, [](const Tensor& tensor, const std::vector<std::int32_t>& host) {
      WEFT_CHECK((tensor ? tensor.size() : 0) == std::ssize(host), "a batch with ", host.size(),
                 " numbers where the first one had ", shape_text(tensor));
    });
  }
  // After check(). The host's memory may change afterwards; in a GraphedStep, as Device::upload_async says.
  void upload(const HostBatch& batch) {
    check(batch);
    for_each_part(batch, [&](const Tensor& tensor, const std::vector<std::int32_t>& host) {
      if (tensor) device_.upload_async(tensor.view().data, host.data(), host.size() * sizeof host[0]);
    });
  }
  void reset() { sequences_ = Sequences(Tensor()); }
  bool made() const { return static_cast<bool>(sequences_.tokens); }
  const Sequences& sequences() const { return sequences_; }

 private:
  template <class F>
  void for_each_part(const HostBatch& batch, const F& f) const {
    f(sequences_.tokens, batch.tokens);
    f(sequences_.offsets, batch.offsets);
    f(sequences_.positions, batch.positions);
    f(sequences_.conditions, batch.conditions);
  }

  Device& device_;
  const char* name_;
  Sequences sequences_{Tensor()};
};

}  // namespace weft
