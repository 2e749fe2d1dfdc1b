// SPDX-License-Identifier: MIT
// Sound drawn by a model, as WAV files: `sample --out F.wav`.
#pragma once

#include "train/sampling/extension.h"

namespace weft {
class SoundSamples : public SampleExtension {
 public:
  void add_options(CLI::App&) override;
  bool asked(const SampleArguments&, const Config&) const override;
  void sample(SampleArguments&, LoadedModel&, Progress&) override;
  bool preview(Device&, Model&, const Config&, const std::string& stem,
               const OnPositions&) const override;

  int64_t rate = 0;  // samples a second; 0: those of the data file
};
}  // namespace weft
