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

void Laps::lap(const char* part) {
  const double now = watch_.seconds();
  parts_.emplace_back(part, now - last_);
  last_ = now;
}

std::string Laps::text() const {
  std::string text;
  for (const auto& [part, seconds] : parts_)
    text += str(text.empty() ? "" : ", ", part, " ", fixed_text(seconds, 2));
  return text;
}

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
