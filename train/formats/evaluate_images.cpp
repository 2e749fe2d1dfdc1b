// SPDX-License-Identifier: MIT
#include "train/formats/evaluate_images.h"

#include "data/augment/image_items.h"
#include "kernels/view.h"
#include "src/config/config.h"
#include "train/program/options.h"

#include <string>
#include <vector>

namespace weft {
void ImageVariants::add_options(CLI::App& app) {
  app.add_option(
      "--augmentations", augmentations,
      "images: a combination of transforms, rotation=1,color=2, or all: a result for each");
}

std::vector<EvaluateVariant> ImageVariants::variants(const Config& config,
                                                     const TokenDataset& data) {
  if (!augmentations.empty() && !data.image())
    fail("--augmentations are of images; ", data.path(), " has a stream of tokens");
  std::vector<EvaluateVariant> variants;
  if (!data.image()) return variants;
  const std::vector<AugmentChoice> choices =
      augmentations == "all" ? all_choices(config)
                             : std::vector<AugmentChoice>{parse_choice(augmentations, config)};
  for (const AugmentChoice& choice : choices)
    variants.push_back({choice_text(choice, config), image_view(config, data, choice)});
  return variants;
}
}  // namespace weft
