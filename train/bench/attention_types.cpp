// SPDX-License-Identifier: MIT
// f16 against bf16: time, clock and cycles of both, measured in turn.
#include "train/bench/attention_types.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iomanip>
#include <ostream>

#include "kernels/attention/select.h"
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

struct RowName {
  const AttentionBenchShape& shape;
  const std::string &mode, &form;
  const char* pass;
  int pause_ms;
};

void print_json(const Pair& pair, const RowName& row, bool clocks, std::ostream& out) {
  const AttentionBenchShape& s = row.shape;
  out << "{\"comparison\": \"f16 against bf16\", \"case\": \"" << s.name << "\", \"mode\": \"" << row.mode
      << "\", \"B\": " << s.batch << ", \"H\": " << s.heads << ", \"N\": " << s.length
      << ", \"D\": " << s.qk_size << ", \"Dv\": " << s.v_size << ", \"s\": " << s.stride << ", \"c\": " << s.c
      << ", \"form\": \"" << row.form << "\", \"pass\": \"" << row.pass
      << "\", \"pause_ms\": " << row.pause_ms;
  for (std::size_t type = 0; type < kTypes.size(); ++type)
    for (const bool rested : {false, true}) {
      const TimedRuns& runs = rested ? pair[type].rested : pair[type].sustained;
      const std::string key = str(", \"", name_of(kTypes[type]), rested ? "_rested_" : "_");
      out << key << "ms\": " << runs.median_ms();
      if (clocks)
        out << key << "MHz\": " << runs.mean_clock() << key << "kcycles\": " << runs.median_kilocycles();
    }
  const Ratios ratios = ratios_of(pair);
  out << ", \"ratio\": " << ratios.sustained << ", \"ratio_of_rounds\": [";
  for (std::size_t round = 0; round < kRounds; ++round)
    out << (round ? ", " : "") << ratio_of_round(pair, round);
  out << "]";
  if (clocks) out << ", \"ratio_cycles\": " << ratios.cycles;
  out << ", \"ratio_rested\": " << ratios.rested << "}" << std::endl;
}

void print_text(const Pair& pair, const RowName& row, bool clocks, std::ostream& out) {
  const auto cell = [&](int width, int digits, double value) {
    out << std::setw(width) << std::setprecision(digits) << value;
  };
  out << std::left << std::setw(17) << row.shape.name << std::setw(15) << row.mode << std::setw(9) << row.pass
      << std::right << std::fixed;
  for (const Measured& type : pair) {
    cell(10, 4, type.sustained.median_ms()), cell(7, 0, type.sustained.mean_clock());
    cell(9, 0, type.sustained.median_kilocycles()), cell(9, 4, type.rested.median_ms());
    cell(7, 0, type.rested.mean_clock());
  }
  const Ratios ratios = ratios_of(pair);
  cell(9, 3, ratios.sustained), cell(8, 3, clocks ? ratios.cycles : 0), cell(8, 3, ratios.rested);
  out << "  " << row.form << std::defaultfloat << std::endl;
}

}  // namespace

void print_f16_against_bf16_head(std::ostream& out) {
  out << std::left << std::setw(17) << "shape" << std::setw(15) << "pattern" << std::setw(9) << "pass"
      << std::right;
  for (const DType type : kTypes)
    out << std::setw(10) << str(name_of(type), " ms") << std::setw(7) << "MHz" << std::setw(9) << "kcycles"
        << std::setw(9) << "rested" << std::setw(7) << "MHz";
  out << std::setw(9) << "f16/bf16" << std::setw(8) << "cycles" << std::setw(8) << "rested"
      << "  kernels" << std::endl;
}

void bench_f16_against_bf16(Device& device, const AttentionBenchShape& shape,
                            const std::vector<std::string>& modes, const BenchAttentionOptions& options,
                            std::ostream& out) {
  const AttentionForm form = attention::parse_form(options.form);
  const int pause_ms = options.pause_ms > 0 ? options.pause_ms : kRestMs;
  const AttentionWorkload bf16(device, shape, kTypes[0]), f16(device, shape, kTypes[1]);
  for (const std::string& mode : modes) {
    const AttentionBenchCase first(device, shape, mode, bf16, form, options.verify),
        second(device, shape, mode, f16, form, options.verify);
    const auto row = [&](const char* pass, const Pair& pair) {
      const RowName name{shape, mode, first.form, pass, pause_ms};
      options.json ? print_json(pair, name, device.is_cuda(), out)
                   : print_text(pair, name, device.is_cuda(), out);
    };
    row("forward",
        measure_in_turn(device, pause_ms, {[&] { first.run_forward(); }, [&] { second.run_forward(); }}));
    row("both", measure_in_turn(device, pause_ms, {[&] { first.run_both(); }, [&] { second.run_both(); }}));
  }
}

}  // namespace weft
