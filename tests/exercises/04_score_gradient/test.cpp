// SPDX-License-Identifier: MIT
// Central differences of a softmax, and delta from the output of a query.
#include "kernels/attention/definition.h"
#include "tests/exercises/04_score_gradient/exercise.h"
#include "tests/exercises/check.h"

#include <cmath>
#include <cstddef>
#include <random>

namespace {
using exercise::expect;
using weft::definition::dot;

Row normals(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Row values(count);
  for (double& value : values) value = normal(random);
  return values;
}

Row softmax(const Row& s) {
  Row p;
  double sum = 0;
  for (const double value : s) p.push_back(std::exp(value)), sum += p.back();
  for (double& value : p) value /= sum;
  return p;
}

// The weights sum to 1 whatever the scores are.
void a_constant_added_to_all_scores_changes_nothing() {
  const Row ds = score_gradient(softmax(normals(6, 3)), normals(6, 4));
  double sum = 0;
  for (const double value : ds) sum += value;
  expect(std::abs(sum) < 1e-12, "the gradients of a row must sum to 0, yours sum to ", sum,
         ": each score also changes the weights of all other keys");
}

void gradients_are_those_of_differences() {
  for (const std::size_t keys : {2, 3, 9}) {
    Row s = normals(keys, 1);
    const Row dp = normals(keys, 2), ds = score_gradient(softmax(s), dp);
    expect(ds.size() == keys, "there are ", keys, " scores, and ", ds.size(), " gradients");
    for (std::size_t j = 0; j < keys; ++j) {
      const double kept = s[j], h = 1e-5;
      s[j] = kept + h;
      const double above = dot(softmax(s), dp);
      s[j] = kept - h;
      const double below = dot(softmax(s), dp);
      s[j] = kept;
      const double want = (above - below) / (2 * h);
      expect(std::abs(ds[j] - want) < 1e-8, keys, " keys: raising score ", j,
             " a little changes the loss by ", want, " a unit; your gradient is ", ds[j]);
    }
  }
}

void delta_needs_neither_p_nor_dp() {
  const Row p = softmax(normals(7, 5)), dy = normals(4, 6);
  Row y(4), dp;
  for (std::size_t j = 0; j < p.size(); ++j) {
    const Row v = normals(4, 10 + static_cast<unsigned>(j));
    weft::definition::add(y, p[j], v);
    dp.push_back(dot(dy, v));
  }
  const double want = dot(p, dp), got = delta(y, dy);
  expect(std::abs(got - want) < 1e-12, "sum_j p_j dp_j is ", want, ", your delta is ", got);
}

void keys_with_weight_0_have_gradient_0() {
  const Row ds = score_gradient({0, 0.5, 0.5}, {1000, 1, 3});
  expect(ds[0] == 0, "a masked key must have gradient 0, yours is ", ds[0]);
  expect(std::abs(ds[1] + 0.5) < 1e-12, "beside a masked key: expected -0.5, got ", ds[1]);
}
}  // namespace

int main() {
  return exercise::run({
      {"a constant added to all scores changes nothing",
       a_constant_added_to_all_scores_changes_nothing},
      {"gradients are those of differences", gradients_are_those_of_differences},
      {"keys with weight 0 have gradient 0", keys_with_weight_0_have_gradient_0},
      {"delta needs neither p nor dp", delta_needs_neither_p_nor_dp},
  });
}
