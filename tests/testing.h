// SPDX-License-Identifier: MIT
// What the tests of every folder share: seeded random numbers, host arrays as views, comparison,
// and gradients by central differences in f64.
#pragma once

#include "kernels/queue.h"
#include "kernels/view.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace weft {
inline CpuQueue queue;

inline std::vector<double> normals(int64_t count, unsigned seed, double std = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, std);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& v : values) v = normal(random);
  return values;
}

template <class To, class From>
std::vector<To> converted(const std::vector<From>& from) {
  std::vector<To> to(from.size());
  std::transform(from.begin(), from.end(), to.begin(), [](From x) { return static_cast<To>(x); });
  return to;
}

// A host array as a kernel sees it.
template <class T>
TensorView view_of(std::vector<T>& values, const std::vector<int64_t>& shape) {
  TensorView v{values.data(), dtype_of<T>, static_cast<int>(shape.size())};
  std::copy(shape.begin(), shape.end(), v.shape);
  WEFT_CHECK(v.size() == static_cast<int64_t>(values.size()), "view_of: ", values.size(),
             " values as ", shape_text(v));
  return v;
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                        double relative, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double top = 0;
  for (const double w : want) top = std::max(top, std::abs(w));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - want[i]), relative * std::max(top, 1e-3))
        << what << ", element " << i << ": " << got[i] << " for " << want[i];
  }
}

inline double inner_product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `gradient` is that of objective() with respect to x, which it reads.
inline void expect_gradient(std::vector<double>& x, const std::vector<double>& gradient,
                            const std::function<double()>& objective, const std::string& what,
                            double tolerance = 1e-6) {
  constexpr double h = 1e-5;
  std::vector<double> differences;
  for (double& element : x) {
    const double kept = element;
    element = kept + h;
    const double up = objective();
    element = kept - h;
    const double down = objective();
    element = kept;
    differences.push_back((up - down) / (2 * h));
  }
  expect_near(gradient, differences, tolerance, what);
}
}  // namespace weft
