// SPDX-License-Identifier: MIT
#include "train/trainer/validation.h"

#include "src/config/names.h"
#include "train/program/progress.h"
#include "train/trainer/run_folder.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace weft {
namespace {
// Of the lines first .. first + count - 1; NaN for none.
double mean_bits(const std::vector<std::string>& lines, std::size_t first, std::size_t count) {
  double sum = 0;
  for (std::size_t i = first; i < first + count; ++i)
    sum += json_number(lines[i], "bits").value_or(NAN);
  return sum / static_cast<double>(count);
}
}  // namespace

std::vector<std::string> metrics_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(text.substr(at, end - at));
  return lines;
}

std::optional<Validation> validation_of(const std::vector<std::string>& lines) {
  std::optional<Validation> found;
  std::size_t best_line = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto weights = json_number(lines[i], "valid_bits"),
               average = json_number(lines[i], "valid_bits_ema"),
               bits = average ? average : weights;
    if (!bits) continue;
    if (!found) found.emplace().best = INFINITY;
    found->last = *bits;
    if (!(*bits < found->best)) continue;
    found->best = *bits;
    found->best_step = static_cast<int64_t>(json_number(lines[i], "step").value_or(0));
    best_line = i;
  }
  if (!found) return std::nullopt;
  const std::size_t behind = lines.size() - 1 - best_line, before = std::min(behind, best_line + 1);
  found->batches_now = mean_bits(lines, best_line + 1, behind);
  found->batches_then = mean_bits(lines, best_line + 1 - before, before);
  return found;
}

std::string overfitting_text(const Validation& v, const char* unit) {
  return str("validation rises while training falls: ", fixed_text(v.best, 4), " ", unit,
             " at step ", v.best_step, ", now ", fixed_text(v.last, 4), "; batches ",
             fixed_text(v.batches_then, 4), ", since then ", fixed_text(v.batches_now, 4),
             ". The model learns its training data by heart: take best.h5, and more data, fewer "
             "steps or model.dropout");
}
}  // namespace weft
