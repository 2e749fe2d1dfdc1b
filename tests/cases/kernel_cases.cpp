// SPDX-License-Identifier: MIT
#include "tests/cases/kernel_cases.h"

#include "tests/cases/compare.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr unsigned char kInputGuard = 0xa5,
                        kOutputGuard = 0x5a;  // different: copying one over the other shows

// Counter-based: element i of a tensor is the same whatever was made before it.
uint64_t scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void write_element(unsigned char* at, DType t, double value) {
  dispatch_any(t, [&]<class T>() {
    const T element = static_cast<T>(value);
    std::memcpy(at, &element, sizeof element);
  });
}

double read_element(const unsigned char* at, DType t) {
  double value = 0;
  dispatch_any(t, [&]<class T>() {
    T element;
    std::memcpy(&element, at, sizeof element);
    value = static_cast<double>(element);
  });
  return value;
}

// `value` as an element of type t would hold it.
double rounded_to(DType t, double value) {
  unsigned char bytes[8];
  write_element(bytes, t, value);
  return read_element(bytes, t);
}

// Relative error that the CPU form may have, and the floor of the comparison with it, by type of
// the output.
struct Tolerance {
  double bound, floor;
};

Tolerance tolerance_of(DType t) {
  switch (t) {
    case DType::f64: return {0, 0};
    case DType::f16: return {2e-3, 2e-4};
    case DType::bf16: return {1.5e-2, 1.5e-3};
    default: return {2e-5, 2e-6};
  }
}

std::vector<CaseOutput> run_once(Device& device, const KernelCase& c, const CaseOptions& options) {
  CaseRun run(device, c, options);
  run.launch();
  return run.outputs();
}

}  // namespace

CaseRun::CaseRun(Device& device, const KernelCase& c, const CaseOptions& options)
    : device_(device),
      options_(options),
      realistic_(c.realistic) {
  c.build(*this);
  WEFT_CHECK(launch_ && !blocks_.empty(), c.kernel, ": its case makes no kernel");
}

double CaseRun::random(int64_t i) const {
  const uint64_t bits = scramble(scramble(blocks_.size()) + static_cast<uint64_t>(i));
  double sum = 0;  // four uniform numbers: variance 4 / 12
  for (int j = 0; j < 4; ++j)
    sum += static_cast<double>((bits >> (16 * j)) & 0xffffu) / 65536.0 - 0.5;
  return sum * std::sqrt(3.0);
}

std::function<double(int64_t)> CaseRun::noise(DType rounded, double deviation, double mean) const {
  return [=, this](int64_t i) { return rounded_to(rounded, mean + deviation * random(i)); };
}

// `value` empty: poison.
TensorView CaseRun::add(const std::string& name, const Shape& shape, DType t,
                        const std::function<double(int64_t)>& value) {
  TensorView view;
  view.dtype = t;
  view.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape);
  Bytes content(static_cast<std::size_t>(view.bytes()), kPoisonByte);
  if (value) {
#pragma omp parallel for schedule(static) if (view.bytes() > (1 << 16))
    for (int64_t i = 0; i < view.size(); ++i)
      write_element(content.data() + i * size_of(t), t, value(i));
  }
  const bool is_input = name.empty();
  GuardedMemory memory(device_, content, is_input ? kInputGuard : kOutputGuard,
                       options_.misaligned ? size_of(t) : 0);
  view.data = memory.data();
  bytes_ += static_cast<double>(view.bytes());
  if (!is_input || realistic_) content.clear();
  blocks_.push_back({name, std::move(memory), view, t, std::move(content)});
  return view;
}

TensorView CaseRun::input_of(const Shape& shape, DType stored, const std::vector<double>& values) {
  return add("", shape, stored, [&](int64_t i) { return values[static_cast<std::size_t>(i)]; });
}

TensorView CaseRun::replaced(const char* name, const Shape& shape, double deviation,
                             const std::vector<double>& means) {
  return add(name, shape, type(), [&](int64_t i) {
    return rounded_to(options_.rounded, means[static_cast<std::size_t>(i)] + deviation * random(i));
  });
}

TensorView CaseRun::integers(const Shape& shape, int64_t first, int64_t last) {
  const uint64_t seed = scramble(blocks_.size());
  const auto count = static_cast<uint64_t>(last - first + 1);
  return add("", shape, DType::i32, [=](int64_t i) {
    return static_cast<double>(
        first + static_cast<int64_t>(scramble(seed + static_cast<uint64_t>(i)) % count));
  });
}

GradView CaseRun::gradient_of(const char* name, const Shape& shape, DType stored, DType rounded) {
  has_gradients_ = true;
  if (!options_.accumulate) return {add(name, shape, stored, nullptr), false};
  return {add(name, shape, stored, noise(rounded, 1, 0)), true};
}

TensorView CaseRun::scratch(const Shape& shape, DType t) {
  const auto memory = std::make_shared<Tensor>(*device_.pool, shape, t, "case");
  keep(memory);
  return memory->view();
}

const StepScalars* CaseRun::step() {
  const StepScalars scalars = {
      0x123456789abcdef0u, 7, 11, 1e-2f, 8e-2f, 0.3f, 0.1f, 0.9f, 0.7f, 0.5f, 0.8f};
  const TensorView memory = scratch({sizeof scalars}, DType::u8);
  device_.upload(memory, &scalars);
  return static_cast<const StepScalars*>(memory.data);
}

StepResults* CaseRun::results(float update_scale, bool is_output) {
  const std::vector<double> values = {0, 0, static_cast<double>(update_scale), 0};
  static_assert(sizeof(StepResults) == 4 * sizeof(float));
  const bool misaligned = std::exchange(options_.misaligned, false);
  const TensorView v = add(is_output ? "results" : "", {4}, DType::f32,
                           [&](int64_t i) { return values[static_cast<std::size_t>(i)]; });
  options_.misaligned = misaligned;
  return static_cast<StepResults*>(v.data);
}

void* CaseRun::bytes_at(const char* name, const void* value, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(value);
  const bool misaligned = std::exchange(options_.misaligned, false);
  const TensorView v = add(name, {static_cast<int64_t>(size)}, DType::u8,
                           [&](int64_t i) { return static_cast<double>(bytes[i]); });
  options_.misaligned = misaligned;
  return v.data;
}

std::vector<CaseOutput> CaseRun::outputs() {
  std::vector<CaseOutput> outputs;
  for (const Block& block : blocks_) {
    if (block.name.empty() && block.before.empty()) continue;
    const auto [content, kept_before, kept_after] = block.memory.read();
    if (block.name.empty()) {
      WEFT_CHECK(content == block.before && kept_before && kept_after, "an input ",
                 shape_text(block.view), " or its surroundings were written to");
      continue;
    }
    WEFT_CHECK(kept_before, "memory before ", block.name, " was written to");
    WEFT_CHECK(kept_after, "memory after ", block.name, " was written to");
    CaseOutput out{block.name, block.view.dtype, block.through,
                   std::vector<double>(static_cast<std::size_t>(block.view.size()))};
    const unsigned char* at = content.data();
    for (double& value : out.values) {
      value = read_element(at, out.dtype);
      at += size_of(out.dtype);
    }
    outputs.push_back(std::move(out));
  }
  return outputs;
}

void verify(Device& device, const KernelCase& c, CaseOptions options) {
  const auto cpu = make_device("cpu");
  options.rounded = options.compute;
  CaseOptions reference = options;
  reference.compute = DType::f64;
  CaseRun f64(*cpu, c, reference);
  if (options.accumulate && !f64.has_gradients()) return;
  f64.define();
  const std::vector<CaseOutput> want = f64.outputs(), plain = run_once(*cpu, c, options);
  const std::vector<CaseOutput> got = run_once(device, c, options),
                                again = run_once(device, c, options);
  for (std::size_t i = 0; i < want.size(); ++i) {
    WEFT_CHECK(std::ranges::none_of(want[i].values, [](double v) { return std::isnan(v); }),
               c.kernel, " (", c.sizes, "): elements of ", want[i].name,
               " are not written, or NaN");
    const Tolerance tolerance = tolerance_of(got[i].dtype);
    const double cpu_error = relative_error(plain[i].values, want[i].values);
    const double error = relative_error(got[i].values, want[i].values);
    const double bound = std::max(tolerance.bound, tolerance_of(got[i].through).bound);
    const std::string what =
        str(c.kernel, " (", c.sizes, ", ", name_of(options.compute), "): ", want[i].name);
    WEFT_CHECK(cpu_error <= bound, what, " on the CPU is off by ", cpu_error,
               " of its size, at most ", bound, " is right");
    WEFT_CHECK(error <= 2 * cpu_error + tolerance.floor, what, " on ", device.name, " is off by ",
               error, " of its size, the CPU form by ", cpu_error);
    WEFT_CHECK(same_bits(got[i].values, again[i].values), what, " on ", device.name,
               " differs from run to run");
  }
}
}  // namespace weft
