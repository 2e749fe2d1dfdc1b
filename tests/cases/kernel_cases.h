// SPDX-License-Identifier: MIT
// The table of all kernels: their inputs and outputs at given sizes, and how exact they must be.
// Tests go through it on every device and type; bench verifies with it and times its realistic
// sizes.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/step_scalars.h"
#include "src/device.h"
#include "tests/cases/guarded.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {
class CaseRun;

// A kernel at one set of sizes.
struct KernelCase {
  const char* kernel = "";  // kName
  std::string sizes;        // "N 33, C 65"
  bool realistic = false;   // sizes of a training step: timed; the others are awkward and verified
  std::function<void(CaseRun&)> build;
};

const std::vector<KernelCase>& kernel_cases();

struct CaseOptions {
  DType compute = DType::f32;  // T
  // inputs are rounded to it: the f64 reference gets the numbers of a bf16 run
  DType rounded = DType::f32;
  bool accumulate = false;  // gradients are added to what is there
  bool misaligned = false;  // tensors begin one element past a 256-byte boundary
};

struct CaseOutput {
  std::string name;
  DType dtype;
  DType through;  // the coarsest type that its terms were rounded to on their way
  std::vector<double> values;
};

// The memory of a run: tensors between guard bands; inputs random, equal for equal options; outputs
// NaN.
class CaseRun {
 public:
  CaseRun(Device&, const KernelCase&, const CaseOptions&);

  void launch() { launch_(); }

  // Computes the outputs by the definition where the case has one; otherwise launches.
  void define() { definition_ ? definition_() : launch_(); }

  // What each output holds after launch(). Throws Error when a guard band or an input was written
  // to.
  std::vector<CaseOutput> outputs();

  double bytes() const { return bytes_; }  // read and written once each

  double flops() const { return flops_; }  // 0: bandwidth is what counts

  bool has_gradients() const { return has_gradients_; }

  // For builders. Values are mean + deviation * (random, about normal).
  TensorView input(const Shape& shape, double deviation = 1, double mean = 0) {  // type T
    return add("", shape, type(), noise(options_.rounded, deviation, mean));
  }

  // type wide(T)
  TensorView wide_input(const Shape& shape, double deviation = 1, double mean = 0) {
    return add("", shape, wide_type(), noise(wide(options_.rounded), deviation, mean));
  }

  TensorView input_of(const Shape&, DType stored, const std::vector<double>& values);

  const int32_t* numbers(const std::vector<double>& values) {
    return input_of({static_cast<int64_t>(values.size())}, DType::i32, values).as<int32_t>();
  }

  TensorView integers(const Shape&, int64_t first, int64_t last);  // i32 in [first, last]

  TensorView output(const char* name, const Shape& shape, DType t) {
    return add(name, shape, t, nullptr);
  }

  // The output made last is a function of values that the kernel has rounded to T.
  void through_rounded() { blocks_.back().through = type(); }

  GradView gradient(const char* name, const Shape& shape) {
    return gradient_of(name, shape, type(), options_.rounded);
  }

  GradView wide_gradient(const char* name, const Shape& shape) {
    return gradient_of(name, shape, wide_type(), wide(options_.rounded));
  }

  // Read and written.
  TensorView updated(const char* name, const Shape& shape, DType t, double deviation, double mean) {
    return add(name, shape, t, noise(wide(options_.rounded), deviation, mean));
  }

  // takes an input's place
  TensorView replaced(const char* name, const Shape& shape, double deviation = 1) {
    return add(name, shape, type(), noise(options_.rounded, deviation, 0));
  }

  // The same, with a mean for each element.
  TensorView replaced(const char* name, const Shape& shape, double deviation,
                      const std::vector<double>& means);

  // A struct: an output of that name, which is read as well, or "" for an input. Compared byte by
  // byte.
  template <class T>
  T* memory(const char* name, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return static_cast<T*>(bytes_at(name, &value, sizeof value));
  }

  // An output of `size` bytes at an aligned place, compared byte by byte.
  void* output_bytes(const char* name, int64_t size) {
    const Bytes poison(static_cast<std::size_t>(size), kPoisonByte);
    return bytes_at(name, poison.data(), poison.size());
  }

  const StepScalars* step();
  StepResults* results(float update_scale, bool is_output);

  Device& device() { return device_; }

  DType type() const { return options_.compute; }

  DType rounded() const { return options_.rounded; }  // what inputs are rounded to

  DType wide_type() const { return wide(options_.compute); }

  TensorView scratch(const Shape&, DType);  // neither an input nor an output

  void keep(std::shared_ptr<void> owner) { kept_.push_back(std::move(owner)); }

  void set_bytes(double bytes) { bytes_ = bytes; }

  // What stands in for the kernel as the f64 reference, in host memory.
  void definition(std::function<void()> f) { definition_ = std::move(f); }

  template <class Kernel>
  void kernel(const Kernel& k, double flops = 0) {
    flops_ = flops;
    launch_ = [this, k] { weft::launch(device_.queue, k); };
  }

 private:
  struct Block {
    std::string name;  // empty: an input
    GuardedMemory memory;
    TensorView view;
    DType through;
    Bytes before;  // of inputs of the smaller cases: what must still be there
  };

  TensorView add(const std::string& name, const Shape&, DType,
                 const std::function<double(int64_t)>& value);
  GradView gradient_of(const char* name, const Shape&, DType stored, DType rounded);
  void* bytes_at(const char* name, const void* value, std::size_t size);
  double random(int64_t i) const;
  std::function<double(int64_t)> noise(DType rounded, double deviation, double mean) const;

  Device& device_;
  CaseOptions options_;
  std::vector<Block> blocks_;
  std::vector<std::shared_ptr<void>> kept_;
  std::function<void()> launch_, definition_;
  double bytes_ = 0, flops_ = 0;
  bool has_gradients_ = false, realistic_ = false;
};

// Runs the case on `device` in options.compute, on the CPU in that type, and define() in f64 on the
// CPU, from the same inputs. Throws Error unless, for each output: the CPU's error is within the
// bound of its type (or of the coarser one of through_rounded()), the device's is at most twice
// that plus a floor, and a second run gives equal bits. With options.accumulate, kernels without
// gradients are not run.
void verify(Device& device, const KernelCase&, CaseOptions options);

// ---- how the files of this folder fill the table of cases: a function each, called in table.cpp

using Build = std::function<void(CaseRun&)>;

// Calls `f` with the run of a case and these values.
template <class... Values>
Build case_of(void (*f)(CaseRun&, Values...), std::type_identity_t<Values>... values) {
  return [=](CaseRun& r) { f(r, values...); };
}

class Table {
 public:
  // A case to verify. `sizes` are joined into its text.
  template <class Kernel, class... Sizes>
  void add(Build build, const Sizes&... sizes) {
    put<Kernel>(false, std::move(build), sizes...);
  }

  // A case of realistic size, to time.
  template <class Kernel, class... Sizes>
  void time(Build build, const Sizes&... sizes) {
    put<Kernel>(true, std::move(build), sizes...);
  }

  template <class Kernel, class... Sizes>
  void put(bool realistic, Build build, const Sizes&... sizes) {
    cases.push_back({Kernel::kName, str(sizes...), realistic, std::move(build)});
  }

  std::vector<KernelCase> cases;
};

// For the cases of a part, while static objects are made. Returns true.
bool add_cases_of_part(void (*add)(Table&));

void add_attention_cases(Table&);
void add_block_cases(Table&);  // residual blocks in sampling
void add_linear_activation_cases(Table&);
void add_norm_cases(Table&);
void add_rotary_cases(Table&);
void add_sampling_cases(Table&);
void add_step_cases(Table&);  // what an update does with losses, gradients and weights
}  // namespace weft
