// SPDX-License-Identifier: MIT
// `bench attention`: the shapes of the paper's models; each pattern is checked, then timed.
#include "kernels/attention/select.h"
#include "src/config/names.h"
#include "train/bench/bench.h"
#include "train/bench/check.h"
#include "train/bench/run_timer.h"
#include "train/program/json.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {
// One shape of attention, with the numbers that its patterns take.
struct AttentionBenchShape {
  std::string name;
  int64_t batch = 1, heads = 1, length = 1, qk_size = 64, v_size = 64;  // B, H, n, Dqk, Dv
  int64_t stride = 128, c = 32;
  std::vector<std::string> modes = {"all", "local", "strided", "fixed", "merged_strided"};
};

const std::vector<AttentionBenchShape> kPaperShapes = {
    {"enwik8", 4, 8, 12288, 64, 64, 128, 32},
    {"cifar10", 32, 2, 3072, 128, 128, 128, 32},
    {"cifar10_half", 32, 2, 3072, 64, 128, 128, 32},
    {"cifar10_s96", 32, 2, 3072, 128, 128, 96, 32},
    {"cifar10_half_s96", 32, 2, 3072, 64, 128, 96, 32},
    {"long64k", 1, 8, 65536, 64, 64, 256, 32},
    {"long1m", 1, 4, 1048576, 64, 64, 1024, 32, {"strided", "fixed"}},
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

AttentionBenchShape custom_shape(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const std::string& part : split(text)) {
    numbers.push_back(number_in<int64_t>(part).value_or(0));
    if (numbers.back() < 1) fail("--shape: '", part, "' is not a positive whole number");
  }
  if (numbers.size() != 7) fail("--shape takes B,H,n,Dqk,Dv,stride,c, got '", text, "'");
  return {"custom",   numbers[0], numbers[1], numbers[2],
          numbers[3], numbers[4], numbers[5], numbers[6]};
}

std::vector<AttentionBenchShape> chosen_shapes(const BenchAttentionOptions& options) {
  if (!options.custom.empty()) return {custom_shape(options.custom)};
  if (options.shapes == "paper") return kPaperShapes;
  std::vector<AttentionBenchShape> chosen;
  for (const std::string& name : split(options.shapes)) {
    const auto found = std::ranges::find(kPaperShapes, name, &AttentionBenchShape::name);
    if (found == kPaperShapes.end())
      fail("--shapes: no shape '", name, "'; known: paper (all), ",
           joined(kPaperShapes, ", ", &AttentionBenchShape::name));
    chosen.push_back(*found);
  }
  return chosen;
}

// Normal random numbers, repeated after a prime number of them: no two rows are alike.
Tensor random_tensor(Device& device, const Shape& shape, DType dtype, unsigned seed) {
  constexpr int64_t kPeriod = 4194301;
  const Tensor x(*device.pool, shape, dtype, "bench");
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const int64_t count = std::min(kPeriod, x.size());
  dispatch_float(dtype, [&]<class T>() {
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(normal(random));
    for (int64_t at = 0; at < x.size(); at += count) {
      const int64_t here = std::min(count, x.size() - at);
      device.upload(x.slice(at, {here}), values.data());
    }
  });
  return x;
}

// What rounding to the type may cost, relative to the largest number of a row.
double tolerance(DType dtype) {
  return dtype == DType::bf16 ? 3e-2 : dtype == DType::f16 ? 4e-3 : 1e-4;
}

AttentionForward forward_of(const AttentionTensors& x, const AttentionMaps& maps,
                            AttentionForm form) {
  const auto [q, k, v] = packed_heads(x.qkv, x.heads, x.qk_size, x.v_size);
  return {
      .y = heads_of(x.y, 0, x.heads, x.v_size),
      .lse = x.lse,
      .q = q,
      .k = k,
      .v = v,
      .maps = maps,
      .scale = 1 / std::sqrt(static_cast<double>(x.qk_size)),
      .form = form,
  };
}

AttentionBackward backward_of(const AttentionForward& f, const AttentionTensors& x,
                              const Tensor& delta) {
  const auto [dq, dk, dv] = packed_heads(x.dqkv, x.heads, x.qk_size, x.v_size);
  return weft::backward_of(f, dq, dk, dv, delta, heads_of(x.dy, 0, x.heads, x.v_size));
}

PatternSpec pattern_spec(const std::string& mode, const AttentionBenchShape& shape) {
  PatternSpec spec;
  spec.kind = mode;
  spec.stride = shape.stride;
  spec.c = shape.c;
  if (mode != "merged_strided") return spec;
  spec.kind = "merged";
  for (const char* kind : {"local", "strided"}) spec.of.push_back(pattern_spec(kind, shape));
  return spec;
}

// Random inputs, and outputs, of one shape and type; patterns share them.
struct AttentionWorkload {
  AttentionWorkload(Device& device, const AttentionBenchShape& s, DType dtype) {
    const Shape packed = {s.batch, s.length, s.heads * (2 * s.qk_size + s.v_size)};
    const Shape attended = {s.batch, s.length, s.heads * s.v_size},
                rows = {s.batch, s.heads, s.length};
    const auto empty = [&](const Shape& shape, DType type) {
      return Tensor(*device.pool, shape, type, "bench");
    };
    tensors = {
        .qkv = random_tensor(device, packed, dtype, 1),
        .y = empty(attended, dtype),
        .dy = random_tensor(device, attended, dtype, 2),
        .dqkv = empty(packed, dtype),
        .lse = empty(rows, DType::f32),
        .heads = s.heads,
        .qk_size = s.qk_size,
        .v_size = s.v_size,
    };
    delta = empty(rows, DType::f32);
  }

  DType dtype() const { return tensors.y.dtype(); }

  AttentionTensors tensors;
  Tensor delta;
};

// A pattern of a workload. Both outlive it.
class AttentionBenchCase {
 public:
  // Runs both passes once; with options.verify, Error if a result is further from f64 than rounding
  // explains.
  AttentionBenchCase(Device& device, const AttentionBenchShape& shape, const std::string& mode,
                     const AttentionWorkload& load, const BenchAttentionOptions& options)
      : device_(device),
        pattern_(make_pattern(pattern_spec(mode, shape), static_cast<int>(shape.heads))),
        maps_(device, *pattern_, static_cast<int>(shape.heads), shape.length,
              std::max(shape.qk_size, shape.v_size)),
        forward_(forward_of(load.tensors, maps_.maps(), attention::parse_form(options.form))),
        backward_(backward_of(forward_, load.tensors, load.delta)),
        scratch_(attention_scratch(*device.pool, device.queue, backward_)) {
    backward_.scratch = scratch_;
    form = device.is_cuda()
               ? attention::kernels_text(forward_, backward_, device.compute_capability)
               : "cpu";
    forward_bytes = forward_.cost().bytes;
    both_bytes = forward_bytes + backward_.cost().bytes;
    PairCount count;
    for (int head = 0; head < static_cast<int>(shape.heads); ++head) count += maps_.pairs(head);
    pairs = static_cast<double>(count.needed) * static_cast<double>(shape.batch);
    waste = count.waste();
    run_both();
    if (!options.verify) return;
    error = spot_check(device, *pattern_, load.tensors, 12, 7);
    if (!(error <= tolerance(load.dtype())))
      fail("bench attention: ", shape.name, ", ", mode, ", ", name_of(load.dtype()),
           ": results differ from f64 by ", error, " of the largest number of a row; at most ",
           tolerance(load.dtype()), " was expected");
  }

  void run_forward() const { launch(device_.queue, forward_); }

  void run_both() const {
    launch(device_.queue, forward_);
    launch(device_.queue, backward_);
  }

  std::string form;  // the kernels that ran
  // error: the largest, relative to the largest number of a row
  double pairs = 0, waste = 0, error = 0;
  double forward_bytes = 0, both_bytes = 0;  // of the tensors

 private:
  Device& device_;
  std::unique_ptr<AttentionPattern> pattern_;
  DeviceMaps maps_;
  AttentionForward forward_;
  AttentionBackward backward_;
  Tensor scratch_;
};

struct PassRow {
  double ms = 0, clock = 0;  // median; MHz, mean, 0: the device has none to read
  double tflops = 0, tbps = 0;
  double of_all = 0;  // time of `all` / time; 0: `all` is not measured
};

struct Row {
  const AttentionBenchShape& shape;
  const std::string& mode;
  DType dtype;
  const AttentionBenchCase& work;
  PassRow forward, both;
};

void print_json(const Row& r, Device& device, const BenchAttentionOptions& options,
                std::ostream& out) {
  const AttentionBenchShape& s = r.shape;
  JsonMembers members = {
      {"case", s.name}, {"mode", r.mode}, {"B", s.batch}, {"H", s.heads}, {"N", s.length}};
  const auto add = [&](const JsonMembers& more) {
    members.insert(members.end(), more.begin(), more.end());
  };
  const PassRow &f = r.forward, &b = r.both;
  add({{"D", s.qk_size}, {"Dv", s.v_size}, {"s", s.stride}, {"c", s.c}});
  add({{"peer", "weft"},
       {"asked", options.form},
       {"form", r.work.form},
       {"dtype", name_of(r.dtype)}});
  add({{"fwd_ms", f.ms}, {"fwdbwd_ms", b.ms}, {"fwd_MHz", f.clock}, {"fwdbwd_MHz", b.clock}});
  add({{"pause_ms", options.pause_ms}, {"fwd_tflops", f.tflops}, {"fwdbwd_tflops", b.tflops}});
  add({{"fwd_TBps", f.tbps}, {"fwdbwd_TBps", b.tbps}});
  add({{"matmul_tflops", device.peak_flops(r.dtype) * 1e-12},
       {"copy_TBps", device.copy_bandwidth() * 1e-12}});
  if (b.of_all > 0) add({{"fwd_of_all", f.of_all}, {"fwdbwd_of_all", b.of_all}});
  add({{"pairs", r.work.pairs}, {"waste", r.work.waste}, {"error", r.work.error}});
  members.emplace_back("verified", options.verify);
  out << json_object(members) << std::endl;
}

const Columns kColumns = {{"shape", 17},     {"pattern", 15},      {"type", 5},   {"f ms", 10, 4},
                          {"f+b ms", 10, 4}, {"TFLOP/s f", 11, 1}, {"f+b", 7, 1}, {"TB/s f", 8, 2},
                          {"f+b", 6, 2},     {"x all", 7, 1},      {"f+b", 7, 1}, {"waste", 7, 2},
                          {"error", 8, 4},   {"kernels"}};

void print_text(const Row& r, std::ostream& out) {
  print_row(out, kColumns,
            {r.shape.name, r.mode, name_of(r.dtype), r.forward.ms, r.both.ms, r.forward.tflops,
             r.both.tflops, r.forward.tbps, r.both.tbps, r.forward.of_all, r.both.of_all,
             r.work.waste, r.work.error, r.work.form});
}

// What bounds every row of this device.
void print_ceilings(Device& device, const BenchAttentionOptions& options,
                    const std::vector<DType>& dtypes, std::ostream& out) {
  if (options.json) {
    const auto ceiling = [&](const std::string& name, double value) {
      out << json_object({{"ceiling", name}, {"peer", "weft"}, {"value", value * 1e-12}})
          << std::endl;
    };
    for (const DType dtype : dtypes)
      ceiling(str(name_of(dtype), "_matmul_tflops"), device.peak_flops(dtype));
    return ceiling("copy_TBps", device.copy_bandwidth());
  }
  out << device.description() << ", form " << options.form << "\n"
      << (options.verify ? "sampled rows of outputs and gradients are compared with f64 first\n"
                         : "NOT compared with f64 (--no-verify)\n");
  if (device.is_cuda())
    out << "medians; 256 MiB are cleared before each run, so that caches are cold\n";
  if (options.pause_ms > 0) out << options.pause_ms << " ms idle before each run (--pause-ms)\n";
  out << "TFLOP/s count needed pairs: forward 2 (Dqk + Dv), backward 6 Dqk + 4 Dv; TB/s count each "
         "tensor "
         "once; x all: speedup over `all`\nthis device:";
  for (const DType dtype : dtypes)
    out << " " << device.peak_flops(dtype) * 1e-12 << " TFLOP/s of a GEMM in " << name_of(dtype)
        << ",";
  out << " copy bandwidth " << device.copy_bandwidth() * 1e-12 << " TB/s\n";
  print_head(out, kColumns);
}

void measure_shape(Device& device, const AttentionBenchShape& shape, DType dtype,
                   const BenchAttentionOptions& options, std::ostream& out) {
  const AttentionWorkload load(device, shape, dtype);
  const auto qk = static_cast<double>(shape.qk_size), v = static_cast<double>(shape.v_size);
  double forward_of_all = 0, both_of_all = 0;  // milliseconds
  for (const std::string& mode : options.modes.empty() ? shape.modes : split(options.modes)) {
    const AttentionBenchCase work(device, shape, mode, load, options);
    const auto time = [&](double flop_of_pair, double bytes, double& of_all,
                          const std::function<void()>& run) {
      const TimedRuns runs = RunTimer(device, options.pause_ms).time_for(200, run);
      const double ms = runs.median_ms();
      if (mode == "all") of_all = ms;
      return PassRow{ms, runs.mean_clock(), flop_of_pair * work.pairs / ms * 1e-9,
                     bytes / ms * 1e-9, of_all / ms};
    };
    const Row row{
        shape,
        mode,
        dtype,
        work,
        time(2 * (qk + v), work.forward_bytes, forward_of_all, [&] { work.run_forward(); }),
        time(8 * qk + 6 * v, work.both_bytes, both_of_all, [&] { work.run_both(); })};
    options.json ? print_json(row, device, options, out) : print_text(row, out);
  }
}
}  // namespace

void bench_attention(const BenchAttentionOptions& options, std::ostream& out) {
  std::vector<DType> dtypes;
  for (const std::string& name : split(options.dtype)) dtypes.push_back(bench_dtype(name));
  if (dtypes.empty()) fail("--dtype names no type");
  attention::parse_form(options.form);
  const std::vector<AttentionBenchShape> shapes = chosen_shapes(options);
  const auto device = make_device(options.device);
  print_ceilings(*device, options, dtypes, out);
  for (const AttentionBenchShape& shape : shapes)
    for (const DType dtype : dtypes) measure_shape(*device, shape, dtype, options, out);
}
}  // namespace weft
