// SPDX-License-Identifier: MIT
// What parts add to the program `evaluate`: options, further evaluations, and what is made of the
// losses.
#pragma once

#include "src/files/overwrites.h"
#include "train/evaluation/evaluator.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weft {
class Progress;

// One of the evaluations that a person asked for.
struct EvaluateVariant {
  std::string name;                 // for people and in the JSON line
  std::unique_ptr<ItemView> items;  // null: the data is a stream
};

class EvaluateExtension {
 public:
  virtual ~EvaluateExtension() = default;

  virtual void add_options(CLI::App&) {}

  // The files that its options ask to write.
  virtual std::vector<OutputOption> outputs() const { return {}; }

  // The evaluations that the options ask for; none: a plain one. Throws Error when they do not fit
  // the data.
  virtual std::vector<EvaluateVariant> variants(const Config&, const TokenDataset&) { return {}; }

  // Before each of `count` evaluations: what is called for its windows; empty: nothing.
  virtual OnLosses listener(const Config&, const TokenDataset&, int64_t /*count*/) { return {}; }

  virtual void finish(Progress&) {}  // behind each evaluation, on rank 0
};

// The table: a part adds a row, which makes the extension of one call of the program.
using MakeEvaluateExtension = std::function<std::shared_ptr<EvaluateExtension>()>;
void add_evaluate_extension(MakeEvaluateExtension);
std::vector<std::shared_ptr<EvaluateExtension>> evaluate_extensions();
}  // namespace weft
