// SPDX-License-Identifier: MIT
// One query against the definition of attention, in tiles of several sizes.
#include "kernels/attention/definition.h"
#include "tests/exercises/03_online_softmax/exercise.h"
#include "tests/exercises/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <random>

namespace {
using exercise::expect;
using weft::definition::Head;
using weft::definition::Matrix;

constexpr double kNone = -std::numeric_limits<double>::infinity();

// 40 keys, of which `attends` says who is seen. Scores have the standard deviation `spread`.
void compare(const std::string& what, std::size_t tile, double spread, double shift,
             const std::function<bool(std::size_t)>& attends) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  Head head;
  head.q = {{1, 1}};
  for (int j = 0; j < 40; ++j) {
    head.k.push_back({spread * normal(random), shift});
    head.v.push_back({normal(random), normal(random), 1});
  }
  head.attends = [&](std::size_t, std::size_t j) { return attends(j); };
  const weft::definition::Output want = weft::definition::forward(head);

  State state{.y = {0, 0, 0}};
  bool seen = false;
  for (std::size_t first = 0; first < head.k.size(); first += tile) {
    std::vector<double> scores;
    Matrix v;
    for (std::size_t j = first; j < std::min(first + tile, head.k.size()); ++j) {
      scores.push_back(attends(j) ? weft::definition::dot(head.q[0], head.k[j]) : kNone);
      v.push_back(head.v[j]);
      seen = seen || attends(j);
    }
    add_tile(state, scores, v);
    for (const double value : state.y)
      expect(!std::isnan(value), what, ", tiles of ", tile, ": y is NaN after the tile of key ",
             first, seen ? "" : ", which has no key: (-infinity) - (-infinity) is NaN");
  }
  const double lse = finish(state);
  if (want.lse[0] == kNone) {
    expect(lse == kNone, what, ": lse must be -infinity, got ", lse);
    expect(state.y == want.y[0], what, ": y must be 0, got ", state.y[0]);
    return;
  }
  const bool lse_is_right = std::abs(lse - want.lse[0]) < 1e-9;
  for (std::size_t d = 0; d < state.y.size(); ++d)
    expect(std::abs(state.y[d] - want.y[0][d]) < 1e-12, what, ", tiles of ", tile, ": y[", d,
           "] must be ", want.y[0][d], ", got ", state.y[d],
           lse_is_right ? "; lse is right, so the largest score and the sum are"
                        : "; lse is wrong, too",
           d == 2 ? " (the weights must sum to 1: every v here is 1)" : "");
  expect(lse_is_right, what, ", tiles of ", tile, ": lse must be ", want.lse[0], ", got ", lse);
}

void one_tile_is_a_softmax() {
  compare("one tile", 40, 1, 0, [](std::size_t) { return true; });
}

void tiles_of_any_size_give_the_same() {
  for (const std::size_t tile : {1, 7, 16, 39})
    compare("scores near 0", tile, 1, 0, [](std::size_t) { return true; });
  for (const std::size_t tile : {1, 7, 16})
    compare("scores of all sizes", tile, 20, 0, [](std::size_t) { return true; });
}

void large_scores_do_not_overflow() {
  compare("scores near 2000", 16, 1, 2000, [](std::size_t) { return true; });
  compare("scores near -2000", 16, 1, -2000, [](std::size_t) { return true; });
}

void tiles_without_an_attended_key_change_nothing() {
  compare("the first tiles are masked", 8, 1, 0, [](std::size_t j) { return j >= 20; });
  compare("the last tiles are masked", 8, 1, 0, [](std::size_t j) { return j < 4; });
  compare("every other tile is masked", 8, 1, 0, [](std::size_t j) { return j / 8 % 2 == 1; });
}

void a_query_without_keys_gives_zero() {
  compare("no key is attended", 8, 1, 0, [](std::size_t) { return false; });
}
}  // namespace

int main() {
  return exercise::run({
      {"one tile is a softmax", one_tile_is_a_softmax},
      {"tiles of any size give the same", tiles_of_any_size_give_the_same},
      {"large scores do not overflow", large_scores_do_not_overflow},
      {"tiles without an attended key change nothing",
       tiles_without_an_attended_key_change_nothing},
      {"a query without keys gives zero", a_query_without_keys_gives_zero},
  });
}
