// SPDX-License-Identifier: MIT
// What the evaluations of a run say, read from its metrics.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {
// The whole lines of a metrics.jsonl; one that is still being written is left out.
std::vector<std::string> metrics_lines(const std::string& text);

// Bits of validation (of the moving average where one is kept), and mean bits of the batches.
struct Validation {
  int64_t best_step = 0;  // of the lowest validation; of equal ones the first
  double best = 0, last = 0;
  // Of the lines behind the best step, and of as many lines up to it; NaN: there are none behind.
  double batches_now = 0, batches_then = 0;

  // By more than the half percent that evaluations differ by, while the batches got easier.
  bool rises_while_training_falls() const {
    return last > 1.005 * best && batches_now < batches_then;
  }
};

// Nothing where no evaluation was finished.
std::optional<Validation> validation_of(const std::vector<std::string>& lines);

// What rises_while_training_falls() means, and what to do. `unit`: bits_unit().
std::string overfitting_text(const Validation&, const char* unit);
}  // namespace weft
