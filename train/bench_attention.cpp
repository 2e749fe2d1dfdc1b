// SPDX-License-Identifier: MIT
// `bench attention`: the shapes of the paper's models, rows of times and of rates that count needed pairs and
// bytes only.
#include "train/bench_attention.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <ostream>
#include <random>
#include <sstream>

#include "kernels/attention_forms.h"
#include "kernels/timer.h"
#include "src/attention_maps.h"
#include "train/attention_spot_check.h"
#include "train/bench_kernels.h"

namespace weft {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

AttentionBenchShape custom_shape(const std::string& text) {
  std::vector<std::int64_t> numbers;
  for (const std::string& part : split(text)) {
    std::size_t used = 0;
    std::int64_t number = 0;
    try {
      number = std::stoll(part, &used);
    } catch (const std::exception&) {}
    if (used != part.size() || number < 1) fail(str("--shape: '", part, "' is not a positive whole number"));
    numbers.push_back(number);
  }
  if (numbers.size() != 7) fail(str("--shape takes B,H,n,Dqk,Dv,stride,c, got '", text, "'"));
  return {"custom", numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6]};
}

std::vector<AttentionBenchShape> chosen_shapes(const BenchAttentionOptions& options) {
  if (!options.custom.empty()) return {custom_shape(options.custom)};
  if (options.shapes == "paper") return attention_bench_shapes();
  std::vector<AttentionBenchShape> chosen;
  for (const std::string& name : split(options.shapes)) {
    const auto& known = attention_bench_shapes();
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const auto& s) { return s.name == name; });
    if (found == known.end()) {
      std::string names;
      for (const auto& shape : known) names += ", " + shape.name;
      fail(str("--shapes: no shape '", name, "'; known: paper (all)", names));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

// Normal random numbers, repeated after a prime number of them: no two rows are alike.
Tensor random_tensor(Device& device, const Shape& shape, DType dtype, unsigned seed) {
  constexpr std::int64_t kPeriod = 4194301;
  const Tensor x(*device.pool, shape, dtype, "bench");
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const std::int64_t count = std::min(kPeriod, x.size());
  dispatch_float(dtype, [&]<class T>() {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) value = static_cast<T>(normal(random));
    for (std::int64_t at = 0; at < x.size(); at += count) {
      const std::int64_t here = std::min(count, x.size() - at);
      device.upload(x.slice(at, {here}), values.data());
    }
  });
  return x;
}

// Inputs and outputs of one shape; patterns of the same shape share them.
struct Workload {
  AttentionTensors x;
  Tensor delta;

  Workload(Device& device, const AttentionBenchShape& s, DType dtype) {
    const Shape packed = {s.batch, s.length, s.heads * (2 * s.qk_size + s.v_size)};
    const Shape attended = {s.batch, s.length, s.heads * s.v_size}, rows = {s.batch, s.heads, s.length};
    x.heads = s.heads, x.qk_size = s.qk_size, x.v_size = s.v_size;
    x.qkv = random_tensor(device, packed, dtype, 1);
    x.dy = random_tensor(device, attended, dtype, 2);
    x.y = Tensor(*device.pool, attended, dtype, "bench");
    x.dqkv = Tensor(*device.pool, packed, dtype, "bench");
    x.lse = Tensor(*device.pool, rows, DType::f32, "bench");
    delta = Tensor(*device.pool, rows, DType::f32, "bench");
  }
  HeadsView q(const Tensor& t) const { return heads_of(t, 0, x.heads, x.qk_size); }
  HeadsView k(const Tensor& t) const { return heads_of(t, x.heads * x.qk_size, x.heads, x.qk_size); }
  HeadsView v(const Tensor& t) const { return heads_of(t, 2 * x.heads * x.qk_size, x.heads, x.v_size); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(x.qk_size)); }

  AttentionForward forward(const AttentionMaps& maps, AttentionForm form) const {
    return {.y = heads_of(x.y, 0, x.heads, x.v_size),
            .lse = x.lse,
            .q = q(x.qkv),
            .k = k(x.qkv),
            .v = v(x.qkv),
            .maps = maps,
            .scale = scale(),
            .form = form};
  }
  AttentionBackward backward(const AttentionMaps& maps, AttentionForm form) const {
    return {.dq = q(x.dqkv),
            .dk = k(x.dqkv),
            .dv = v(x.dqkv),
            .delta = delta,
            .dy = heads_of(x.dy, 0, x.heads, x.v_size),
            .y = heads_of(x.y, 0, x.heads, x.v_size),
            .lse = x.lse,
            .q = q(x.qkv),
            .k = k(x.qkv),
            .v = v(x.qkv),
            .maps = maps,
            .scale = scale(),
            .form = form};
  }
};

struct Result {
  std::string mode, form;  // the pattern; the kernels that ran
  double forward_ms = 0, both_ms = 0, pairs = 0, waste = 0, error = 0;
  double forward_bytes = 0, both_bytes = 0;    // of the tensors
  double forward_of_all = 0, both_of_all = 0;  // time of `all` / time; 0: `all` is not measured
};

// What a row is of.
struct RowOf {
  const AttentionBenchShape& shape;
  DType dtype;
  const BenchAttentionOptions& options;
  double matrix_rate, copy_rate;  // of the device
};

double median_ms(Device& device, const std::function<void()>& work) {
  const auto flush = l2_flush(device);
  const auto timed = [&](int repeats) {
    return std::visit([&](auto& queue) { return time_runs(queue, repeats, flush, work); }, device.queue);
  };
  const double first = timed(device.is_cuda() ? 3 : 1).back();
  std::vector<double> times = timed(std::clamp(static_cast<int>(200 / first), 3, 50));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// What rounding of inputs, probabilities and results to the type may cost, relative to the largest number of
// a row.
double tolerance(DType dtype) { return dtype == DType::bf16 ? 3e-2 : dtype == DType::f16 ? 4e-3 : 1e-4; }

// The kernels of each pass.
std::string form_text(const Device& device, const AttentionForward& forward,
                      const AttentionBackward& backward) {
  if (!device.is_cuda()) return "cpu";
  const std::string there = attention::forms_text(forward, device.compute_capability),
                    back = attention::forms_text(backward, device.compute_capability);
  return there == back ? there : there + "; backward " + back;
}

Result measure(Device& device, const AttentionBenchShape& shape, const std::string& mode,
               const Workload& load, AttentionForm form, bool verify) {
  const auto heads = static_cast<int>(shape.heads);
  const auto pattern = make_pattern(attention_bench_pattern(mode, shape), heads);
  const DeviceMaps maps(device, *pattern, heads, shape.length, std::max(shape.qk_size, shape.v_size));
  const AttentionForward forward = load.forward(maps.maps(), form);
  AttentionBackward backward = load.backward(maps.maps(), form);
  const Tensor scratch = attention_scratch(*device.pool, device.queue, backward);
  backward.scratch = scratch;
  Result result;
  result.mode = mode;
  result.form = form_text(device, forward, backward);
  result.forward_bytes = forward.cost().bytes;
  result.both_bytes = result.forward_bytes + backward.cost().bytes;
  PairCount pairs;
  for (int head = 0; head < heads; ++head) pairs += maps.pairs(head);
  result.pairs = static_cast<double>(pairs.needed) * static_cast<double>(shape.batch);
  result.waste = pairs.waste();
  launch(device.queue, forward);
  launch(device.queue, backward);
  if (verify) {
    result.error = spot_check(device, *pattern, load.x, 12, 7);
    if (!(result.error <= tolerance(load.x.y.dtype())))
      fail(str("bench attention: ", shape.name, ", ", mode, ", ", name_of(load.x.y.dtype()),
               ": results differ from f64 by ", result.error, " of the largest number of a row; at most ",
               tolerance(load.x.y.dtype()), " was expected"));
  }
  result.forward_ms = median_ms(device, [&] { launch(device.queue, forward); });
  result.both_ms = median_ms(device, [&] {
    launch(device.queue, forward);
    launch(device.queue, backward);
  });
  return result;
}

struct Rates {
  double tflops, tbps;
};
Rates forward_rates(const Result& r, const AttentionBenchShape& s) {
  const double flop = 2 * static_cast<double>(s.qk_size + s.v_size) * r.pairs;
  return {flop / r.forward_ms * 1e-9, r.forward_bytes / r.forward_ms * 1e-9};
}
Rates both_rates(const Result& r, const AttentionBenchShape& s) {
  const double flop = (8 * static_cast<double>(s.qk_size) + 6 * static_cast<double>(s.v_size)) * r.pairs;
  return {flop / r.both_ms * 1e-9, r.both_bytes / r.both_ms * 1e-9};
}

void print_json(const Result& r, const RowOf& row, std::ostream& out) {
  const AttentionBenchShape& s = row.shape;
  const Rates forward = forward_rates(r, s), both = both_rates(r, s);
  out << "{\"case\": \"" << s.name << "\", \"mode\": \"" << r.mode << "\", \"B\": " << s.batch
      << ", \"H\": " << s.heads << ", \"N\": " << s.length << ", \"D\": " << s.qk_size
      << ", \"Dv\": " << s.v_size << ", \"s\": " << s.stride << ", \"c\": " << s.c
      << ", \"peer\": \"weft\", \"asked\": \"" << row.options.form << "\", \"form\": \"" << r.form
      << "\", \"dtype\": \"" << name_of(row.dtype) << "\", \"fwd_ms\": " << r.forward_ms
      << ", \"fwdbwd_ms\": " << r.both_ms << ", \"fwd_tflops\": " << forward.tflops
      << ", \"fwdbwd_tflops\": " << both.tflops << ", \"fwd_TBps\": " << forward.tbps
      << ", \"fwdbwd_TBps\": " << both.tbps << ", \"matmul_tflops\": " << row.matrix_rate * 1e-12
      << ", \"copy_TBps\": " << row.copy_rate * 1e-12;
  if (r.both_of_all > 0)
    out << ", \"fwd_of_all\": " << r.forward_of_all << ", \"fwdbwd_of_all\": " << r.both_of_all;
  out << ", \"pairs\": " << r.pairs << ", \"waste\": " << r.waste << ", \"error\": " << r.error
      << ", \"verified\": " << (row.options.verify ? "true" : "false") << "}" << std::endl;
}

void print_text(const Result& r, const RowOf& row, std::ostream& out) {
  const AttentionBenchShape& s = row.shape;
  const Rates forward = forward_rates(r, s), both = both_rates(r, s);
  const auto cell = [&](int width, int digits, double value) {
    out << std::setw(width) << std::setprecision(digits) << value;
  };
  out << std::left << std::setw(17) << s.name << std::setw(15) << r.mode << std::setw(5) << name_of(row.dtype)
      << std::right << std::fixed;
  cell(10, 4, r.forward_ms), cell(10, 4, r.both_ms);
  cell(11, 1, forward.tflops), cell(7, 1, both.tflops);
  cell(8, 2, forward.tbps), cell(6, 2, both.tbps);
  cell(7, 1, r.forward_of_all), cell(7, 1, r.both_of_all);
  cell(7, 2, r.waste), cell(8, 4, r.error);
  out << "  " << r.form << std::defaultfloat << std::endl;
}

void print_head(Device& device, const BenchAttentionOptions& options, const std::vector<DType>& dtypes,
                std::ostream& out) {
  if (options.json) {
    for (const DType dtype : dtypes)
      out << "{\"ceiling\": \"" << name_of(dtype)
          << "_matmul_tflops\", \"peer\": \"weft\", \"value\": " << device.matrix_rate(dtype) * 1e-12
          << "}\n";
    out << "{\"ceiling\": \"copy_TBps\", \"peer\": \"weft\", \"value\": " << device.copy_rate() * 1e-12 << "}"
        << std::endl;
    return;
  }
  out << device.description() << ", form " << options.form << "\n"
      << (options.verify ? "sampled rows of outputs and gradients are compared with f64 first\n"
                         : "NOT compared with f64 (--no-verify)\n");
  if (device.is_cuda())
    out << "256 MiB are cleared before each run, so that nothing is found in a cache; medians\n";
  out << "TFLOP/s count needed pairs: forward 2 (Dqk + Dv), backward 6 Dqk + 4 Dv; TB/s each tensor once; x "
         "all: "
         "how many times faster than `all`\nthis device:";
  for (const DType dtype : dtypes)
    out << " " << device.matrix_rate(dtype) * 1e-12 << " TFLOP/s in " << name_of(dtype) << " products,";
  out << " " << device.copy_rate() * 1e-12 << " TB/s in copies\n"
      << std::left << std::setw(17) << "shape" << std::setw(15) << "pattern" << std::setw(5) << "type"
      << std::right << std::setw(10) << "f ms" << std::setw(10) << "f+b ms" << std::setw(11) << "TFLOP/s f"
      << std::setw(7) << "f+b" << std::setw(8) << "TB/s f" << std::setw(6) << "f+b" << std::setw(7) << "x all"
      << std::setw(7) << "f+b" << std::setw(7) << "waste" << std::setw(8) << "error"
      << "  kernels" << std::endl;
}

void measure_shape(Device& device, const AttentionBenchShape& shape, DType dtype,
                   const BenchAttentionOptions& options, std::ostream& out) {
  const Workload load(device, shape, dtype);
  const AttentionForm form = attention::parse_form(options.form);
  const RowOf row{shape, dtype, options, device.matrix_rate(dtype), device.copy_rate()};
  Result all;
  for (const std::string& mode : options.modes.empty() ? shape.modes : split(options.modes)) {
    Result r = measure(device, shape, mode, load, form, options.verify);
    if (mode == "all") all = r;
    r.forward_of_all = all.forward_ms / r.forward_ms;
    r.both_of_all = all.both_ms / r.both_ms;
    options.json ? print_json(r, row, out) : print_text(r, row, out);
  }
}

}  // namespace

const std::vector<AttentionBenchShape>& attention_bench_shapes() {
  static const std::vector<AttentionBenchShape> shapes = {
      {"enwik8", 4, 8, 12288, 64, 64, 128, 32},
      {"cifar10", 32, 2, 3072, 128, 128, 128, 32},
      {"cifar10_half", 32, 2, 3072, 64, 128, 128, 32},
      {"cifar10_s96", 32, 2, 3072, 128, 128, 96, 32},
      {"cifar10_half_s96", 32, 2, 3072, 64, 128, 96, 32},
      {"long64k", 1, 8, 65536, 64, 64, 256, 32},
      {"long1m", 1, 4, 1048576, 64, 64, 1024, 32, {"strided", "fixed"}},
  };
  return shapes;
}

PatternSpec attention_bench_pattern(const std::string& mode, const AttentionBenchShape& shape) {
  PatternSpec spec;
  spec.kind = mode;
  spec.stride = shape.stride;
  spec.c = shape.c;
  if (mode != "merged_strided") return spec;
  spec.kind = "merged";
  for (const char* kind : {"local", "strided"}) spec.of.push_back(attention_bench_pattern(kind, shape));
  return spec;
}

void bench_attention(const BenchAttentionOptions& options, std::ostream& out) {
  std::vector<DType> dtypes;
  for (const std::string& name : split(options.dtype)) dtypes.push_back(bench_dtype(name));
  if (dtypes.empty()) fail("--dtype names no type");
  attention::parse_form(options.form);
  const std::vector<AttentionBenchShape> shapes = chosen_shapes(options);
  const auto device = make_device(options.device);
  print_head(*device, options, dtypes, out);
  for (const AttentionBenchShape& shape : shapes)
    for (const DType dtype : dtypes) measure_shape(*device, shape, dtype, options, out);
}

}  // namespace weft
