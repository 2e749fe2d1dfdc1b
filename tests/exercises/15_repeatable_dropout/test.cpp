// SPDX-License-Identifier: MIT
// The mask: its mean, what it depends on, and what it does not depend on.
#include "tests/exercises/15_repeatable_dropout/exercise.h"
#include "tests/exercises/check.h"

#include <cmath>
#include <cstddef>

namespace {
using exercise::expect;

constexpr int64_t kRows = 100, kCols = 50;
constexpr double kP = 0.25;
constexpr Place kPlace{.seed = 7, .update = 3, .call = 2, .first_row = 0};

std::vector<double> ones(int64_t rows = kRows) { return std::vector<double>(rows * kCols, 1); }

std::vector<double> mask_at(const Place& place) { return dropout(ones(), kCols, kP, place); }

double share_of_equal(const std::vector<double>& a, const std::vector<double>& b) {
  double equal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) equal += (a[i] == 0) == (b[i] == 0);
  return equal / static_cast<double>(a.size());
}

void numbers_are_dropped_or_scaled() {
  const std::vector<double> y = dropout(std::vector<double>(kRows * kCols, 3), kCols, kP, kPlace);
  expect(y.size() == kRows * kCols, "there are ", kRows * kCols, " numbers, you return ", y.size());
  for (const double value : y)
    expect(value == 0 || std::abs(value - 4) < 1e-12, "3 with p = 0.25 becomes 0 or ",
           "3 / (1 - p) = 4, so that the mean stays; yours has ", value);
  for (const double value : dropout(ones(), kCols, 0, kPlace))
    expect(value == 1, "with p = 0 nothing changes; yours has ", value);
}

double share_dropped() {
  double dropped = 0;
  for (const double value : mask_at(kPlace)) dropped += value == 0 ? 1.0 / (kRows * kCols) : 0;
  return dropped;
}

void a_quarter_is_dropped() {
  const double dropped = share_dropped();
  expect(std::abs(dropped - kP) < 0.03, "p = 0.25: ", dropped, " of the numbers are dropped");
}

void neighbours_are_independent() {
  const std::vector<double> mask = mask_at(kPlace);
  const double p = share_dropped(), chance = p * p + (1 - p) * (1 - p);
  for (const int64_t distance :
       {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{8}, kCols, 2 * kCols}) {
    const std::vector<double> shifted(mask.begin() + distance, mask.end());
    const double equal = share_of_equal(shifted, mask);
    expect(std::abs(equal - chance) < 0.05, "numbers that lie ", distance, " apart (a row has ",
           kCols, ") share their fate in ", equal, " of all cases, ", chance, " is chance");
  }
}

void a_second_call_repeats_the_mask() {
  const std::vector<double> first = mask_at(kPlace);
  mask_at({.seed = 9, .update = 9, .call = 9});
  expect(mask_at(kPlace) == first,
         "the same place has another mask when it is asked again: a recomputed forward pass would "
         "be another one");
}

void the_backward_pass_has_the_same_mask() {
  const std::vector<double> forward = mask_at(kPlace);
  const std::vector<double> backward = dropout_backward(ones(), kCols, kP, kPlace);
  for (std::size_t i = 0; i < forward.size(); ++i)
    expect(std::abs(forward[i] - backward[i]) < 1e-12, "element ", i, ": dy/dx is ", forward[i],
           ", the backward pass multiplies by ", backward[i]);
}

// Two independent masks with p = 0.25 agree in p^2 + (1 - p)^2 = 0.625 of the numbers.
void other_places_have_other_masks() {
  const std::vector<double> mask = mask_at(kPlace);
  const auto expect_other = [&](const char* what, const Place& place) {
    const double equal = share_of_equal(mask_at(place), mask);
    expect(std::abs(equal - 0.625) < 0.05, what, " has a mask that is equal in ", equal,
           " of the numbers; 0.625 is chance");
  };
  Place place = kPlace;
  place.seed = 8;
  expect_other("another seed", place);
  place.seed = kPlace.seed + (uint64_t{1} << 32);
  expect_other("a seed that differs in its upper half", place);
  place = kPlace;
  place.update = 4;
  expect_other("the next update", place);
  place = kPlace;
  place.call = 3;
  expect_other("the next call of a forward pass", place);
  place.update = 2;
  expect_other("the next call, one update earlier,", place);
}

void parts_of_an_update_have_their_parts_of_the_mask() {
  const std::vector<double> whole = mask_at(kPlace);
  for (const int64_t first : {1, 33, 60}) {
    Place place = kPlace;
    place.first_row = first;
    const std::vector<double> part = dropout(ones(kRows - first), kCols, kP, place);
    for (std::size_t i = 0; i < part.size(); ++i)
      expect(part[i] == whole[first * kCols + i], "row ", first + i / kCols,
             " of the update has another mask when rows from ", first,
             " on are computed alone: results would depend on the number of processes");
  }
}
}  // namespace

int main() {
  return exercise::run({
      {"numbers are dropped, or scaled so that the mean stays", numbers_are_dropped_or_scaled},
      {"neighbours are independent", neighbours_are_independent},
      {"a quarter is dropped", a_quarter_is_dropped},
      {"a second call repeats the mask", a_second_call_repeats_the_mask},
      {"the backward pass has the same mask", the_backward_pass_has_the_same_mask},
      {"other places have other masks", other_places_have_other_masks},
      {"parts of an update have their parts of the mask",
       parts_of_an_update_have_their_parts_of_the_mask},
  });
}
