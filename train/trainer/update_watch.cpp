// SPDX-License-Identifier: MIT
#include "train/trainer/update_watch.h"

#include "kernels/diagnostics/last_launch.h"
#include "src/config/names.h"
#include "src/device.h"
#include "src/files/error_line.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>

namespace weft {
namespace {
using std::chrono::milliseconds;

std::string text_of(const GraphLaunches& graph) {
  const std::span<const char* const> kernels = graph.kernels;
  const std::string text = str("a CUDA graph of ", kernels.size(), " launches");
  if (!graph.ended) return text;
  const std::size_t ended = *graph.ended;
  if (ended >= kernels.size()) return str(text, ", none of which runs");
  const std::size_t count = std::min<std::size_t>(graph.interval, kernels.size() - ended);
  return str(text, ", of which ", ended,
             " have ended and one of these runs: ", joined(kernels.subspan(ended, count)));
}

std::string hung_text(const RankState& state) {
  const GraphLaunches* graph = last_graph;
  return str("no update for ", seconds_text(state.allowed), ", ", after_step(state.step),
             "; launched last: ", graph ? str(text_of(*graph), "; then ") : "", last_launch.load(),
             graph ? " (WEFT_DEBUG=2 with --set train.graph=false names the one that runs)" : "");
}
}  // namespace

UpdateWatch::UpdateWatch(milliseconds limit, std::function<std::string()> kept)
    : kept_(std::move(kept)) {
  pace_.limit = limit;
  thread_ = std::thread([this] { watch(); });
}

UpdateWatch::~UpdateWatch() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void UpdateWatch::change(const std::function<void(Pace&)>& change) {
  const std::lock_guard lock(mutex_);
  change(pace_);
}

void UpdateWatch::report_step(int64_t step) {
  change([&](Pace& pace) { pace.finish_step(step); });
}

void UpdateWatch::report_progress() { change(&Pace::come_further); }

void UpdateWatch::take_time() { change(&Pace::restart); }

void UpdateWatch::watch() {
  constexpr milliseconds kTurn{500};
  std::unique_lock lock(mutex_);
  const milliseconds turn = std::min(kTurn, pace_.limit / 4);
  for (Clock::time_point last_turn = Clock::now();; last_turn = Clock::now()) {
    if (ended_.wait_for(lock, turn, [&] { return end_; })) return;
    if (since(last_turn) > turn + kOwnPause) pace_.restart();
    const RankState state = pace_.state();
    if (!state.is_over()) continue;
    print_error_line(str(hung_text(state), ". ", kept_()));
    _exit(1);
  }
}

std::optional<std::chrono::seconds> hang_seconds() {
  const char* text = std::getenv("WEFT_HANG_SECONDS");
  if (!text) return std::nullopt;
  const int seconds = number_in<int>(text).value_or(0);
  if (seconds < 1)
    fail("WEFT_HANG_SECONDS: expected a whole number of seconds from 1, got '", text, "'");
  return std::chrono::seconds(seconds);
}

std::unique_ptr<UpdateWatch> watch_for(const Processes& processes, const Device& device,
                                       const std::function<std::string()>& kept) {
  constexpr std::chrono::seconds kLimit{60};
  const auto asked = hang_seconds();
  if (processes.size() > 1 || (!device.is_cuda() && !asked)) return nullptr;
  return std::make_unique<UpdateWatch>(asked.value_or(kLimit), kept);
}
}  // namespace weft
