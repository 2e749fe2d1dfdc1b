// SPDX-License-Identifier: MIT
// `bench attention`: the shapes of the paper's models, rows of times and of rates that count needed pairs and
// bytes only.
#include "train/bench/attention.h"

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "kernels/attention/select.h"
#include "train/bench/attention_case.h"
#include "train/bench/attention_types.h"
#include "train/bench/kernels.h"
#include "train/bench/run_timer.h"

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

std::vector<std::string> modes_of(const AttentionBenchShape& shape, const BenchAttentionOptions& options) {
  return options.modes.empty() ? shape.modes : split(options.modes);
}

// What a row is of.
struct RowOf {
  const AttentionBenchShape& shape;
  DType dtype;
  const BenchAttentionOptions& options;
  double matrix_rate, copy_rate;  // of the device
};

// Runs in a row, after a few that are not counted.
TimedRuns runs_of(Device& device, int pause_ms, const std::function<void()>& work) {
  RunTimer timer(device, pause_ms);
  const double first = timer.time(device.is_cuda() ? 3 : 1, work).milliseconds.back();
  return timer.time(std::clamp(static_cast<int>(200 / first), 3, 50), work);
}

struct Result {
  std::string mode, form;  // the pattern; the kernels that ran
  double forward_ms = 0, both_ms = 0, pairs = 0, waste = 0, error = 0;
  double forward_clock = 0, both_clock = 0;    // MHz, mean; 0: the device has none to read
  double forward_bytes = 0, both_bytes = 0;    // of the tensors
  double forward_of_all = 0, both_of_all = 0;  // time of `all` / time; 0: `all` is not measured
};

Result measure(Device& device, const AttentionBenchCase& work, const std::string& mode, int pause_ms) {
  const TimedRuns forward = runs_of(device, pause_ms, [&] { work.run_forward(); }),
                  both = runs_of(device, pause_ms, [&] { work.run_both(); });
  return {.mode = mode,
          .form = work.form,
          .forward_ms = forward.median_ms(),
          .both_ms = both.median_ms(),
          .pairs = work.pairs,
          .waste = work.waste,
          .error = work.error,
          .forward_clock = forward.mean_clock(),
          .both_clock = both.mean_clock(),
          .forward_bytes = work.forward_bytes,
          .both_bytes = work.both_bytes};
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
      << ", \"fwdbwd_ms\": " << r.both_ms << ", \"fwd_MHz\": " << r.forward_clock
      << ", \"fwdbwd_MHz\": " << r.both_clock << ", \"pause_ms\": " << row.options.pause_ms
      << ", \"fwd_tflops\": " << forward.tflops << ", \"fwdbwd_tflops\": " << both.tflops
      << ", \"fwd_TBps\": " << forward.tbps << ", \"fwdbwd_TBps\": " << both.tbps
      << ", \"matmul_tflops\": " << row.matrix_rate * 1e-12 << ", \"copy_TBps\": " << row.copy_rate * 1e-12;
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
  if (options.pause_ms > 0) out << options.pause_ms << " ms of rest before each run (--pause-ms)\n";
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
  const AttentionWorkload load(device, shape, dtype);
  const AttentionForm form = attention::parse_form(options.form);
  const RowOf row{shape, dtype, options, device.matrix_rate(dtype), device.copy_rate()};
  Result all;
  for (const std::string& mode : modes_of(shape, options)) {
    const AttentionBenchCase work(device, shape, mode, load, form, options.verify);
    Result r = measure(device, work, mode, options.pause_ms);
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
  if (options.f16_against_bf16) {
    if (!options.json) {
      out << device->description() << (options.verify ? "\n" : ", NOT compared with f64 (--no-verify)\n");
      print_f16_against_bf16_head(out);
    }
    for (const AttentionBenchShape& shape : shapes)
      bench_f16_against_bf16(*device, shape, modes_of(shape, options), options, out);
    return;
  }
  print_head(*device, options, dtypes, out);
  for (const AttentionBenchShape& shape : shapes)
    for (const DType dtype : dtypes) measure_shape(*device, shape, dtype, options, out);
}

}  // namespace weft
