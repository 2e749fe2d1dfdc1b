// SPDX-License-Identifier: MIT
// Ranks speak to rank 0 and back, a few times a second. Rank 0 judges the others, and they judge
// rank 0.
#include "src/ranks/watcher.h"

#include "src/config/names.h"
#include "src/files/descriptor.h"
#include "src/files/error_line.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft {
namespace {
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kBeat{200}, kTurn{50};
// Without a word for so long, a connection is lost; before a short limit of steps is over, in any
// case.
constexpr milliseconds kShortestSilence{2500}, kLongestSilence{20000};
constexpr milliseconds kEqualFailure{2000};  // in which rank 0 says itself what all ranks have
constexpr milliseconds kFarewell{1000};
// of one that failed: rank 0 speaks before this process ends
constexpr milliseconds kLongFarewell{10000};
constexpr uint64_t kLongestReport = 1 << 16;  // bytes of a frame

constexpr const char* kRest = "; the other processes end too, the last checkpoint is whole";
}  // namespace

namespace {
// A rank may say that it waits and have all that it waits for: then others have ended its
// collective.
bool is_held_up(const std::vector<std::optional<RankState>>& ranks, std::size_t rank) {
  if (!ranks[rank]->waiting) return false;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (i != rank && ranks[i] && ranks[i]->collectives <= ranks[rank]->collectives) return true;
  return false;
}
}  // namespace

std::vector<int> find_hung(const std::vector<std::optional<RankState>>& ranks, int awaited) {
  const auto progress_of = [&](std::size_t rank) {
    return std::pair(ranks[rank]->collectives, ranks[rank]->step);
  };
  std::vector<int> hung;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i] || is_held_up(ranks, i)) continue;
    if (!hung.empty() && progress_of(i) > progress_of(hung[0])) continue;
    if (!hung.empty() && progress_of(i) < progress_of(hung[0])) hung.clear();
    hung.push_back(static_cast<int>(i));
  }
  if (hung.empty() && awaited >= 0 && ranks[awaited]) hung = {awaited};
  const bool over = std::ranges::all_of(hung, [&](int rank) {
    const RankState& r = *ranks[rank];
    return r.is_over();
  });
  return over ? hung : std::vector<int>{};
}

struct Watcher::State {
  struct Line {  // to another rank
    Descriptor socket;
    int rank;
    Clock::time_point heard = Clock::now();
    RankState said = {};
    bool ended = false;  // by a rank that failed, and waits there until this end is closed, too

    bool open() const { return socket && !ended; }
  };

  const int rank;
  const bool prints;  // what is to be said when rank 0 is gone
  const std::vector<Peer>& peers;
  std::vector<Line> lines;

  std::mutex mutex;  // of the following, which the main thread and the watcher share
  Pace pace;
  bool farewell = false, spoken = false;
  std::string failure;

  std::thread thread;
  // a process that forks earlier could copy locks that a thread at its start holds
  std::promise<void> begun;
  std::string others_failure;
  Clock::time_point failed_at{}, last_turn = Clock::now(), last_beat{};

  State(int own_rank, int local_rank, const std::vector<Peer>& all, std::vector<Descriptor> sockets)
      : rank(own_rank),
        prints(own_rank <= 1 || local_rank == 0),
        peers(all) {
    for (Descriptor& socket : sockets) {
      // frames are small: they come and go as a whole
      if (socket) set_patience(socket, seconds(1));
      lines.push_back({std::move(socket), static_cast<int>(lines.size())});
    }
  }

  Pace pace_now() {
    const std::lock_guard lock(mutex);
    return pace;
  }

  void say_to_all(Kind kind, const std::string& body) {
    for (const Line& line : lines)
      if (line.open()) send_frame(line.socket, kind, body);
  }

  void beat() {
    if (since(last_beat) < kBeat) return;
    last_beat = Clock::now();
    const RankState state = pace_now().state();
    say_to_all(Kind::beat, {reinterpret_cast<const char*>(&state), sizeof state});
  }

  void speak(const std::string& text) {
    const std::lock_guard lock(mutex);
    if (!text.empty() && !std::exchange(spoken, true)) print_error_line(text);
  }

  // Ends this process, and on rank 0 all others, after the line `text` ("": someone else says it).
  [[noreturn]] void end(const std::string& text) {
    if (rank == 0 || prints) speak(text);
    if (rank == 0) {
      say_to_all(Kind::end, "");
      linger(kFarewell / 2);
    }
    _exit(1);
  }

  [[noreturn]] void end_for(const std::vector<int>& ranks, int64_t step, const std::string& why) {
    std::vector<std::string> names;
    for (const int r : ranks) names.push_back(peers[r].name());
    end(str(listed(names), " stopped ", after_step(step), ": ", why, kRest));
  }

  void hear(Line& line) {
    Frame frame;
    if (!receive_frame(line.socket, frame, kLongestReport)) {
      line.ended = true;
      if (!others_failure.empty()) return;
      end_for({line.rank}, line.said.step, "its connection is lost: it ended, or was killed");
    }
    line.heard = Clock::now();
    if (frame.kind == Kind::end) end("");
    if (frame.kind == Kind::beat && frame.body.size() == sizeof line.said)
      std::memcpy(&line.said, frame.body.data(), sizeof line.said);
    if (frame.kind == Kind::goodbye) line.socket.close();
    if (frame.kind == Kind::failed && others_failure.empty()) {
      others_failure = str("rank ", line.rank, ": ", frame.body);
      failed_at = Clock::now();
    }
  }

  void wait_and_hear() {
    std::vector<pollfd> sockets;
    for (const Line& line : lines)
      sockets.push_back({line.open() ? line.socket.get() : -1, POLLIN, 0});
    if (poll(sockets.data(), sockets.size(), static_cast<int>(kTurn.count())) <= 0) return;
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (sockets[i].revents != 0) hear(lines[i]);
  }

  // A process that was itself stopped for a while knows nothing of the others' silence.
  void notice_own_pause() {
    if (since(last_turn) > kOwnPause) {
      for (Line& line : lines) line.heard = Clock::now();
      const std::lock_guard lock(mutex);
      pace.last = Clock::now();
    }
    last_turn = Clock::now();
  }

  void judge() {
    if (!others_failure.empty()) {
      if (since(failed_at) > kEqualFailure) end(others_failure);
      return;
    }
    const Pace own = pace_now();
    const milliseconds longest = own.limit.count() > 0
                                     ? std::clamp(own.limit / 2, kShortestSilence, kLongestSilence)
                                     : kLongestSilence;
    std::vector<int> silent;  // those of a host are so at about the same time
    bool lost = false;
    std::vector<std::optional<RankState>> states(peers.size());
    if (rank == 0) states[0] = own.state();
    for (const Line& line : lines) {
      if (!line.open()) continue;
      lost |= since(line.heard) > longest;
      if (since(line.heard) > longest - 2 * kBeat) silent.push_back(line.rank);
      states[line.rank] = line.said;
    }
    const auto step_of = [&](int r) { return states[r]->step; };
    if (lost)
      end_for(silent, step_of(silent[0]),
              str("its connection is lost: no sign of life for ", seconds_text(longest)));
    if (rank != 0) return;
    if (const std::vector<int> hung = find_hung(states, own.awaited); !hung.empty())
      end_for(hung, step_of(hung[0]),
              str("it has not come further for ", seconds_text(states[hung[0]]->allowed)));
  }

  // Waits until the others have read the last word: closing a connection earlier could discard it.
  void linger(milliseconds longest) {
    const Clock::time_point began = Clock::now();
    for (const Line& line : lines)
      if (line.socket) shutdown(line.socket.get(), SHUT_WR);
    for (const Line& line : lines) {
      while (line.socket && since(began) < longest) {
        pollfd waiting{line.socket.get(), POLLIN, 0};
        Frame frame;
        if (poll(&waiting, 1, 50) > 0 && !receive_frame(line.socket, frame, kLongestReport)) break;
      }
    }
  }

  void part(const std::string& why) {
    if (why.empty() && !others_failure.empty()) end(others_failure);  // nobody else will say it
    say_to_all(why.empty() ? Kind::goodbye : rank == 0 ? Kind::end : Kind::failed, why);
    linger(rank == 0 || why.empty() ? kFarewell : kLongFarewell);
  }

  void run() {
    beat();
    judge();
    begun.set_value();
    for (;;) {
      wait_and_hear();
      {
        const std::lock_guard lock(mutex);
        if (farewell) break;
      }
      notice_own_pause();
      beat();
      judge();
    }
    part(failure);
  }
};

Watcher::Watcher(int rank, int local_rank, const std::vector<Peer>& peers,
                 std::vector<Descriptor> watch)
    : state_(std::make_unique<State>(rank, local_rank, peers, std::move(watch))) {
  state_->thread = std::thread([s = state_.get()] { s->run(); });
  state_->begun.get_future().wait();
}

Watcher::~Watcher() { goodbye(); }

void Watcher::change(const std::function<void(Pace&)>& change) {
  const std::lock_guard lock(state_->mutex);
  change(state_->pace);
}

std::string Watcher::where() const { return after_step(state_->pace_now().known.step); }

void Watcher::fail(const std::string& why, const std::string& line) {
  state_->speak(line);
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->farewell) return;
    state_->failure = why;
    state_->farewell = true;
  }
  state_->thread.join();
}
}  // namespace weft
