// SPDX-License-Identifier: MIT
// What parts add to the program `sample`: samples that are no text.
#pragma once

#include "src/files/overwrites.h"
#include "train/program/loaded_model.h"
#include "train/sampling/sampler.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weft {
class Progress;
struct SampleArguments;

class SampleExtension {
 public:
  virtual ~SampleExtension() = default;

  virtual void add_options(CLI::App&) {}

  // The files that its options ask to read, and those besides --out to write.
  virtual std::vector<std::string> inputs() const { return {}; }

  virtual std::vector<OutputOption> outputs(const SampleArguments&) const { return {}; }

  // Whether this model and these arguments ask for its samples. Throws Error for options of its own
  // that go with a text alone.
  virtual bool asked(const SampleArguments&, const Config&) const = 0;
  virtual void sample(SampleArguments&, LoadedModel&, Progress&) = 0;

  // Draws a few samples of a model in training, into a file whose path begins with `stem`; false:
  // it draws no such model. `on_positions` may throw to give up.
  virtual bool preview(Device&, Model&, const Config&, const std::string& /*stem*/,
                       const OnPositions& /*on_positions*/) const {
    return false;
  }
};

// The table: a part adds a row, which makes the extension of one call of the program.
using MakeSampleExtension = std::function<std::shared_ptr<SampleExtension>()>;
void add_sample_extension(MakeSampleExtension);
std::vector<std::shared_ptr<SampleExtension>> sample_extensions();
}  // namespace weft
