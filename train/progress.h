// SPDX-License-Identifier: MIT
// What a person watches: lines, a passing line on a terminal, and numbers in a readable form.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

namespace weft {

std::string count_text(double count);       // "950", "48.1k", "1.52M"
std::string duration_text(double seconds);  // "0:07", "12:34", "1:02:03"
std::string fixed_text(double value, int digits);
// "[#####.....]  50%  0:07 left" after `seconds`.
std::string bar_text(std::int64_t done, std::int64_t all, double seconds);

// A clock that can be stopped: counts only the seconds between start() and stop().
class Stopwatch {
 public:
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

class Progress {
 public:
  // `terminal`: passing lines are shown (and overwritten); otherwise they are left out.
  Progress(std::ostream& out, bool terminal) : out_(out), terminal_(terminal) {}
  void line(const std::string& text);
  void passing(const std::string& text);  // at most five a second
  void clear();                           // removes the passing line

 private:
  std::ostream& out_;
  bool terminal_;
  bool passing_shown_ = false;
  std::chrono::steady_clock::time_point last_passing_{};
};

}  // namespace weft
