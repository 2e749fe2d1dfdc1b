// SPDX-License-Identifier: MIT
// Ranks speak to rank 0, a few times a second, and rank 0 to all of them. Rank 0 decides who has stopped; of
// rank 0 itself, the others do.
#include "src/ranks/watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "kernels/view.h"
#include "src/files/error_line.h"
#include "src/ranks/heartbeat.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kBeat{200};
constexpr milliseconds kShortestSilence{1000}, kLongestSilence{20000};
constexpr milliseconds kOwnPause{3000};  // a watcher that did not run for so long was stopped itself
// An error that all ranks have is said by rank 0 itself meanwhile; ranks that stop within so long are named
// in one line.
constexpr milliseconds kEqualFailure{2000}, kTogether{1000};
constexpr milliseconds kFarewell{1000};
constexpr milliseconds kLongFarewell{10000};  // of one that failed: rank 0 speaks before this process ends

struct Beat {
  std::int64_t step, stillness_ms, limit_ms, collectives, waiting;
};

milliseconds since(Clock::time_point then) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - then);
}

std::string seconds_text(milliseconds time) {
  return time.count() % 1000 == 0 ? str(time.count() / 1000, " s")
                                  : str(static_cast<double>(time.count()) / 1000, " s");
}

bool stands_still(const RankState& r) { return r.limit.count() > 0 && r.stillness > r.limit; }

// How far it has come: one that waits in a collective is behind one that has left it.
auto place(const RankState& r) { return std::tuple(r.collectives, !r.waiting, r.step); }

}  // namespace

std::optional<Stopped> find_stopped(const std::vector<std::optional<RankState>>& ranks) {
  Stopped silent, still;
  milliseconds silence{0}, limit{0};
  const RankState* last = nullptr;  // behind all others: while it moves, they may wait for it
  for (const auto& r : ranks)
    if (r && (!last || place(*r) < place(*last))) last = &*r;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank]) continue;
    const RankState& r = *ranks[rank];
    // A process that is stopped as a whole is found before those that wait for it.
    const milliseconds longest =
        r.limit.count() > 0 ? std::clamp(r.limit / 2, kShortestSilence, kLongestSilence) : kLongestSilence;
    if (r.silence > longest) {
      silent.ranks.push_back(static_cast<int>(rank));
      silence = std::max(silence, longest);
    }
    if (!stands_still(r) || place(r) != place(*last)) continue;
    still.ranks.push_back(static_cast<int>(rank));
    limit = std::max(limit, r.limit);
  }
  if (!silent.ranks.empty()) {
    silent.why = str("no sign of life for ", seconds_text(silence));
    return silent;
  }
  if (still.ranks.empty()) return std::nullopt;
  still.why = str("no progress for ", seconds_text(limit));
  return still;
}

struct Watcher::State {
  struct Line {  // to another rank
    Socket socket;
    FrameReader reader;
    std::string unsent;
    Clock::time_point heard = Clock::now();
    RankState said;
    bool left = false;
  };

  const int rank;
  const bool prints;  // what is to be said when rank 0 is gone
  const std::vector<Peer>& peers;
  std::vector<Line> lines;  // as in Meeting: index 0 is rank 0 where this is another rank
  Socket wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  std::atomic<std::int64_t> step{-1}, moved_ms{0}, limit_ms{0};
  std::atomic<std::int64_t> collectives{0};
  std::atomic<bool> waiting{false};

  std::mutex mutex;  // of the following
  bool farewell = false, spoken = false;
  std::string failure;
  std::vector<bool> gone;  // by rank: said goodbye
  std::thread thread;

  // Of the thread alone.
  std::string others_failure;
  Clock::time_point failed_at{}, stopped_at{};
  Clock::time_point last_turn = Clock::now(), last_beat{};
  std::uint64_t progress_seen = 0;

  State(int own_rank, int local_rank, const std::vector<Peer>& all, std::vector<Socket> sockets)
      : rank(own_rank), prints(own_rank == 1 || local_rank == 0), peers(all), gone(all.size()) {
    for (Socket& socket : sockets) lines.emplace_back().socket = std::move(socket);
    moved();
  }

  static std::int64_t now_ms() {
    return std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch()).count();
  }
  void moved() { moved_ms.store(now_ms(), std::memory_order_relaxed); }

  RankState own_state() const {
    return {.step = step,
            .stillness = milliseconds(std::max<std::int64_t>(0, now_ms() - moved_ms)),
            .limit = milliseconds(limit_ms),
            .collectives = collectives,
            .waiting = waiting};
  }

  int rank_of(std::size_t line) const { return rank == 0 ? static_cast<int>(line) : 0; }

  std::string name(int of) const {
    const Peer& peer = peers[static_cast<std::size_t>(of)];
    return str("rank ", of, " (", peer.host, ", pid ", peer.pid, ")");
  }

  static std::string when(std::int64_t step) {
    return step < 0 ? std::string("before its first step") : str("after step ", step);
  }

  // ---- speaking

  void say(Line& line, Kind kind, const std::string& body) { line.unsent += frame(kind, body); }

  // What can be sent without waiting. A connection that breaks is found when it is read.
  static void flush(Line& line) {
    while (line.socket && !line.unsent.empty()) {
      const ssize_t sent =
          send(line.socket.fd(), line.unsent.data(), line.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent <= 0) return;
      line.unsent.erase(0, static_cast<std::size_t>(sent));
    }
  }

  void say_to_all(Kind kind, const std::string& body) {
    for (Line& line : lines) {
      if (!line.socket || line.left) continue;
      say(line, kind, body);
      flush(line);
    }
  }

  void beat() {
    if (since(last_beat) < kBeat) return;
    last_beat = Clock::now();
    const RankState own = own_state();
    const Beat beat{own.step, own.stillness.count(), own.limit.count(), own.collectives, own.waiting};
    for (Line& line : lines) {
      if (!line.socket || line.left) continue;
      if (line.unsent.empty()) say(line, Kind::beat, {reinterpret_cast<const char*>(&beat), sizeof beat});
      flush(line);
    }
  }

  // ---- the end

  // The first line, and no other.
  void speak(const std::string& text) {
    const std::lock_guard lock(mutex);
    if (!text.empty() && !std::exchange(spoken, true)) print_error_line(text);
  }

  // Ends this process, and on rank 0 all others; `text` is the one line that says why ("": someone else
  // does).
  [[noreturn]] void end(const std::string& text) {
    speak(text);
    if (rank == 0) {
      say_to_all(Kind::end, "");
      linger(kFarewell / 2);
    }
    _exit(1);
  }

  void died(std::size_t line) {
    if (rank != 0 && !prints) end("");
    const int of = rank_of(line);
    end(str(name(of), " stopped ", when(lines[line].said.step),
            ": it ended, or was killed, without a goodbye; the other processes end too, the last checkpoint "
            "is whole"));
  }

  void stopped(const Stopped& found, const std::vector<std::optional<RankState>>& states) {
    if (rank != 0 && !prints) end("");
    std::vector<std::string> names;
    for (const int of : found.ranks) names.push_back(name(of));
    const RankState& first = *states[static_cast<std::size_t>(found.ranks.front())];
    end(str(listed(names), " stopped ", when(first.step), ": ", found.why,
            "; the other processes end too, the last checkpoint is whole"));
  }

  // ---- hearing

  void hear(std::size_t index) {
    Line& line = lines[index];
    const bool open = line.reader.read(line.socket);
    FrameHeader header;
    std::string body;
    while (!line.left && line.reader.next(header, body)) {
      line.heard = Clock::now();
      if (header.kind == Kind::end) end("");
      if (header.kind == Kind::beat && body.size() == sizeof(Beat)) {
        Beat beat{};
        std::memcpy(&beat, body.data(), sizeof beat);
        line.said = {.step = beat.step,
                     .stillness = milliseconds(beat.stillness_ms),
                     .limit = milliseconds(beat.limit_ms),
                     .collectives = beat.collectives,
                     .waiting = beat.waiting != 0};
      } else if (header.kind == Kind::goodbye) {
        line.left = true;
      } else if (header.kind == Kind::failed && others_failure.empty()) {
        others_failure = str("rank ", index, ": ", body);
        failed_at = Clock::now();
      }
    }
    if (line.left || (!open && !others_failure.empty())) return leave(index);
    if (!open || line.reader.broken()) died(index);
  }

  void leave(std::size_t index) {
    // One that failed waits at the other end of its connection until judge() has said why.
    if (!std::exchange(lines[index].left, true)) return;
    lines[index].socket.close();
    const std::lock_guard lock(mutex);
    gone[static_cast<std::size_t>(rank_of(index))] = true;
  }

  void judge() {
    if (!others_failure.empty()) {
      if (since(failed_at) > kEqualFailure) end(others_failure);
      return;
    }
    std::vector<std::optional<RankState>> states(peers.size());
    if (rank == 0) states[0] = own_state();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (!lines[i].socket || lines[i].left) continue;
      RankState& state = states[static_cast<std::size_t>(rank_of(i))].emplace(lines[i].said);
      state.silence = since(lines[i].heard);
      if (rank != 0) state.stillness = milliseconds(0);  // rank 0 knows of itself, and of the others
    }
    const std::optional<Stopped> found = find_stopped(states);
    if (!found) return static_cast<void>(stopped_at = {});
    if (stopped_at == Clock::time_point{}) stopped_at = Clock::now();
    if (since(stopped_at) > kTogether) stopped(*found, states);
  }

  // A process that was itself stopped for a while knows nothing of the others' silence.
  void notice_own_pause() {
    if (since(last_turn) > kOwnPause) {
      for (Line& line : lines) {
        line.heard = Clock::now();
        line.said.stillness = milliseconds(0);
      }
      moved();
    }
    last_turn = Clock::now();
  }

  void notice_progress() {
    if (const std::uint64_t signs = signs_of_progress; signs != std::exchange(progress_seen, signs)) moved();
  }

  void wait_and_hear(milliseconds longest) {
    std::vector<pollfd> sockets{{wake.fd(), POLLIN, 0}};
    for (const Line& line : lines) sockets.push_back({line.left ? -1 : line.socket.fd(), POLLIN, 0});
    if (poll(sockets.data(), sockets.size(), static_cast<int>(longest.count())) <= 0) return;
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (sockets[i + 1].revents != 0) hear(i);
  }

  // After the last word: stays until the others have heard it, or `longest`. What arrives at a closed
  // connection can take what was sent before with it.
  void linger(milliseconds longest) {
    const Clock::time_point began = Clock::now();
    for (const Line& line : lines)
      if (line.socket) shutdown(line.socket.fd(), SHUT_WR);
    for (Line& line : lines) {
      while (line.socket && since(began) < longest) {
        pollfd waiting{line.socket.fd(), POLLIN, 0};
        if (poll(&waiting, 1, 50) > 0 && !line.reader.read(line.socket)) break;
      }
    }
  }

  void part() {
    std::string why;
    {
      const std::lock_guard lock(mutex);
      why = failure;
    }
    if (why.empty() && !others_failure.empty()) end(others_failure);  // nobody else will say it
    if (why.empty()) {
      say_to_all(Kind::goodbye, "");
    } else {
      say_to_all(rank == 0 ? Kind::end : Kind::failed, why);
    }
    linger(rank == 0 || why.empty() ? kFarewell : kLongFarewell);
  }

  void run() {
    for (;;) {
      wait_and_hear(kBeat / 2);
      {
        const std::lock_guard lock(mutex);
        if (farewell) break;
      }
      notice_own_pause();
      notice_progress();
      beat();
      judge();
    }
    part();
  }
};

Watcher::Watcher(int rank, int local_rank, const std::vector<Peer>& peers, std::vector<Socket> watch)
    : state_(std::make_unique<State>(rank, local_rank, peers, std::move(watch))) {
  state_->thread = std::thread([s = state_.get()] { s->run(); });
}

Watcher::~Watcher() { goodbye(); }

void Watcher::report_step(std::int64_t step) {
  state_->step.store(step, std::memory_order_relaxed);
  state_->moved();
}

void Watcher::set_limit(milliseconds limit) {
  state_->moved();
  state_->limit_ms = limit.count();
}

void Watcher::enter_collective() {
  state_->moved();
  state_->waiting = true;
  ++state_->collectives;
}

void Watcher::leave_collective() {
  state_->moved();
  state_->waiting = false;
}

void Watcher::goodbye() { fail(""); }

void Watcher::fail(const std::string& why, const std::string& line) {
  state_->speak(line);
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->farewell) return;
    state_->failure = why;
    state_->farewell = true;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(state_->wake.fd(), &one, sizeof one);
  state_->thread.join();
}

bool Watcher::has_left(int rank) {
  for (const Clock::time_point began = Clock::now(); since(began) < seconds(5);
       std::this_thread::sleep_for(milliseconds(20))) {
    const std::lock_guard lock(state_->mutex);
    if (state_->gone[static_cast<std::size_t>(rank)]) return true;
  }
  return false;
}

}  // namespace weft
