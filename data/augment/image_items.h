// SPDX-License-Identifier: MIT
// Images as the items of data (data/items.h).
#pragma once

#include "data/augment/augment.h"
#include "data/formats/image_set.h"
#include "data/items.h"
#include "src/config/conditions.h"

#include <memory>
#include <span>

namespace weft {
// All images under the same transforms.
class ImageView : public ItemView {
 public:
  ImageView(const Config&, const TokenDataset&, const AugmentChoice&);

  int64_t conditions() const override {
    return static_cast<int64_t>(augmenter_.conditions().size());
  }

  bool moves_positions() const override { return augmenter_.moves_positions(); }

  void apply(int64_t item, std::span<int32_t> tokens, std::span<int32_t> positions,
             std::span<int32_t> conditions) const override;

 private:
  Augmenter augmenter_;
  AugmentChoice choice_;
};

// Null for a stream. Throws Error when the model is made for other data.
std::unique_ptr<ItemView> image_view(const Config&, const TokenDataset&, const AugmentChoice&);

// The rows of the part; the summary of image_items() is missing.
ItemKind image_items();
ConfigExtension image_keys();
}  // namespace weft
