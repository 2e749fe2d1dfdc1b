// SPDX-License-Identifier: MIT
// The part formats: images and sound, their files, training on them and drawing them.
#include "data/augment/image_items.h"
#include "src/config/conditions.h"
#include "src/config/config.h"
#include "src/config/names.h"
#include "train/formats/evaluate_images.h"
#include "train/formats/formats.h"
#include "train/formats/heat_map.h"
#include "train/formats/sample_images.h"
#include "train/formats/sample_sound.h"
#include "train/program/progress.h"

#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
std::string augment_line(const Config& config) {
  const AugmentConfig& a = config.augment;
  const std::vector<Condition> kinds = augmentations(config), told = conditions(config);
  std::string text = joined(
      kinds, ", ", [](const Condition& kind) { return str(kind.name, " (", kind.values, ")"); });
  if (a.flip) text += text.empty() ? "flip" : ", flip";
  if (text.empty()) return "augment     none, 1 start vector";
  if (!config.data.mix.empty())
    text += str("; ", fixed_text(100 * config.data.mix_rate, 1), "% from ", config.data.mix);
  if (a.unaugmented_rate > 0)
    text += str("; ", fixed_text(100 * a.unaugmented_rate, 1), "% left as they are");
  return str("augment     ", text, told.empty() ? "; the model is not told, 1 start vector" : "; ",
             told.empty() ? "" : str(condition_rows(told), " start vectors"));
}
}  // namespace

void register_formats() {
  ItemKind images = image_items();
  images.summary = augment_line;
  add_config_extension(image_keys());
  add_item_kind(images);
  add_prepare_commands(prepare_formats());
  add_evaluate_extension([] { return std::make_shared<ImageVariants>(); });
  add_evaluate_extension([] { return std::make_shared<HeatMapExtension>(); });
  add_sample_extension([] { return std::make_shared<ImageSamples>(); });
  add_sample_extension([] { return std::make_shared<SoundSamples>(); });
}
}  // namespace weft
