// SPDX-License-Identifier: MIT
// What training reads for a step: windows of a stream, or whole images, mixed and augmented. A pure function
// of (seed, step, index in the step), so that one integer resumes it and any number of processes agrees.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/augment/augment.h"
#include "data/dataset.h"

namespace weft {

// Sequences in host memory; see Sequences in src/ops.h. Empty where they are absent.
struct HostBatch {
  std::vector<std::int32_t> tokens, offsets, positions, conditions;
};

// The images that model.position_axes describe; Error unless they have rows, columns and channels.
ImageShape image_shape(const Config&);

class BatchSource {
 public:
  // `mix`: the data of data.mix, or null. Throws Error, naming keys and shapes, when data and config do not
  // fit: images whose tokens are not model.context, a mix of another shape, a stream to be augmented ...
  BatchSource(const Config&, const TokenDataset& train, const TokenDataset* mix);

  // Sequences first .. first + count - 1 of update `step`, `context` tokens each.
  void read(std::int64_t step, std::int64_t first, std::int64_t count, std::int64_t context,
            HostBatch& out) const;

 private:
  void read_stream(std::int64_t step, std::int64_t first, std::int64_t count, std::int64_t context,
                   HostBatch&) const;
  void read_image(std::int64_t index, std::int64_t place, HostBatch&) const;

  Config config_;
  const TokenDataset& train_;
  const TokenDataset* mix_;
  Batcher batcher_;
  std::optional<Augmenter> augmenter_;  // of images
};

}  // namespace weft
