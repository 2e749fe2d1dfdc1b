// SPDX-License-Identifier: MIT
// Which transforms an image gets, and their application.
#include "data/augment.h"

#include "kernels/view.h"

namespace weft {

Augmenter::Augmenter(const Config& config, const ImageShape& shape)
    : config_(config.augment),
      shape_(shape),
      kinds_(augmentations(config)),
      conditions_(weft::conditions(config)) {}

bool Augmenter::any() const { return !kinds_.empty() || config_.flip; }

AugmentChoice Augmenter::draw(std::uint64_t, std::int64_t) const { return {}; }

void Augmenter::apply(const AugmentChoice&, std::span<std::int32_t>, std::span<std::int32_t>) const {}

void Augmenter::rows(const AugmentChoice& choice, std::span<std::int32_t> out) const {
  for (std::size_t i = 0; i < conditions_.size(); ++i)
    out[i] = static_cast<std::int32_t>(conditions_[i].first_row) + choice[conditions_[i].kind];
}

bool Augmenter::moves_positions() const { return false; }

}  // namespace weft
