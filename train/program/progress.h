// SPDX-License-Identifier: MIT
// What a person watches: lines, a passing line on a terminal, and numbers in a readable form.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace weft {
std::string count_text(double count);       // "950", "48.1k", "1.52M"
std::string duration_text(double seconds);  // "0:07", "12:34", "1:02:03"
std::string fixed_text(double value, int digits);
std::string bar_text(int64_t done, int64_t all, double seconds);  // "[##..]  50%  0:07 left"

// A clock that can be stopped: counts only the seconds between start() and stop().
class Stopwatch {
 public:
  explicit Stopwatch(bool running = false) {
    if (running) start();
  }

  void start();
  void stop();
  double seconds() const;

  void set(double seconds) { sum_ = seconds; }

 private:
  using Clock = std::chrono::steady_clock;
  double sum_ = 0;
  Clock::time_point since_{};
  bool running_ = false;
};

// Divides the time since its construction into parts, one after the other.
class Laps {
 public:
  void lap(const char* part);  // books the time since the last call on `part`, a string literal

  template <class T>
  T lap(const char* part, T made) {
    lap(part);
    return made;
  }

  double last() const { return last_; }  // seconds from construction to the last call

  const std::vector<std::pair<const char*, double>>& parts() const { return parts_; }

  std::string text() const;  // "device 0.31, weights 0.20"

 private:
  Stopwatch watch_{true};
  double last_ = 0;
  std::vector<std::pair<const char*, double>> parts_;  // seconds of each
};

class Progress {
 public:
  // `terminal`: passing lines are shown and overwritten; otherwise they are left out. `file`: the
  // file descriptor behind `out`. When its reader is gone, stderr says so once, and `file` becomes
  // /dev/null.
  Progress(std::ostream& out, bool terminal, int file = -1)
      : out_(out),
        terminal_(terminal),
        file_(file) {}

  void line(const std::string& text);
  void passing(const std::string& text);  // at most five a second
  void clear();                           // removes the passing line

 private:
  void put(const std::string& text);

  std::ostream& out_;
  bool terminal_, passing_shown_ = false;
  int file_;
  std::chrono::steady_clock::time_point last_passing_{};
};
}  // namespace weft
