// SPDX-License-Identifier: MIT
#include "train/trainer/metrics.h"

#include <unistd.h>

#include <chrono>
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

// ---- EventFile ----

namespace {

std::string little_endian(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
  return out;
}

// Fields of a message: number and wire type, then the value.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  return out + static_cast<char>(value);
}
std::string field(int number, const std::string& bytes) {
  return varint((number << 3) | 2) + varint(bytes.size()) + bytes;
}
std::string field(int number, std::int64_t value) {
  return varint(number << 3) + varint(static_cast<std::uint64_t>(value));
}
std::string field(int number, double value) {
  return varint((number << 3) | 1) + little_endian(std::bit_cast<std::uint64_t>(value), 8);
}
std::string field(int number, float value) {
  return varint((number << 3) | 5) + little_endian(std::bit_cast<std::uint32_t>(value), 4);
}

// CRC-32C (Castagnoli, reflected 0x82f63b78), masked as the format wants it.
std::uint32_t masked_crc(const std::string& bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string scalar(const char* tag, double value) {
  return std::isfinite(value) ? field(1, field(1, std::string(tag)) + field(2, static_cast<float>(value)))
                              : "";
}

}  // namespace

EventFile::EventFile(const std::string& folder) {
  const std::filesystem::path inside = std::filesystem::path(folder) / "tensorboard";
  make_folder(inside.string());
  char host[256] = "host";
  gethostname(host, sizeof host - 1);
  path_ =
      (inside / str("events.out.tfevents.", static_cast<std::int64_t>(wall_time()), ".", host, ".", getpid()))
          .string();
  write(field(1, wall_time()) + field(3, std::string("brain.Event:2")));
}

void EventFile::append(const StepMetrics& m) const {
  std::string values = scalar("bits/train", m.bits()) + scalar("learning_rate", m.lr) +
                       scalar("gradient_norm", m.grad_norm) + scalar("tokens_per_s", m.tokens_per_s) +
                       scalar("mfu", m.mfu);
  if (m.valid_bits) values += scalar("bits/valid", *m.valid_bits);
  if (m.valid_bits_ema) values += scalar("bits/valid_ema", *m.valid_bits_ema);
  if (m.loss_scale) values += scalar("loss_scale", *m.loss_scale);
  write(field(1, wall_time()) + field(2, m.step) + field(5, values));
}

void EventFile::write(const std::string& event) const {
  const std::string length = little_endian(event.size(), 8);
  const std::string record =
      length + little_endian(masked_crc(length), 4) + event + little_endian(masked_crc(event), 4);
  std::ofstream out(path_, std::ios::binary | std::ios::app);
  out << record << std::flush;
  if (!out) fail("cannot write ", path_, ": is the disk full?");
}

}  // namespace weft
