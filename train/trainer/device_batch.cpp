// SPDX-License-Identifier: MIT
#include "train/trainer/device_batch.h"

namespace weft {

void DeviceBatch::make(const HostBatch& batch, std::int64_t count, std::int64_t context) {
  const auto tensor_for = [&](const std::vector<std::int32_t>& host, const Shape& shape) {
    return host.empty() ? Tensor() : Tensor(*device_.pool, shape, DType::i32, name_);
  };
  const auto kinds = static_cast<std::int64_t>(batch.conditions.size()) / count;
  sequences_.tokens = tensor_for(batch.tokens, {count, context});
  sequences_.offsets = tensor_for(batch.offsets, {count});
  sequences_.positions = tensor_for(batch.positions, {count, context});
  sequences_.conditions = tensor_for(batch.conditions, {count, kinds});
}

void DeviceBatch::check(const HostBatch& batch) const {
  const auto same = [](const Tensor& tensor, const std::vector<std::int32_t>& host) {
    WEFT_CHECK(static_cast<std::size_t>(tensor ? tensor.size() : 0) == host.size(), "a batch with ",
               host.size(), " numbers where the first one had ", shape_text(tensor));
  };
  same(sequences_.tokens, batch.tokens);
  same(sequences_.offsets, batch.offsets);
  same(sequences_.positions, batch.positions);
  same(sequences_.conditions, batch.conditions);
}

void DeviceBatch::upload(const HostBatch& batch) {
  check(batch);
  const auto fill = [&](const Tensor& tensor, const std::vector<std::int32_t>& host) {
    if (tensor) device_.upload_async(tensor.view().data, host.data(), host.size() * sizeof(std::int32_t));
  };
  fill(sequences_.tokens, batch.tokens);
  fill(sequences_.offsets, batch.offsets);
  fill(sequences_.positions, batch.positions);
  fill(sequences_.conditions, batch.conditions);
}

}  // namespace weft
