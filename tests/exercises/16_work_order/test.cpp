// SPDX-License-Identifier: MIT
// Processors that take tiles in turn, for the lists of patterns and for lists that are hard.
// Needs: weft
#include "src/patterns/packed_maps.h"
#include "src/patterns/pattern.h"
#include "tests/exercises/16_work_order/exercise.h"
#include "tests/exercises/check.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

namespace {
using exercise::expect;
using Work = std::vector<int64_t>;

// When the last processor is done.
int64_t time_of(const Work& work, const std::vector<int64_t>& order, int64_t processors) {
  std::vector<int64_t> busy_until(processors);
  for (const int64_t tile : order) *std::ranges::min_element(busy_until) += work[tile];
  return *std::ranges::max_element(busy_until);
}

// No order is faster: all work shared, or the largest tile.
int64_t least_time(const Work& work, int64_t processors) {
  const int64_t sum = std::accumulate(work.begin(), work.end(), int64_t{0});
  return std::max((sum + processors - 1) / processors, *std::ranges::max_element(work));
}

// Key tiles of each query tile.
Work work_of(const weft::PatternSpec& spec, int64_t n) {
  const weft::TileTables tables = weft::build_tile_tables(*weft::make_pattern(spec, 1), 0, n);
  Work work;
  for (int64_t t = 0; t < tables.query_tiles(); ++t)
    work.push_back(std::max(tables.row_start[t + 1] - tables.row_start[t], 1));
  return work;
}

Work random_work() {
  std::mt19937 random(2);
  Work work(500);
  for (int64_t& tile : work) tile = 1 + static_cast<int64_t>(random() % 64);
  return work;
}

void each_tile_is_taken_once() {
  for (const Work& work : {Work{5}, Work{3, 1, 2}, random_work()}) {
    std::vector<int64_t> order = work_order(work);
    std::ranges::sort(order);
    for (int64_t t = 0; t < static_cast<int64_t>(work.size()); ++t)
      expect(t < static_cast<int64_t>(order.size()) && order[t] == t, "of ", work.size(),
             " tiles, ", "tile ", t, " is not taken exactly once");
    expect(order.size() == work.size(), "there are ", work.size(), " tiles, ", order.size(),
           " are taken");
  }
}

// 4 / 3 of the best at most (Graham 1969); here the least time stands for the best.
void expect_fast(const std::string& what, const Work& work, int64_t processors, double most) {
  const std::vector<int64_t> order = work_order(work);
  const int64_t time = time_of(work, order, processors), least = least_time(work, processors);
  expect(static_cast<double>(time) <= most * static_cast<double>(least), what, " on ", processors,
         " processors takes ", time, ", ", least, " is the least; the tile taken last has work ",
         work[order.back()]);
}

void causal_attention() {
  for (const int64_t processors : {8, 24})
    expect_fast("all, 4,096 positions,", work_of({.kind = "all"}, 4096), processors, 1.12);
}

void fixed_attention() {
  expect_fast("fixed, 4,096 positions,", work_of({.kind = "fixed", .stride = 128, .c = 32}, 4096),
              24, 1.12);
}

void random_lists() {
  for (const int64_t processors : {3, 16, 100})
    expect_fast("random work", random_work(), processors, 1.12);
}

void one_large_tile_among_small_ones() {
  Work work(64, 1);
  work[40] = 16;
  expect_fast("one tile of work 16 among 63 of work 1", work, 5, 1.0);
}

void equal_work_gives_equal_orders() {
  const Work work{2, 7, 2, 7, 2, 7, 7, 7, 2, 2, 2, 7, 2, 7, 2, 2, 7, 2, 7, 2, 7};
  const std::vector<int64_t> order = work_order(work);
  for (std::size_t k = 1; k < order.size(); ++k)
    if (work[order[k]] == work[order[k - 1]])
      expect(order[k] > order[k - 1], "tiles ", order[k - 1], " and ", order[k],
             " have equal work and change places: neighbours read the same keys, and the order of ",
             "equal elements is unspecified in std::sort");
}
}  // namespace

int main() {
  return exercise::run({
      {"each tile is taken once", each_tile_is_taken_once},
      {"causal attention", causal_attention},
      {"fixed attention", fixed_attention},
      {"random lists", random_lists},
      {"one large tile among small ones", one_large_tile_among_small_ones},
      {"tiles of equal work stay in order", equal_work_gives_equal_orders},
  });
}
