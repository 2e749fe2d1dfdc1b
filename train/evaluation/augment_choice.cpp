// SPDX-License-Identifier: MIT
#include "train/evaluation/augment_choice.h"

#include <algorithm>

#include "kernels/view.h"
#include "src/config/names.h"

namespace weft {
namespace {

constexpr std::int64_t kMostChoices = 10000;

std::string known_kinds(const std::vector<Condition>& kinds) {
  if (kinds.empty()) return "this model was trained without augmentation";
  return "this model knows " + joined(kinds, ", ", [](const Condition& kind) {
           return str(name_of(kind.kind), "=0 to ", kind.values - 1);
         });
}

}  // namespace

AugmentChoice parse_choice(const std::string& text, const Config& config) {
  const std::vector<Condition> kinds = augmentations(config);
  AugmentChoice choice;
  if (text == "none") return choice;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, equals);
    const auto kind = std::ranges::find_if(kinds, [&](const auto& c) { return name == name_of(c.kind); });
    const auto value =
        number_in<std::int32_t>(std::string_view(part).substr(std::min(equals + 1, part.size())));
    if (kind == kinds.end() || !value || *value < 0 || *value >= kind->values)
      fail("augmentation \"", part, "\": expected KIND=VALUE as in rotation=1; ", known_kinds(kinds));
    choice[kind->kind] = *value;
  }
  return choice;
}

std::string choice_text(const AugmentChoice& choice, const Config& config) {
  const std::string text = joined(augmentations(config), ",", [&](const Condition& kind) {
    return str(name_of(kind.kind), "=", choice[kind.kind]);
  });
  return text.empty() ? "none" : text;
}

std::vector<AugmentChoice> all_choices(const Config& config) {
  std::vector<AugmentChoice> choices(1);
  for (const Condition& kind : augmentations(config)) {
    if (static_cast<std::int64_t>(choices.size()) > kMostChoices / kind.values)
      fail("there are more than ", kMostChoices, " combinations of augmentations; name one instead of all");
    std::vector<AugmentChoice> more;
    for (const AugmentChoice& choice : choices)
      for (std::int32_t value = 0; value < kind.values; ++value) {
        more.push_back(choice);
        more.back()[kind.kind] = value;
      }
    choices = std::move(more);
  }
  return choices;
}

}  // namespace weft
