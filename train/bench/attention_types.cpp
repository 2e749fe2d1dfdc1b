// SPDX-License-Identifier: MIT
// `bench attention --f16-against-bf16`: time, clock and cycles of both types, measured in turn.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <ostream>

#include "train/bench/attention_case.h"
#include "train/bench/run_timer.h"

namespace weft {
namespace {

constexpr double kSustainMs = 300, kWarmMs = 1000;
constexpr std::size_t kRounds = 4;
constexpr int kRested = 16, kRestMs = 20;
constexpr std::array kTypes = {DType::bf16, DType::f16};

struct Measured {
  TimedRuns sustained, rested;
  std::vector<double> rounds;  // median milliseconds of the sustained runs of each round
};
using Pair = std::array<Measured, kTypes.size()>;

Pair measure_in_turn(Device& device, int pause_ms,
                     const std::array<std::function<void()>, kTypes.size()>& works) {
  RunTimer sustained(device), rested(device, pause_ms);
  Pair pair;
  for (int i = 0; i < kRested; ++i)
    for (std::size_t type = 0; type < kTypes.size(); ++type)
      pair[type].rested.append(rested.time(1, works[type]));
  const auto runs_for = [&](std::size_t type, double ms) {
    const int repeats =
        device.is_cuda() ? std::max(3, static_cast<int>(ms / pair[type].rested.median_ms())) : 1;
    return sustained.time(repeats, works[type]);
  };
  runs_for(0, kWarmMs);  // the power limit looks at more than a second
  for (std::size_t round = 0; round < kRounds; ++round)
    for (std::size_t turn = 0; turn < kTypes.size(); ++turn) {
      const std::size_t type = (turn + round) % kTypes.size();
      runs_for(type, kSustainMs);
      const TimedRuns runs = runs_for(type, kSustainMs);
      pair[type].rounds.push_back(runs.median_ms());
      pair[type].sustained.append(runs);
    }
  return pair;
}

// f16 / bf16: times (the mean of the rounds, in half of which either type goes first), cycles, rested times.
struct Ratios {
  double sustained, cycles, rested;
};
double ratio_of_round(const Pair& pair, std::size_t round) {
  return pair[1].rounds[round] / pair[0].rounds[round];
}
Ratios ratios_of(const Pair& pair) {
  const auto& [bf16, f16] = pair;
  double rounds = 0;
  for (std::size_t round = 0; round < kRounds; ++round) rounds += std::log(ratio_of_round(pair, round));
  return {std::exp(rounds / static_cast<double>(kRounds)),
          f16.sustained.median_kilocycles() / bf16.sustained.median_kilocycles(),
          f16.rested.median_ms() / bf16.rested.median_ms()};
}

struct Row {
  const AttentionBenchShape& shape;
  const std::string &mode, &form;
  const char* pass;
  int pause_ms;
  Pair pair;
};

void print_json(const Row& row, bool clocks, std::ostream& out) {
  JsonMembers members = shape_members(row.shape, row.mode);
  members.insert(members.begin(), {"comparison", "f16 against bf16"});
  const auto add = [&](const std::string& key, const auto& value) { members.emplace_back(key, value); };
  add("form", row.form), add("pass", row.pass), add("pause_ms", row.pause_ms);
  for (std::size_t type = 0; type < kTypes.size(); ++type)
    for (const bool rested : {false, true}) {
      const TimedRuns& runs = rested ? row.pair[type].rested : row.pair[type].sustained;
      const std::string key = str(name_of(kTypes[type]), rested ? "_rested_" : "_");
      add(key + "ms", runs.median_ms());
      if (clocks) add(key + "MHz", runs.mean_clock()), add(key + "kcycles", runs.median_kilocycles());
    }
  const Ratios ratios = ratios_of(row.pair);
  std::string rounds;
  for (std::size_t round = 0; round < kRounds; ++round)
    rounds += (round ? ", " : "") + str(ratio_of_round(row.pair, round));
  add("ratio", ratios.sustained), add("ratio_of_rounds", JsonMember::Raw{"[" + rounds + "]"});
  if (clocks) add("ratio_cycles", ratios.cycles);
  add("ratio_rested", ratios.rested);
  out << json_object(members) << std::endl;
}

void print_text(const Row& row, bool clocks, std::ostream& out) {
  std::vector<Cell> cells = {row.shape.name, row.mode, row.pass};
  for (const auto& [sustained, rested, rounds] : row.pair)
    for (const double value : {sustained.median_ms(), sustained.mean_clock(), sustained.median_kilocycles(),
                               rested.median_ms(), rested.mean_clock()})
      cells.emplace_back(value);
  const Ratios ratios = ratios_of(row.pair);
  for (const double value : {ratios.sustained, clocks ? ratios.cycles : 0, ratios.rested})
    cells.emplace_back(value);
  cells.emplace_back(row.form);
  print_row(out, f16_against_bf16_columns(), cells);
}

}  // namespace

const Columns& f16_against_bf16_columns() {
  static const Columns columns = [] {
    Columns all = {{"shape", 17}, {"pattern", 15}, {"pass", 9}};
    for (const DType type : kTypes)
      for (const Column& c : Columns{{str(name_of(type), " ms"), 10, 4},
                                     {"MHz", 7, 0},
                                     {"kcycles", 9, 0},
                                     {"rested", 9, 4},
                                     {"MHz", 7, 0}})
        all.push_back(c);
    for (const Column& c : Columns{{"f16/bf16", 9, 3}, {"cycles", 8, 3}, {"rested", 8, 3}, {"kernels"}})
      all.push_back(c);
    return all;
  }();
  return columns;
}

void bench_f16_against_bf16(Device& device, const AttentionBenchShape& shape,
                            const std::vector<std::string>& modes, const BenchAttentionOptions& options,
                            std::ostream& out) {
  const int pause_ms = options.pause_ms > 0 ? options.pause_ms : kRestMs;
  const AttentionWorkload bf16(device, shape, kTypes[0]), f16(device, shape, kTypes[1]);
  for (const std::string& mode : modes) {
    const AttentionBenchCase first(device, shape, mode, bf16, options),
        second(device, shape, mode, f16, options);
    const auto print = [&](const char* pass, const Pair& pair) {
      const Row row{shape, mode, first.form, pass, pause_ms, pair};
      options.json ? print_json(row, device.is_cuda(), out) : print_text(row, device.is_cuda(), out);
    };
    print("forward",
          measure_in_turn(device, pause_ms, {[&] { first.run_forward(); }, [&] { second.run_forward(); }}));
    print("both", measure_in_turn(device, pause_ms, {[&] { first.run_both(); }, [&] { second.run_both(); }}));
  }
}

}  // namespace weft
