// SPDX-License-Identifier: MIT
#include "train/program/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <iterator>

#include "kernels/queue.h"

namespace weft {
namespace {

constexpr unsigned kSecondsToFinish = 2;  // for the step at hand
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM};

volatile sig_atomic_t received_signal = 0, time_is_up = 0, process_is_alone = 0;
Echo echo;
struct sigaction earlier[std::size(kSignals)];

void handle(int number) {
  if (number == SIGALRM) {
    time_is_up = 1;
    if (process_is_alone != 0) interrupt_requested = true;
    return;
  }
  if (received_signal != 0) {
    if (number == SIGHUP) return;  // shell and kernel each say that the terminal is gone
    if (number == received_signal && echo.lasts()) return;
    _exit(128 + number);
  }
  echo.begin();
  received_signal = number;
  alarm(kSecondsToFinish);
}

}  // namespace

StopSignal::StopSignal(bool alone) {
  received_signal = 0;
  time_is_up = 0;
  process_is_alone = alone ? 1 : 0;
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
  for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &earlier[i], nullptr);
  interrupt_requested = false;
}

const char* StopSignal::received() {
  switch (received_signal) {
    case 0: return nullptr;
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    default: return "SIGTERM";
  }
}
const char* StopSignal::overdue() { return time_is_up != 0 ? received() : nullptr; }

}  // namespace weft
