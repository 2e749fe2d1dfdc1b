// SPDX-License-Identifier: MIT
#include "train/trainer/metrics.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numbers>

#include "kernels/view.h"
#include "src/files/files.h"

namespace weft {
namespace {

void add_number(std::string& out, const char* key, double value) {
  char text[64] = "null";
  if (std::isfinite(value)) std::snprintf(text, sizeof text, "%.9g", value);
  out += str(out.empty() ? "{" : ", ", '"', key, "\": ", text);
}

void add_evaluation(std::string& out, const StepMetrics& m) {
  if (m.valid_bits) add_number(out, "valid_bits", *m.valid_bits);
  if (m.valid_bits_ema) add_number(out, "valid_bits_ema", *m.valid_bits_ema);
  if (m.valid_tokens) add_number(out, "valid_tokens", static_cast<double>(*m.valid_tokens));
}

// How the line of a step ends whose evaluation was given up.
constexpr const char* kGivenUp = ", \"valid_bits\": null}";

// The whole lines of `history` whose step is at most `last_step`. Error where it is there and cannot be read.
std::string lines_up_to(const std::string& history, std::int64_t last_step, std::string& last_line) {
  std::istringstream in;
  if (std::filesystem::exists(history)) in.str(read_text(history, std::int64_t{1} << 40));
  std::string kept;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const auto step = json_number(line, "step");
    if (!step || line.back() != '}' || *step > static_cast<double>(last_step)) continue;
    kept += line + "\n";
    last_line = line;
  }
  return kept;
}

}  // namespace

double StepMetrics::bits() const { return loss / std::numbers::ln2; }

std::string to_json(const StepMetrics& m) {
  std::string out;
  add_number(out, "step", static_cast<double>(m.step));
  add_number(out, "loss", m.loss);
  add_number(out, "bits", m.bits());
  add_number(out, "lr", m.lr);
  add_number(out, "grad_norm", m.grad_norm);
  add_number(out, "tokens_per_s", m.tokens_per_s);
  add_number(out, "mfu", m.mfu);
  add_number(out, "context", static_cast<double>(m.context));
  add_number(out, "elapsed_s", m.elapsed_s);
  if (m.loss_scale) add_number(out, "loss_scale", *m.loss_scale);
  if (m.skipped) add_number(out, "skipped", static_cast<double>(*m.skipped));
  add_evaluation(out, m);
  return out + "}";
}

std::optional<double> json_number(const std::string& line, const std::string& key) {
  const std::string quoted = str('"', key, "\": ");
  const std::size_t at = line.find(quoted);
  if (at == std::string::npos) return std::nullopt;
  const char* begin = line.c_str() + at + quoted.size();
  char* end = nullptr;
  const double value = std::strtod(begin, &end);
  return end == begin ? std::nullopt : std::optional<double>(value);
}

MetricsLog::MetricsLog(std::string path, const std::string& history, std::int64_t resumed_step)
    : path_(std::move(path)) {
  std::string kept = resumed_step > 0 ? lines_up_to(history, resumed_step, last_line_) : "";
  lacks_evaluation_ =
      last_line_.ends_with(kGivenUp) && json_number(last_line_, "step") == static_cast<double>(resumed_step);
  if (lacks_evaluation_) kept.resize(kept.size() - last_line_.size() - 1);
  write_whole_file(path_, [&](std::ostream& out) { out << kept; });
}

double MetricsLog::elapsed_s(std::int64_t resumed_step, std::int64_t tokens_per_step) const {
  const auto step = json_number(last_line_, "step"), elapsed = json_number(last_line_, "elapsed_s"),
             rate = json_number(last_line_, "tokens_per_s");
  if (!step || !elapsed) return 0;
  const double tokens = (static_cast<double>(resumed_step) - *step) * static_cast<double>(tokens_per_step);
  return *elapsed + (rate && *rate > 0 ? tokens / *rate : 0);
}

void MetricsLog::append(const StepMetrics& metrics) { append_line(to_json(metrics)); }

void MetricsLog::append_evaluation(const StepMetrics& metrics) {
  std::string line = last_line_.substr(0, last_line_.size() - std::string(kGivenUp).size());
  add_evaluation(line, metrics);
  append_line(line + "}");
  lacks_evaluation_ = false;
}

void MetricsLog::append_line(const std::string& line) const {
  std::ofstream out(path_, std::ios::binary | std::ios::app);
  out << line + "\n" << std::flush;
  if (!out) fail("cannot write ", path_, ": is the disk full?");
}

}  // namespace weft
