// SPDX-License-Identifier: MIT
// Patterns of weft against plain loops, and counts of the pairs that were looked at.
// Needs: weft
#include "kernels/attention/definition.h"
#include "src/patterns/packed_maps.h"
#include "src/patterns/pattern.h"
#include "tests/exercises/07_skip_tiles/exercise.h"
#include "tests/exercises/check.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

using exercise::expect;

Problem::Problem(int64_t positions, std::function<bool(int64_t, int64_t)> attends)
    : attends_(std::move(attends)) {
  std::mt19937 random(4);
  std::normal_distribution<double> normal;
  for (Matrix* matrix : {&q_, &k_, &v_}) {
    matrix->assign(positions, Row(4));
    for (Row& row : *matrix)
      for (double& value : row) value = normal(random);
  }
}

int64_t Problem::positions() const { return static_cast<int64_t>(q_.size()); }

int64_t Problem::size() const { return static_cast<int64_t>(v_[0].size()); }

void Problem::check(const char* what, int64_t position) const {
  expect(position != -1, what, " -1 was asked for: a slot may be empty");
  expect(position >= 0 && position < positions(), what, " ", position, " was asked for, there are ",
         positions(), ": is it a slot, not a position?");
}

bool Problem::attends(int64_t i, int64_t j) const {
  check("query", i);
  check("key", j);
  ++asked_;
  return attends_(i, j);
}

double Problem::score(int64_t i, int64_t j) const {
  check("query", i);
  check("key", j);
  ++computed_;
  return 0.5 * weft::definition::dot(q_[i], k_[j]);
}

const Row& Problem::value(int64_t j) const {
  check("key", j);
  return v_[j];
}

namespace {
// y of every query as the definition has it. Names the first query that differs.
void compare(const weft::PatternSpec& spec, int64_t n) {
  const std::unique_ptr<weft::AttentionPattern> pattern = weft::make_pattern(spec, 1);
  const weft::TileTables tables = weft::build_tile_tables(*pattern, 0, n);
  const Problem problem(n, [&](int64_t i, int64_t j) { return pattern->attends(0, i, j); });
  Matrix want(n);
  std::vector<int64_t> keys(n);  // that a query sees
  for (int64_t i = 0; i < n; ++i) {
    Softmax softmax(problem.size());
    for (int64_t j = 0; j < n; ++j)
      if (problem.attends(i, j)) {
        softmax.add(problem.score(i, j), problem.value(j));
        ++keys[i];
      }
    want[i] = softmax.result();
  }
  const int64_t asked = problem.asked(), computed = problem.computed();
  const std::string what = pattern->name() + ", " + std::to_string(n) + " positions";
  const Matrix got = attend(problem, tables);
  expect(got.size() == want.size(), what, ": y has ", got.size(), " rows, ", n, " are wanted");
  for (int64_t i = 0; i < n; ++i) {
    expect(got[i].size() == want[i].size(), what, ": row ", i, " of y was not written");
    for (std::size_t d = 0; d < want[i].size(); ++d)
      expect(std::abs(got[i][d] - want[i][d]) < 1e-12, what, ": y of query ", i, ", which sees ",
             keys[i], keys[i] == 1 ? " key" : " keys", ", is ", want[i][d], ", yours is ",
             got[i][d]);
  }
  expect(problem.asked() == asked, what, ": attends() was called ", problem.asked() - asked,
         " times; the masks of the tables know the pairs");
  expect(problem.computed() - computed <= tables.pairs.executed, what, ": ",
         problem.computed() - computed, " scores were computed, the tiles of the tables have ",
         tables.pairs.executed, " pairs, all tiles ", n * n);
}

void tiles_in_the_order_of_positions() {
  compare({.kind = "all"}, 64);
  compare({.kind = "local", .stride = 40}, 256);
  compare({.kind = "block", .stride = 32}, 192);
}

void tiles_without_a_masked_pair() { compare({.kind = "all"}, 256); }

void the_last_tile_is_partly_empty() { compare({.kind = "local", .stride = 70}, 201); }

void positions_in_another_order() {
  compare({.kind = "strided", .stride = 16}, 256);
  compare({.kind = "strided", .stride = 24}, 300);
  compare({.kind = "fixed", .stride = 32, .c = 8}, 300);
}

void queries_without_a_key() { compare({.kind = "summary", .stride = 32, .c = 8}, 130); }
}  // namespace

int main() {
  return exercise::run({
      {"tiles in the order of positions", tiles_in_the_order_of_positions},
      {"tiles without a masked pair", tiles_without_a_masked_pair},
      {"a last tile that is partly empty", the_last_tile_is_partly_empty},
      {"positions in another order", positions_in_another_order},
      {"queries without a key", queries_without_a_key},
  });
}
