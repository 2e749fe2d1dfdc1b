// SPDX-License-Identifier: MIT
// From the vectors of a batch to tensors.
#include "train/device_batch.h"

namespace weft {

void DeviceBatch::upload(const HostBatch& batch, std::int64_t count, std::int64_t context) {
  const bool first = !sequences_.tokens;
  const auto fill = [&](Tensor& tensor, const std::vector<std::int32_t>& host, const Shape& shape) {
    if (first && !host.empty()) tensor = Tensor(*device_.pool, shape, DType::i32, name_);
    WEFT_CHECK(static_cast<std::size_t>(tensor ? tensor.size() : 0) == host.size(), "a batch with ",
               host.size(), " numbers where the first one had ", shape_text(tensor));
    if (tensor) device_.upload_async(tensor.view().data, host.data(), host.size() * sizeof(std::int32_t));
  };
  const auto kinds = static_cast<std::int64_t>(batch.conditions.size()) / count;
  fill(sequences_.tokens, batch.tokens, {count, context});
  fill(sequences_.offsets, batch.offsets, {count});
  fill(sequences_.positions, batch.positions, {count, context});
  fill(sequences_.conditions, batch.conditions, {count, kinds});
}

}  // namespace weft
