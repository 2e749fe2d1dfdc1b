// SPDX-License-Identifier: MIT
// What tests of the engine and the model share: a device with step scalars, and gradients by
// central differences.
#pragma once

#include "src/device.h"
#include "src/tape.h"
#include "tests/testing.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
struct Engine {
  std::unique_ptr<Device> device;
  Tensor step_memory, results_memory;

  explicit Engine(const std::string& name = "cpu")
      : device(make_device(name)) {
    step_memory = Tensor(*device->pool, {sizeof(StepScalars)}, DType::u8, "step");
    results_memory = Tensor(*device->pool, {sizeof(StepResults)}, DType::u8, "step");
    set({});
  }

  void set(const StepScalars& step) { device->upload(step_memory, &step); }

  StepResults results() const {
    StepResults results;
    device->download(&results, results_memory);
    return results;
  }

  Ctx ctx(Tape* tape = nullptr, bool training = false) {
    Ctx c;
    c.queue = &device->queue;
    c.pool = device->pool.get();
    c.tape = tape;
    c.step = static_cast<StepScalars*>(step_memory.view().data);
    c.results = static_cast<StepResults*>(results_memory.view().data);
    c.training = training;
    return c;
  }

  void upload(const TensorView& dst, const std::vector<double>& values) {
    ASSERT_EQ(dst.size(), static_cast<int64_t>(values.size()));
    if (dst.dtype == DType::i32) return device->upload(dst, converted<int32_t>(values).data());
    if (dst.dtype == DType::f32) return device->upload(dst, converted<float>(values).data());
    if (dst.dtype == DType::f16) return device->upload(dst, converted<f16>(values).data());
    if (dst.dtype == DType::bf16) return device->upload(dst, converted<bf16>(values).data());
    ASSERT_EQ(dst.dtype, DType::f64);
    device->upload(dst, values.data());
  }

  Tensor tensor(const Shape& shape, const std::vector<double>& values, DType dtype = DType::f64) {
    const Tensor t(*device->pool, shape, dtype);
    upload(t, values);
    return t;
  }

  std::vector<double> host(const TensorView& t) { return to_host(*device, t); }
};

inline int64_t elements(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

// An op of f64 inputs. With a random weight w on each output, compares d(sum w y)/dx as the tape
// has it with central differences, for every element of every input. Inputs are used twice over, so
// that gradients are also added.
using OpUnderTest = std::function<Var(Ctx&, const std::vector<Var>&)>;

inline void check_gradients(const std::vector<Shape>& shapes, const OpUnderTest& op,
                            bool training = false, double tolerance = 1e-6) {
  Engine engine;
  engine.set({.seed = 5, .draw = 3});
  std::vector<std::vector<double>> values;
  for (const Shape& shape : shapes) {
    values.push_back(normals(elements(shape), static_cast<unsigned>(values.size()) + 1));
  }
  const auto run = [&](Tape* tape, std::vector<Var>& inputs) {
    inputs.clear();
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      inputs.push_back({engine.tensor(shapes[i], values[i]), std::make_shared<Gradient>()});
    }
    Ctx ctx = engine.ctx(tape, training);
    const Var once = op(ctx, inputs), twice = op(ctx, inputs);
    return std::pair{once, twice};
  };
  std::vector<Var> inputs;
  std::vector<double> w1, w2;
  const auto objective = [&] {
    std::vector<Var> fresh;
    const auto [once, twice] = run(nullptr, fresh);
    return inner_product(w1, engine.host(once.value)) + inner_product(w2, engine.host(twice.value));
  };
  Tape tape;
  Ctx ctx = engine.ctx(&tape, training);
  const auto [once, twice] = run(&tape, inputs);
  w1 = normals(once.value.size(), 77);
  w2 = normals(once.value.size(), 78);
  once.gradient->tensor = engine.tensor(once.shape(), w1);
  twice.gradient->tensor = engine.tensor(once.shape(), w2);
  once.gradient->written = twice.gradient->written = true;
  tape.run_backward(ctx);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    ASSERT_TRUE(inputs[i].gradient->written) << "input " << i;
    expect_gradient(values[i], engine.host(inputs[i].gradient->tensor), objective,
                    str("gradient of input ", i), tolerance);
  }
}
}  // namespace weft
