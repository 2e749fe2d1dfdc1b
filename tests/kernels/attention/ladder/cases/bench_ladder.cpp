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
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <omp.h>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace weft::ladder {
namespace {
constexpr int64_t kCheckedLength = 201, kCudaHeads = 16;

// What rounding may cost, relative to the largest number.
double tolerance_on(const Device& device) { return device.is_cuda() ? 3e-2 : 1e-4; }

std::unique_ptr<AttentionPattern> pattern_of(const std::string& kind, int64_t stride, int64_t c,
                                             int64_t heads) {
  PatternSpec spec;
  spec.kind = kind;
  spec.stride = stride;
  spec.c = c;
  return make_pattern(spec, static_cast<int>(heads));
}

// The largest error of a rung at a small length, over the four patterns.
double checked_error(Device& device, const Rung& rung) {
  double worst = 0;
  const int64_t qk = device.is_cuda() ? kCudaHeadSize : 40, v = device.is_cuda() ? qk : 24;
  for (const std::string& kind : kPatterns) {
    const LadderPattern pattern(device, pattern_of(kind, 32, 8, 2), 2, kCheckedLength);
    worst = std::max(worst, error_of(device, rung, pattern, {1, kCheckedLength, 2, qk, v}));
  }
  if (!(worst <= tolerance_on(device)))
    fail("bench ladder: ", rung.name, " differs from the definition by ", worst,
         " of the largest number; at most ", tolerance_on(device), " was expected");
  return worst;
}

// Random numbers of a type.
Tensor normal(Device& device, const Shape& shape, DType dtype, unsigned seed) {
  const Tensor x(*device.pool, shape, dtype, "bench");
  std::mt19937 random(seed);
  std::normal_distribution<float> numbers;
  dispatch_float(dtype, [&]<class T>() {
    std::vector<T> values(static_cast<std::size_t>(x.size()));
    for (T& value : values) value = static_cast<T>(static_cast<wide_t<T>>(numbers(random)));
    device.upload(x, values.data());
  });
  return x;
}

// Random inputs, and outputs, of the length that is timed.
class Workload {
 public:
  Workload(Device& device, const BenchLadderOptions& o)
      : device_(device),
        pattern_(device, pattern_of(o.pattern, o.stride, o.c, o.heads), static_cast<int>(o.heads),
                 o.length) {
    const DType dtype = dtype_on(device.is_cuda());
    const Shape packed = {1, o.length, o.heads * 3 * o.size},
                attended = {1, o.length, o.heads * o.size}, rows = {1, o.heads, o.length};
    const auto empty = [&](const Shape& shape, DType t) {
      return Tensor(*device.pool, shape, t, "bench");
    };
    x_ = {
        .qkv = normal(device, packed, dtype, 1),
        .y = empty(attended, dtype),
        .dy = normal(device, attended, dtype, 2),
        .dqkv = empty(packed, dtype),
        .lse = empty(rows, DType::f32),
        .heads = o.heads,
        .qk_size = o.size,
        .v_size = o.size,
    };
    delta_ = empty(rows, DType::f32);
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
    run_rung(device_.queue, rung, pattern_, forward(rung.slots));
  }

  void run_backward(const Rung& rung) const {
    run_rung(device_.queue, rung, pattern_, backward(rung.slots));
  }

  // Runs both passes, then compares sampled rows with the definition.
  double checked_error(const Rung& rung) const {
    check_problem(forward(rung.slots), device_.is_cuda());
    check_problem(backward(rung.slots), device_.is_cuda());
    for (const Tensor& x : {x_.y, x_.lse, x_.dqkv}) device_.zero(x);
    run_forward(rung), run_backward(rung);
    const double error = spot_check(device_, pattern_.pattern(), x_, 12, 7);
    if (!(error <= tolerance_on(device_)))
      fail("bench ladder: at n ", x_.qkv.shape()[1], " ", rung.name,
           " differs from the definition by ", error, " of the largest number of a row; at most ",
           tolerance_on(device_), " was expected");
    return error;
  }

  // The share of the gradients whose bits differ between two runs. Error: some do, and should not.
  double unsteady(const Rung& rung) const {
    const auto gradients = [&] {
      run_backward(rung);
      std::vector<uint16_t> bits(static_cast<std::size_t>(x_.dqkv.view().bytes()) / 2);
      device_.download(bits.data(), x_.dqkv);
      return bits;
    };
    const std::vector<uint16_t> first = gradients(), again = gradients();
    std::size_t others = 0;
    for (std::size_t i = 0; i < first.size(); ++i) others += first[i] != again[i];
    if (rung.same_bits && others > 0)
      fail("bench ladder: two runs of ", rung.name, " differ in ", others, " of ", first.size(),
           " gradients; equal bits were expected");
    return static_cast<double>(others) / static_cast<double>(first.size());
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
        milliseconds(1e3 * std::max(flop / device.peak_flops(dtype_on(device.is_cuda())),
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

// Text rows: rates of a GPU are told in TFLOP/s, its times in more digits.
struct Units {
  const char* rate;
  double gflops;  // in one of them
  int digits;     // of milliseconds

  explicit Units(const Device& device)
      : rate(device.is_cuda() ? "TFLOP/s" : "GFLOP/s"),
        gflops(device.is_cuda() ? 1e3 : 1),
        digits(device.is_cuda() ? 3 : 1) {}

  Columns columns() const {
    return {{"rung", 11},   {"f ms", 9, digits},  {rate, 9, 1}, {"roof %", 8, 1},
            {"gain", 7, 2}, {"b ms", 10, digits}, {rate, 9, 1}, {"roof %", 8, 1},
            {"gain", 7, 2}, {"tokens", 8, 0},     {"file"}};
  }
};

void print_json(const Rung& rung, const TimedRung& t, double error, const BenchLadderOptions& o,
                Device& device, std::ostream& out) {
  JsonMembers members = {
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
      {"matmul_gflops", device.peak_flops(dtype_on(device.is_cuda())) * 1e-9},
      {"copy_GBps", device.copy_bandwidth() * 1e-9},
  };
  const auto add = [&](const std::string& direction, const Timed& x) {
    if (x.ms == 0) return;
    members.emplace_back(direction + "_ms", x.ms);
    members.emplace_back(direction + "_gflops", x.gflops);
    members.emplace_back(direction + "_of_roofline", x.of_roofline);
    members.emplace_back(direction + "_gain", x.gain);
  };
  add("forward", t.forward), add("backward", t.backward);
  out << json_object(members) << std::endl;
}

void print_text(const Rung& rung, const TimedRung& t, const Units& units, std::ostream& out) {
  const std::string files = rung.files;
  std::vector<Cell> cells = {rung.name};
  for (const Timed& x : {t.forward, t.backward}) {
    const auto cell = [&](double value) { return value > 0 ? Cell(value) : Cell("-"); };
    for (const double value : {x.ms, x.gflops / units.gflops, 100 * x.of_roofline, x.gain})
      cells.push_back(cell(value));
  }
  cells.emplace_back(static_cast<double>(rung.tokens));
  cells.emplace_back(files.substr(0, files.find(' ')));
  print_row(out, units.columns(), cells);
}

void print_what(Device& device, const BenchLadderOptions& o, double error,
                const std::string& unsteady, std::ostream& out) {
  const Units units(device);
  const DType dtype = dtype_on(device.is_cuda());
  out << device.description() << "; " << o.pattern << ", n " << o.length << ", heads " << o.heads
      << " of " << o.size << ", stride " << o.stride << ", c " << o.c << ", " << name_of(dtype)
      << "\n"
      << "every rung agrees with the definition: " << joined(kPatterns) << " at n "
      << kCheckedLength << ", sampled rows at n " << o.length << ", largest error " << error
      << "\nthis device: " << device.peak_flops(dtype) * 1e-9 / units.gflops << " " << units.rate
      << " of a GEMM, copy bandwidth " << device.copy_bandwidth() * 1e-9 << " GB/s\nmedians of "
      << o.rounds << " rounds; " << units.rate << " count the needed pairs, forward 4 D, "
      << "backward 10 D; roof: share of the roofline;\ngain: times as fast as the rung before; "
      << "tokens of code without comments\n"
      << unsteady;
  print_head(out, units.columns());
}

// Those that are asked for; all where none is.
std::vector<Rung> chosen(std::span<const Rung> rungs, const std::vector<std::string>& names) {
  if (names.empty()) return {rungs.begin(), rungs.end()};
  const auto name_of_rung = [](const Rung& rung) { return std::string(rung.name); };
  std::vector<Rung> chosen;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(rungs, name, name_of_rung);
    if (found == rungs.end())
      fail("--rungs: no rung of this device is named ", name, "; there are ",
           joined(rungs, ", ", name_of_rung));
    chosen.push_back(*found);
  }
  return chosen;
}
}  // namespace

std::vector<TimedRung> bench_ladder(const BenchLadderOptions& options,
                                    std::span<const Rung> of_device, std::ostream& out) {
  const auto device = make_device(options.device);
  BenchLadderOptions o = options;
  if (o.heads == 0) o.heads = device->is_cuda() ? kCudaHeads : 1;
  if (of_device.empty()) of_device = rungs_of(device->compute_capability);
  const std::vector<Rung> rungs = chosen(of_device, o.rungs);
  const Workload load(*device, o);
  std::vector<double> error;
  std::ostringstream unsteady;
  for (const Rung& rung : rungs) {
    error.push_back(std::max(checked_error(*device, rung), load.checked_error(rung)));
    if (!device->is_cuda() || !rung.backward) continue;
    const double share = load.unsteady(rung);
    if (!rung.same_bits)
      unsteady << rung.name << ": two runs differ in the bits of " << 100 * share
               << " % of the gradients\n";
  }
  const auto size = static_cast<double>(o.size), flop = 4 * size * load.pairs;
  const Roofline forward_roof(*device, flop, load.forward(Slots::in_order).cost().bytes),
      backward_roof(*device, 2.5 * flop, load.backward(Slots::in_order).cost().bytes);
  if (!o.json) print_what(*device, o, *std::ranges::max_element(error), unsteady.str(), out);

  std::vector<std::vector<double>> forward_ms(rungs.size()), backward_ms(rungs.size());
  RunTimer timer(*device);
  for (int round = 0; round < o.rounds; ++round)
    for (std::size_t r = 0; r < rungs.size(); ++r) {
      if (rungs[r].forward) time_into(timer, forward_ms[r], [&] { load.run_forward(rungs[r]); });
      if (rungs[r].backward) time_into(timer, backward_ms[r], [&] { load.run_backward(rungs[r]); });
    }

  std::vector<TimedRung> timed;
  double before[2] = {0, 0};
  const auto take = [](const Roofline& roof, const std::vector<double>& ms, double& last) {
    if (ms.empty()) return Timed{};
    const Timed x = roof.timed(median(ms), last);
    last = x.ms;
    return x;
  };
  for (std::size_t r = 0; r < rungs.size(); ++r) {
    timed.push_back({rungs[r].name, take(forward_roof, forward_ms[r], before[0]),
                     take(backward_roof, backward_ms[r], before[1])});
    o.json ? print_json(rungs[r], timed.back(), error[r], o, *device, out)
           : print_text(rungs[r], timed.back(), Units(*device), out);
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
                   [] { bench_ladder(o, {}, std::cout); });
  add_device(*command, o.device);
  add_shown(*command, "--pattern", o.pattern, "all, local, strided or fixed")
      ->check(CLI::IsMember(kPatterns));
  command->add_option("--rungs", o.rungs, "names of rungs, separated by commas; without it: all")
      ->delimiter(',');
  add_shown(*command, "--n", o.length, "positions")->check(at_least(1));
  add_shown(*command, "--heads", o.heads, "heads; 0: 1 on the CPU, 16 on a GPU")
      ->check(at_least(0));
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
