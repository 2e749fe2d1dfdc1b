// SPDX-License-Identifier: MIT
// The keys of images: what a model is told of them, and which values fit together.
#include "src/config/config.h"

#include "data/augment/image_items.h"
#include "kernels/view.h"
#include "src/config/conditions.h"

#include <string>
#include <utility>
#include <vector>

namespace weft {
const char* name_of(Augment kind) {
  static constexpr const char* kNames[kAugments + 1] = {"rotation",     "color",   "transposition",
                                                        "reversal",     "jigsaw",  "randaugment",
                                                        "random_order", "dataset", "label"};
  return kNames[static_cast<int>(kind)];
}

std::vector<Condition> augmentations(const Config& config) {
  const AugmentConfig& a = config.augment;
  std::vector<Condition> kinds;
  int64_t rows = 0;
  const auto add = [&](bool used, Augment kind, int64_t values) {
    if (!used) return;
    kinds.push_back({kind, name_of(kind), values, rows});
    rows += values;
  };
  add(a.rotation, Augment::rotation, 4);
  add(a.color, Augment::color, 6);
  add(a.transposition, Augment::transposition, 2);
  add(a.reversal, Augment::reversal, 2);
  int64_t orders = 1;  // of the tiles
  for (int64_t tile = 2; tile <= a.jigsaw * a.jigsaw; ++tile) orders *= tile;
  add(a.jigsaw > 1, Augment::jigsaw, orders);
  add(a.randaugment > 0, Augment::randaugment, 2);
  add(a.random_order > 0, Augment::random_order, a.random_order + 1);
  add(!config.data.mix.empty(), Augment::dataset, 2);
  return kinds;
}

namespace {
// The kinds that the model is told, and the class of the image with data.labels.
std::vector<Condition> told_kinds(const Config& config) {
  std::vector<Condition> told;
  if (config.augment.conditional) told = augmentations(config);
  if (config.data.labels)
    told.push_back(
        {Augment::label, name_of(Augment::label), config.data.classes, condition_rows(told)});
  return told;
}

// Do transforms fit the images that model.position_axes describe?
class Check {
 public:
  Check(const Config& config, const RefuseConfig& refuse)
      : config_(config),
        refuse_(refuse) {}

  void all() const {
    const AugmentConfig& a = config_.augment;
    const auto& axes = config_.model.position_axes;
    if (a.jigsaw == 1)
      refuse({"augment.jigsaw"}, "augment.jigsaw: 1 is the whole image; 0 (off), 2 or 3");
    if (!config_.data.mix.empty() && config_.data.mix == config_.data.path)
      refuse({"data.mix", "data.path"}, "data.mix: ", config_.data.mix, " is data.path itself");
    if (config_.data.mix_items > 0 && config_.data.mix.empty())
      refuse({"data.mix_items"}, "data.mix_items: limits the images of data.mix; set that, too");
    if (!config_.data.mix.empty() && config_.data.labels)
      refuse({"data.labels", "data.mix"}, "data.labels: is for one data file; leave data.mix out");
    std::string used = a.flip ? "augment.flip" : "";
    if (config_.data.labels) used = "data.labels";
    for (const Condition& kind : augmentations(config_))
      used = kind.kind == Augment::dataset ? "data.mix" : str("augment.", name_of(kind.kind));
    if (used.empty()) return;
    const std::vector<std::string> keys = {used, "model.position_axes", "model.context"};
    if (axes.size() != 3 || axes[0] * axes[1] * axes[2] != config_.model.context)
      refuse(keys, used,
             ": is for images, whose model.position_axes are rows, columns and channels with "
             "the product model.context ",
             config_.model.context);
    if (!config_.train.context_schedule.empty())
      refuse({"train.context_schedule", used},
             "train.context_schedule: images are trained on whole; leave it out");
    if (config_.data.separator >= 0)
      refuse({"data.separator", used},
             "data.separator: parts texts into documents, and images have none; leave it out");
    image_shape(axes[0], axes[1], axes[2]);
  }

 private:
  template <class... Parts>
  void refuse(const std::vector<std::string>& keys, const Parts&... text) const {
    refuse_(keys, str(text...));
  }

  void image_shape(int64_t height, int64_t width, int64_t channels) const {
    const AugmentConfig& a = config_.augment;
    const std::string found =
        str("; model.position_axes are [", height, ", ", width, ", ", channels, "]");
    for (const auto& [on, key] :
         {std::pair{a.rotation, "augment.rotation"}, {a.transposition, "augment.transposition"}})
      if (on && height != width)
        refuse({key, "model.position_axes"}, key, ": wants as many rows as columns", found);
    if (a.color && channels != 3)
      refuse({"augment.color", "model.position_axes"}, "augment.color: wants 3 channels", found);
    if (a.jigsaw > 1 && (height % a.jigsaw != 0 || width % a.jigsaw != 0))
      refuse({"augment.jigsaw", "model.position_axes"}, "augment.jigsaw: ", a.jigsaw,
             " does not divide rows and columns", found);
  }

  const Config& config_;
  const RefuseConfig& refuse_;
};

void check_keys(const Config& config, const RefuseConfig& refuse) { Check(config, refuse).all(); }

std::string untold(const Config& config) {
  return augmentations(config).empty() ? "" : "the model is not conditioned on its augmentations";
}
}  // namespace

ConfigExtension image_keys() { return {told_kinds, check_keys, untold}; }
}  // namespace weft
