// SPDX-License-Identifier: MIT
// Both passes of attention on a device beside the definition.
#pragma once

#include "tests/cases/attention_on_device.h"

#include <algorithm>
#include <string>

namespace weft::attention_test {
// Runs both passes of x on the device, twice; x has the results. Error: the second run gives other
// bits, or a kernel writes beside its results. scratch: the backward pass has some where that makes
// a difference. parted: maps of each sequence's own in place of the segments.
template <class T>
void run_twice(Device& device, Data<T>& x, const AttentionMaps& of_all, bool scratch = true,
               bool parted = false) {
  Data<T> first = x;
  for (Data<T>* result : {&first, &x}) {
    OnDevice<T> on(device, x);
    const AttentionMaps maps = parted ? on.part(of_all) : of_all;
    launch(device.queue, on.forward(maps));
    launch(device.queue, scratch ? on.backward_with_scratch(maps) : on.backward(maps));
    device.synchronize();
    const std::string overwritten = on.written_beside();
    WEFT_CHECK(overwritten.empty(), "a kernel wrote out of the bounds of ", overwritten);
    on.fetch(*result);
  }
  WEFT_CHECK(same_results(first, x), "two runs differ in their bits");
}

// What the results of a problem must be.
template <class T>
struct Expected {
  Data<double> exact;  // the definition in f64
  Data<T> plain;       // on a GPU the CPU form in T; on a CPU the definition, rounded to T

  // edge: of the CPU form's tiles.
  Expected(const Device& device, const AttentionPattern& pattern, const Data<T>& inputs,
           int edge = kBest)
      : exact(inputs),
        plain(inputs) {
    by_definition(exact.forward({}), pattern);
    by_definition(exact.backward({}), pattern);
    if (!device.is_cuda()) {
      by_definition(plain.forward({}), pattern);
      by_definition(plain.backward({}), pattern);
      return;
    }
    const Sizes& s = inputs.size;
    const HostMaps host(pattern, static_cast<int>(s.heads), s.lengths(), std::max(s.qk, s.v), edge);
    CpuQueue cpu;
    run(cpu, plain.forward(host.maps));
    run(cpu, plain.backward(host.maps));
  }

  // Error names the first result that errs by more than twice as much as `plain`, plus `floor`.
  void check(const Data<T>& got, double floor) const {
    check_near("y", got.y, plain.y, exact.y, floor);
    check_near("dq", got.dq, plain.dq, exact.dq, floor);
    check_near("dk", got.dk, plain.dk, exact.dk, floor);
    check_near("dv", got.dv, plain.dv, exact.dv, floor);
    const double lse = difference(got.lse, exact.lse);
    WEFT_CHECK(lse <= 1e-5, "lse has an error of ", lse, ", 1e-5 is allowed");
  }

  template <class Got>
  static void check_near(const std::string& what, const Got& got, const std::vector<T>& plain,
                         const std::vector<double>& exact, double floor) {
    const double error = difference(got, exact), allowed = 2 * difference(plain, exact) + floor;
    WEFT_CHECK(error <= allowed, what, " has an error of ", error, ", ", allowed,
               " is allowed (twice that of the plain computation, plus a floor)");
  }
};
}  // namespace weft::attention_test
