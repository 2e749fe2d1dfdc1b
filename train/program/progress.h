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

// Divides the time since its construction into parts.
class Laps {
 public:
  void lap(const std::string& part);  // books the time since the last call on `part`

  template <class T>
  T lap(const char* part, T made) {
    lap(part);
    return made;
  }

  void add(const std::string& part, double seconds);  // books these seconds, which follow the last

  double last() const { return last_; }  // seconds from construction to the last call

  double seconds() const { return watch_.seconds(); }  // from construction to now

  double of(const std::string& part) const;  // seconds booked on it; 0: none

  // By part, in the order of their first calls.
  const std::vector<std::pair<std::string, double>>& parts() const { return parts_; }

  // The parts as rounded numbers whose sum is last(), rounded.
  std::string text() const;       // hundredths of seconds: "device 0.31, weights 0.20"
  std::string durations() const;  // "training 1:58, evaluation 0:07"

 private:
  Stopwatch watch_{true};
  double last_ = 0;
  std::vector<std::pair<std::string, double>> parts_;  // seconds of each
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
