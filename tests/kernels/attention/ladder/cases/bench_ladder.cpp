// SPDX-License-Identifier: MIT
// `bench ladder`: every rung is checked, then timed; a row each, and the staircase as a picture.
#include "tests/kernels/attention/ladder/cases/bench_ladder.h"

#include "tests/kernels/attention/ladder/cases/ladder_problem.h"
#include "tests/kernels/attention/ladder/cases/staircase.h"
#include "train/bench/bench.h"
#include "train/bench/check.h"
#include "train/bench/run_timer.h"
#include "train/program/json.h"
#include "train/program/options.h"
#include "train/program/png.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <omp.h>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace weft::ladder {
namespace {
constexpr double kTolerance = 1e-4;  // of f32 sums, relative to the largest number
constexpr int64_t kCheckedLength = 201;

std::unique_ptr<AttentionPattern> pattern_of(const std::string& kind, int64_t stride, int64_t c,
                                             int64_t heads) {
  PatternSpec spec;
  spec.kind = kind;
  spec.stride = stride;
  spec.c = c;
  return make_pattern(spec, static_cast<int>(heads));
}

// The largest error of a rung at a small length, over the four patterns.
double checked_error(const Rung& rung) {
  double worst = 0;
  for (const std::string& kind : kPatterns) {
    const LadderPattern pattern(pattern_of(kind, 32, 8, 2), 2, kCheckedLength);
    worst = std::max(worst, error_of(rung, pattern, {1, kCheckedLength, 2, 40, 24}));
  }
  if (!(worst <= kTolerance))
    fail("bench ladder: ", rung.name, " differs from the definition by ", worst,
         " of the largest number; at most ", kTolerance, " was expected");
  return worst;
}

// Random inputs, and outputs, of the length that is timed.
class Workload {
 public:
  Workload(Device& device, const BenchLadderOptions& o)
      : device_(device),
        pattern_(pattern_of(o.pattern, o.stride, o.c, o.heads), static_cast<int>(o.heads),
                 o.length) {
    const auto normal = [&](const Shape& shape, unsigned seed) {
      const Tensor x(*device.pool, shape, DType::f32, "bench");
      std::mt19937 random(seed);
      std::normal_distribution<float> numbers;
      std::generate_n(x.view().as<float>(), x.size(), [&] { return numbers(random); });
      return x;
    };
    const Shape packed = {1, o.length, o.heads * 3 * o.size},
                attended = {1, o.length, o.heads * o.size}, rows = {1, o.heads, o.length};
    const auto empty = [&](const Shape& s) { return Tensor(*device.pool, s, DType::f32, "bench"); };
    x_ = {
        .qkv = normal(packed, 1),
        .y = empty(attended),
        .dy = normal(attended, 2),
        .dqkv = empty(packed),
        .lse = empty(rows),
        .heads = o.heads,
        .qk_size = o.size,
        .v_size = o.size,
    };
    delta_ = empty(rows);
    PairCount count;
    const PackedMaps maps(pattern_.pattern(), static_cast<int>(o.heads), o.length, o.size, kTile);
    for (int head = 0; head < static_cast<int>(o.heads); ++head) count += maps.pairs(head);
    pairs = static_cast<double>(count.needed);
  }

  AttentionForward forward(Slots slots) const {
    const auto [q, k, v] = packed_heads(x_.qkv, x_.heads, x_.qk_size, x_.v_size);
    return {
        .y = heads_of(x_.y, 0, x_.heads, x_.v_size),
        .lse = x_.lse,
        .q = q,
        .k = k,
        .v = v,
        .maps = pattern_.maps(slots),
        .scale = 1 / std::sqrt(static_cast<double>(x_.qk_size)),
    };
  }

  AttentionBackward backward(Slots slots) const {
    const auto [dq, dk, dv] = packed_heads(x_.dqkv, x_.heads, x_.qk_size, x_.v_size);
    return backward_of(forward(slots), dq, dk, dv, delta_, heads_of(x_.dy, 0, x_.heads, x_.v_size));
  }

  void run_forward(const Rung& rung) const {
    rung.forward(forward(rung.slots), pattern_.attends());
  }

  void run_backward(const Rung& rung) const {
    rung.backward(backward(rung.slots), pattern_.attends());
  }

  // Runs both passes, then compares sampled rows with the definition.
  double checked_error(const Rung& rung) const {
    check_problem(forward(rung.slots)), check_problem(backward(rung.slots));
    for (const Tensor& x : {x_.y, x_.lse, x_.dqkv}) device_.zero(x);
    run_forward(rung), run_backward(rung);
    const double error = spot_check(device_, pattern_.pattern(), x_, 12, 7);
    if (!(error <= kTolerance))
      fail("bench ladder: at n ", x_.qkv.shape()[1], " ", rung.name,
           " differs from the definition by ", error, " of the largest number of a row; at most ",
           kTolerance, " was expected");
    return error;
  }

  double pairs = 0;  // of all heads

 private:
  Device& device_;
  LadderPattern pattern_;
  AttentionTensors x_;
  Tensor delta_;
};

// What bounds the device: milliseconds of one direction at the rates that were measured here.
struct Roofline {
  double flops, milliseconds;

  Roofline(Device& device, double flop, double bytes)
      : flops(flop),
        milliseconds(1e3 * std::max(flop / device.peak_flops(DType::f32),
                                    bytes / device.copy_bandwidth())) {}

  Timed timed(double ms, double before) const {
    return {ms, flops / ms * 1e-6, milliseconds / ms, before > 0 ? before / ms : 0};
  }

  double gflops() const { return flops / milliseconds * 1e-6; }
};

// Runs of about 100 ms, at least one and at most ten; milliseconds of each are appended.
void time_into(RunTimer& timer, std::vector<double>& ms, const std::function<void()>& work) {
  double sum = 0;
  for (int runs = 0; runs < 10 && sum < 100; ++runs)
    sum += ms.emplace_back(timer.time(1, work).milliseconds.front());
}

const Columns kColumns = {{"rung", 11},   {"f ms", 9, 1},   {"GFLOP/s", 9, 1}, {"roof %", 8, 1},
                          {"gain", 7, 2}, {"b ms", 10, 1},  {"GFLOP/s", 9, 1}, {"roof %", 8, 1},
                          {"gain", 7, 2}, {"tokens", 8, 0}, {"file"}};

void print_json(const Rung& rung, const TimedRung& t, double error, const BenchLadderOptions& o,
                Device& device, std::ostream& out) {
  const Timed &f = t.forward, &b = t.backward;
  const JsonMembers members = {
      {"rung", rung.name},
      {"idea", rung.idea},
      {"device", device.description()},
      {"threads", omp_get_max_threads()},
      {"pattern", o.pattern},
      {"n", o.length},
      {"H", o.heads},
      {"D", o.size},
      {"stride", o.stride},
      {"c", o.c},
      {"error", error},
      {"tokens", rung.tokens},
      {"files", rung.files},
      {"forward_ms", f.ms},
      {"forward_gflops", f.gflops},
      {"forward_of_roofline", f.of_roofline},
      {"forward_gain", f.gain},
      {"backward_ms", b.ms},
      {"backward_gflops", b.gflops},
      {"backward_of_roofline", b.of_roofline},
      {"backward_gain", b.gain},
      {"matmul_gflops", device.peak_flops(DType::f32) * 1e-9},
      {"copy_GBps", device.copy_bandwidth() * 1e-9},
  };
  out << json_object(members) << std::endl;
}

void print_text(const Rung& rung, const TimedRung& t, std::ostream& out) {
  const Timed &f = t.forward, &b = t.backward;
  const std::string files = rung.files;
  const auto gain = [](const Timed& x) { return x.gain > 0 ? Cell(x.gain) : Cell("-"); };
  print_row(
      out, kColumns,
      {rung.name, f.ms, f.gflops, 100 * f.of_roofline, gain(f), b.ms, b.gflops, 100 * b.of_roofline,
       gain(b), static_cast<double>(rung.tokens), files.substr(0, files.find(' '))});
}

void print_what(Device& device, const BenchLadderOptions& o, double error, std::ostream& out) {
  out << device.description() << "; " << o.pattern << ", n " << o.length << ", heads " << o.heads
      << " of " << o.size << ", stride " << o.stride << ", c " << o.c << ", f32\n"
      << "every rung agrees with the definition: " << joined(kPatterns) << " at n "
      << kCheckedLength << ", sampled rows at n " << o.length << ", largest error " << error
      << "\nthis device: " << device.peak_flops(DType::f32) * 1e-9
      << " GFLOP/s of a GEMM, copy bandwidth " << device.copy_bandwidth() * 1e-9
      << " GB/s\nmedians of " << o.rounds
      << " rounds; GFLOP/s count the needed pairs, forward 4 D, "
      << "backward 10 D; roof: share of the roofline;\ngain: times as fast as the rung before; "
      << "tokens of code without comments\n";
  print_head(out, kColumns);
}
}  // namespace

std::vector<TimedRung> bench_ladder(const BenchLadderOptions& o, std::span<const Rung> rungs,
                                    std::ostream& out) {
  const auto device = make_device(o.device);
  const Workload load(*device, o);
  std::vector<double> error;
  for (const Rung& rung : rungs)
    error.push_back(std::max(checked_error(rung), load.checked_error(rung)));
  const auto size = static_cast<double>(o.size), flop = 4 * size * load.pairs;
  const Roofline forward_roof(*device, flop, load.forward(Slots::in_order).cost().bytes),
      backward_roof(*device, 2.5 * flop, load.backward(Slots::in_order).cost().bytes);
  if (!o.json) print_what(*device, o, *std::ranges::max_element(error), out);

  std::vector<std::vector<double>> forward_ms(rungs.size()), backward_ms(rungs.size());
  RunTimer timer(*device);
  for (int round = 0; round < o.rounds; ++round)
    for (std::size_t r = 0; r < rungs.size(); ++r) {
      time_into(timer, forward_ms[r], [&] { load.run_forward(rungs[r]); });
      time_into(timer, backward_ms[r], [&] { load.run_backward(rungs[r]); });
    }

  std::vector<TimedRung> timed;
  for (std::size_t r = 0; r < rungs.size(); ++r) {
    const double before[] = {r ? timed.back().forward.ms : 0, r ? timed.back().backward.ms : 0};
    timed.push_back({rungs[r].name, forward_roof.timed(median(forward_ms[r]), before[0]),
                     backward_roof.timed(median(backward_ms[r]), before[1])});
    o.json ? print_json(rungs[r], timed.back(), error[r], o, *device, out)
           : print_text(rungs[r], timed.back(), out);
  }
  if (!o.png.empty())
    write_png(o.png, staircase(timed, forward_roof.gflops(), backward_roof.gflops()));
  return timed;
}

// ---- the command ----

namespace {
void add_command(Commands commands) {
  static BenchLadderOptions o;
  CLI::App* command =
      commands.add("ladder", "attention rung by rung, from plain loops to the real kernel",
                   [] { bench_ladder(o, cpu_rungs(), std::cout); });
  add_shown(*command, "--device", o.device, "cpu")->check(CLI::IsMember({"cpu"}));
  add_shown(*command, "--pattern", o.pattern, "all, local, strided or fixed")
      ->check(CLI::IsMember(kPatterns));
  add_shown(*command, "--n", o.length, "positions")->check(at_least(1));
  add_shown(*command, "--heads", o.heads, "heads")->check(at_least(1));
  add_shown(*command, "--size", o.size, "size of a head")->check(at_least(1));
  add_shown(*command, "--stride", o.stride, "l of the pattern")->check(at_least(1));
  add_shown(*command, "--c", o.c, "c of fixed")->check(at_least(1));
  add_shown(*command, "--rounds", o.rounds, "how often every rung is timed")->check(at_least(1));
  add_output(*command, "--png", o.png, "the staircase as a picture");
  command->add_flag("--json", o.json, "one JSON object a rung");
}

const bool added = (linked_commands().push_back(add_command), true);
}  // namespace
}  // namespace weft::ladder
