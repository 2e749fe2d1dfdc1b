// SPDX-License-Identifier: MIT
// Signal handlers that set a flag.
#include "train/program/stop_signal.h"

#include <signal.h>
#include <unistd.h>

namespace weft {
namespace {

volatile sig_atomic_t received_signal = 0;
struct sigaction earlier_interrupt, earlier_terminate;

void handle(int number) {
  if (received_signal != 0) _exit(128 + number);
  received_signal = number;
}

}  // namespace

StopSignal::StopSignal() {
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &earlier_interrupt);
  sigaction(SIGTERM, &action, &earlier_terminate);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &earlier_interrupt, nullptr);
  sigaction(SIGTERM, &earlier_terminate, nullptr);
}

const char* StopSignal::received() const {
  return received_signal == 0 ? nullptr : received_signal == SIGINT ? "SIGINT" : "SIGTERM";
}

}  // namespace weft
