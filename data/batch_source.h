// SPDX-License-Identifier: MIT
// The batch of an update: windows of a stream of tokens, or whole items. A pure function of (seed,
// step, index in the batch): runs resume from a step, and processes share a batch.
#pragma once

#include "data/items.h"
#include "src/device.h"
#include "src/ops.h"

#include <memory>
#include <span>
#include <vector>

namespace weft {
// Windows of a stream, at uniformly random places.
class Batcher {
 public:
  Batcher(const TokenDataset& data, uint64_t seed)
      : data_(data),
        seed_(seed) {}

  // Fills out (count, context) with windows first .. first + count - 1 of this step.
  void read(int64_t step, int64_t first, int64_t count, int64_t context,
            std::span<int32_t> out) const;
  // The place of window first + i in the full context: a multiple of `unit`, uniform over those
  // that fit.
  void read_offsets(int64_t step, int64_t first, int64_t context, int64_t full_context,
                    int64_t unit, std::span<int32_t> out) const;

 private:
  const TokenDataset& data_;
  uint64_t seed_;
};

class BatchSource {
 public:
  // `mix`: the data of data.mix, or null. Throws Error, naming keys and shapes, when data and
  // config differ.
  BatchSource(const Config&, const TokenDataset& train, const TokenDataset* mix);

  // Sequences first .. first + count - 1 of update `step`, `context` tokens each.
  void read(int64_t step, int64_t first, int64_t count, int64_t context, HostBatch& out) const;

 private:
  void read_windows(int64_t step, int64_t first, int64_t count, int64_t context, HostBatch&) const;

  std::shared_ptr<const Config> config_;
  Batcher batcher_;
  std::unique_ptr<ItemBatches> items_;  // null: windows of a stream
};

// Sequences in device memory that stays in place, batch after batch: a captured graph fills and
// reads it.
class DeviceBatch {
 public:
  DeviceBatch(Device& device, const char* name)
      : device_(device),
        name_(name) {}

  // Makes tensors for batches like this one: count sequences of `context` tokens.
  void make(const HostBatch& batch, int64_t count, int64_t context) {
    const auto tensor_for = [&](const std::vector<int32_t>& host, const Shape& shape) {
      return host.empty() ? Tensor() : Tensor(*device_.pool, shape, DType::i32, name_);
    };
    sequences_.tokens = tensor_for(batch.tokens, {count, context});
    sequences_.offsets = tensor_for(batch.offsets, {count});
    sequences_.positions = tensor_for(batch.positions, {count, context});
    sequences_.conditions =
        tensor_for(batch.conditions, {count, std::ssize(batch.conditions) / count});
  }

  // Throws Error unless parts and sizes are those of the first.
  void check(const HostBatch& batch) const {
    for_each_part(batch, [](const Tensor& tensor, const std::vector<int32_t>& host) {
      WEFT_CHECK((tensor ? tensor.size() : 0) == std::ssize(host), "a batch with ", host.size(),
                 " numbers where the first one had ", shape_text(tensor));
    });
  }

  // After check(). The host's memory may change afterwards; in a GraphedStep, as
  // Device::upload_async says.
  void upload(const HostBatch& batch) {
    check(batch);
    for_each_part(batch, [&](const Tensor& tensor, const std::vector<int32_t>& host) {
      if (tensor)
        device_.upload_async(tensor.view().data, host.data(), host.size() * sizeof host[0]);
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
