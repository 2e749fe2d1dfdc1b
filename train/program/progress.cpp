// SPDX-License-Identifier: MIT
#include "train/program/progress.h"

#include "kernels/view.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <unistd.h>

namespace weft {
namespace {
// Differences of rounded sums: rounded parts would not add up to the rounded whole.
template <class Write>
std::string adding_up(const Laps& laps, double unit, Write write) {
  std::string text;
  double sum = 0, written = 0;
  for (const auto& [part, seconds] : laps.parts()) {
    sum += seconds;
    const double units = std::round(sum / unit) - written;
    written += units;
    text += str(text.empty() ? "" : ", ", part, " ", write(units * unit));
  }
  return text;
}
}  // namespace

std::string fixed_text(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string count_text(double count) {
  const char* unit = "";
  for (const char* larger : {"k", "M", "G", "T"}) {
    if (std::abs(count) < 999.5) break;
    count /= 1000;
    unit = larger;
  }
  const int digits = *unit == '\0' || std::abs(count) >= 99.95 ? 0
                     : std::abs(count) >= 9.995                ? 1
                                                               : 2;
  return fixed_text(count, digits) + unit;
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<long long>(std::llround(seconds));
  char text[64];
  if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  }
  return text;
}

std::string bar_text(int64_t done, int64_t all, double seconds) {
  constexpr int64_t kCells = 30;
  const double share = static_cast<double>(done) / static_cast<double>(all);
  const auto full = static_cast<int64_t>(share * kCells);
  std::string text = "[";
  for (int64_t i = 0; i < kCells; ++i) text += i < full ? '#' : '.';
  return str(text, "] ", fixed_text(100 * share, 0), "%  ",
             duration_text(seconds / share - seconds), " left");
}

void Stopwatch::start() {
  if (running_) return;
  since_ = Clock::now();
  running_ = true;
}

void Stopwatch::stop() {
  sum_ = seconds();
  running_ = false;
}

double Stopwatch::seconds() const {
  return running_ ? sum_ + std::chrono::duration<double>(Clock::now() - since_).count() : sum_;
}

void Laps::lap(const std::string& part) { add(part, watch_.seconds() - last_); }

void Laps::add(const std::string& part, double seconds) {
  last_ += seconds;
  for (auto& [name, sum] : parts_)
    if (name == part) {
      sum += seconds;
      return;
    }
  parts_.emplace_back(part, seconds);
}

double Laps::of(const std::string& part) const {
  for (const auto& [name, seconds] : parts_)
    if (name == part) return seconds;
  return 0;
}

std::string Laps::text() const {
  return adding_up(*this, 0.01, [](double seconds) { return fixed_text(seconds, 2); });
}

std::string Laps::durations() const { return adding_up(*this, 1, duration_text); }

void Progress::line(const std::string& text) {
  clear();
  put(text + '\n');
}

void Progress::put(const std::string& text) {
  errno = 0;
  if (out_ << text << std::flush || file_ < 0 || (errno != EPIPE && errno != EIO)) return;
  std::cerr << "warning: the output goes nowhere from here on (" << std::strerror(errno)
            << "); the work goes on" << std::endl;
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) dup2(nowhere, file_), close(nowhere);
  out_.clear();
}

void Progress::passing(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || (passing_shown_ && now - last_passing_ < std::chrono::milliseconds(200)))
    return;
  put("\r\033[K" + text);
  passing_shown_ = true;
  last_passing_ = now;
}

void Progress::clear() {
  if (passing_shown_) put("\r\033[K");
  passing_shown_ = false;
}
}  // namespace weft
