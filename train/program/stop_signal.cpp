// SPDX-License-Identifier: MIT
#include "train/program/stop_signal.h"

#include "kernels/interruption.h"
#include "kernels/view.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <signal.h>
#include <string>
#include <string_view>
#include <unistd.h>

namespace weft {
namespace {
constexpr unsigned kSecondsToFinish = 2;  // for the step at hand
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM};

volatile sig_atomic_t received_signal = 0, time_is_up = 0, process_is_alone = 0, process_says = 0;
Echo echo;
struct sigaction earlier[std::size(kSignals)];

std::atomic<StopSignal::Work> work_at_hand{StopSignal::Work::step};
std::atomic<int64_t> step_at_hand{0};
// One text is read while the other one is written.
char kept_texts[2][4096] = {"nothing was saved"};
std::atomic<int> kept_now{0};

// A line that a signal handler may write: no memory is had for it, and no lock.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    const std::size_t room = sizeof text_ - 1 - size_, n = std::min(text.size(), room);
    std::memcpy(text_ + size_, text.data(), n);
    size_ += n;
    return *this;
  }

  Line& operator<<(int64_t number) {
    char digits[24];
    return *this << std::string_view(digits, std::to_chars(digits, std::end(digits), number).ptr);
  }

  // Takes the place of a passing line, and of the ^C behind it.
  void write() {
    const int before = errno;
    const char* const clear = "\r\033[K";
    text_[size_] = '\n';
    if (isatty(STDERR_FILENO) != 0) static_cast<void>(!::write(STDERR_FILENO, clear, 4));
    static_cast<void>(!::write(STDERR_FILENO, text_, size_ + 1));
    errno = before;
  }

 private:
  char text_[5000];
  std::size_t size_ = 0;
};

Line& operator<<(Line& line, StopSignal::Work work) {
  using enum StopSignal::Work;
  return line << (work == step         ? "step "
                  : work == validation ? "the validation of step "
                                       : "the checkpoint of step ")
              << step_at_hand;
}

void say_first(int number) {
  if (process_says == 0 || number == SIGHUP) return;  // nobody is there to read after SIGHUP
  Line line;
  const bool saves = work_at_hand == StopSignal::Work::saving;
  line << "finishing " << work_at_hand
       << (saves ? ", then stopping; again: quit without it"
                 : ", then saving; again: quit without saving");
  line.write();
}

void say_overdue() {
  if (process_says == 0 || work_at_hand == StopSignal::Work::saving) return;
  Line line;
  line << "giving up " << work_at_hand << ", which takes longer than " << int64_t{kSecondsToFinish}
       << " s; saving what was done before";
  line.write();
}

void say_second() {
  if (process_says == 0) return;
  Line line;
  line << "quit without saving; " << kept_texts[kept_now];
  line.write();
}

void handle(int number) {
  if (number == SIGALRM) {
    time_is_up = 1;
    if (process_is_alone != 0) interrupt_requested = true;
    return say_overdue();
  }
  if (received_signal != 0) {
    if (number == SIGHUP) return;  // shell and kernel each say that the terminal is gone
    if (number == received_signal && echo.lasts()) return;
    say_second();
    _exit(128 + number);
  }
  echo.begin();
  received_signal = number;
  alarm(kSecondsToFinish);
  say_first(number);
}
}  // namespace

StopSignal::StopSignal(bool alone, bool says) {
  received_signal = 0;
  time_is_up = 0;
  process_is_alone = alone ? 1 : 0;
  process_says = says ? 1 : 0;
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &earlier[i]);
    const bool nohup = kSignals[i] == SIGHUP && earlier[i].sa_handler == SIG_IGN;
    if (!nohup) sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  alarm(0);
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &earlier[i], nullptr);
  interrupt_requested = false;
}

const char* StopSignal::received() {
  switch (received_signal) {
    case 0: return nullptr;
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case SIGTERM: return "SIGTERM";
    default: fail("signal ", received_signal, " is not handled here");
  }
}

const char* StopSignal::overdue() { return time_is_up != 0 ? received() : nullptr; }

void StopSignal::at(Work work, int64_t step) {
  work_at_hand = work;
  step_at_hand = step;
}

void StopSignal::set_kept(const std::string& text) {
  const int next = 1 - kept_now;
  const std::string line = text.empty() ? "nothing was saved" : "kept: " + text;
  kept_texts[next][line.copy(kept_texts[next], sizeof kept_texts[next] - 1)] = '\0';
  kept_now = next;
}

std::string StopSignal::kept() { return kept_texts[kept_now]; }
}  // namespace weft
