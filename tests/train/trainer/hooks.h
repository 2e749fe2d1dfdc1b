// SPDX-License-Identifier: MIT
// What options of parts ask of training.
#pragma once

#include "train/program/options.h"
#include "train/trainer/extension.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace weft {
// As the command line of `train` would with these words; nothing where no part has such an option.
inline std::optional<std::vector<TrainHooks>> hooks_of(std::vector<std::string> words) {
  CLI::App app;
  std::vector<HooksAsked> asked;
  for (const AddTrainOptions& add : train_options()) asked.push_back(add(app));
  std::ranges::reverse(words);  // as CLI11 takes them
  try {
    app.parse(words);
  } catch (const CLI::ExtrasError&) {
    return std::nullopt;
  }
  std::vector<TrainHooks> hooks;
  for (const HooksAsked& of_part : asked)
    if (const auto one = of_part()) hooks.push_back(*one);
  return hooks;
}
}  // namespace weft
