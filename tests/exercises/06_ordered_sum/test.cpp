// SPDX-License-Identifier: MIT
// Teams of several sizes, whose workers come in an order that changes, and numbers whose order
// matters.
#include "tests/exercises/06_ordered_sum/exercise.h"
#include "tests/exercises/check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

Team::Team(int size, unsigned seed)
    : size_(size),
      seed_(seed) {}

void Team::run(const std::function<void(int worker)>& work) {
  std::vector<int> order(size_);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed_++));
  for (const int worker : order) {
    at_work_ = worker;
    work(worker);
  }
  at_work_ = -1;
}

Numbers::Numbers(std::vector<float> values, const Team& team)
    : values_(std::move(values)),
      team_(team),
      reads_(values_.size()),
      of_worker_(team.size() + 1) {}

int64_t Numbers::size() const { return static_cast<int64_t>(values_.size()); }

float Numbers::operator[](int64_t i) const {
  exercise::expect(i >= 0 && i < size(), "number ", i, " does not exist; there are ", size());
  ++reads_[i];
  ++of_worker_[team_.at_work() + 1];
  return values_[i];
}

int64_t Numbers::most_reads() const { return *std::ranges::max_element(of_worker_); }

namespace {
using exercise::expect;

constexpr int64_t kNumbers = 100'003;  // a prime: no piece size divides it

// Numbers of unequal size, whose sum depends on their order. With `cancel` most of them have a
// negative elsewhere: what is left are rounding errors, those of a double, too.
std::vector<float> numbers(bool cancel) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kNumbers);
  for (float& value : values) value = normal(random) * std::exp((cancel ? 8 : 1) * normal(random));
  if (!cancel) return values;
  for (int64_t i = 0; i < kNumbers / 2; ++i) values[kNumbers - 1 - i] = -values[i];
  std::shuffle(values.begin(), values.end(), random);
  return values;
}

float sum_by(int workers, unsigned seed, const std::vector<float>& values) {
  Team team(workers, seed);
  const Numbers x(values, team);
  return ordered_sum(x, team);
}

void the_sum_is_right() {
  const std::vector<float> values = numbers(false);
  double want = 0, size = 0;
  for (const float value : values) want += value, size += std::abs(value);
  const float got = sum_by(4, 1, values);
  expect(std::abs(got - want) < 1e-5 * size, "the sum is ", want, ", yours is ", got);
}

void every_number_is_read_once() {
  for (const int workers : {1, 4, 7}) {
    Team team(workers, 1);
    const Numbers x(numbers(false), team);
    ordered_sum(x, team);
    for (int64_t i = 0; i < x.size(); ++i)
      expect(x.reads()[i] == 1, "team of ", workers, ": number ", i, " of ", x.size(), " was read ",
             x.reads()[i], " times");
  }
}

void the_work_is_shared() {
  for (const int workers : {2, 8}) {
    Team team(workers, 1);
    const Numbers x(numbers(false), team);
    ordered_sum(x, team);
    const int64_t fair = x.size() / workers;
    expect(x.most_reads() < fair * 3 / 2 + 2048, "team of ", workers, ": one worker read ",
           x.most_reads(), " numbers, a fair share is ", fair);
  }
}

void the_order_of_workers_does_not_matter() {
  for (const bool cancel : {false, true}) {
    const std::vector<float> values = numbers(cancel);
    const float first = sum_by(8, 0, values);
    for (unsigned seed = 1; seed < 20; ++seed) {
      const float other = sum_by(8, seed, values);
      expect(std::bit_cast<uint32_t>(other) == std::bit_cast<uint32_t>(first),
             "a team of 8 whose workers come in another order got ", other, " after ", first);
    }
  }
}

void the_size_of_the_team_does_not_matter() {
  for (const bool cancel : {false, true}) {
    const std::vector<float> values = numbers(cancel);
    const float one = sum_by(1, 0, values);
    for (const int workers : {2, 3, 4, 7, 8, 64}) {
      const float other = sum_by(workers, 0, values);
      expect(std::bit_cast<uint32_t>(other) == std::bit_cast<uint32_t>(one), "a team of ", workers,
             " got ", other, ", a team of 1 got ", one);
    }
  }
}
}  // namespace

int main() {
  return exercise::run({
      {"every number is read once", every_number_is_read_once},
      {"the sum is right", the_sum_is_right},
      {"the work is shared", the_work_is_shared},
      {"the order of workers does not matter", the_order_of_workers_does_not_matter},
      {"the size of the team does not matter", the_size_of_the_team_does_not_matter},
  });
}
