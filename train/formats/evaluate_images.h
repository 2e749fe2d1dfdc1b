// SPDX-License-Identifier: MIT
// `evaluate --augmentations`: images under chosen transforms.
#pragma once

#include "train/evaluation/extension.h"

#include <string>
#include <vector>

namespace weft {
class ImageVariants : public EvaluateExtension {
 public:
  void add_options(CLI::App&) override;
  std::vector<EvaluateVariant> variants(const Config&, const TokenDataset&) override;

  std::string augmentations;  // "all", or one combination: "rotation=1,color=2"
};
}  // namespace weft
