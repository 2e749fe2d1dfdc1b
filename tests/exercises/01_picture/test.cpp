// SPDX-License-Identifier: MIT
// The picture row by row, then longer sequences than the picture shows.
#include "tests/exercises/01_picture/exercise.h"
#include "tests/exercises/check.h"

#include <set>
#include <string>

namespace {
using exercise::expect;

// The picture of README.md.
const char* const kPicture[] = {
    "#...............", "##..............", "###.............", ".###............",
    "#.###...........", ".#.###..........", "..#.###.........", "...#.###........",
    "#...#.###.......", ".#...#.###......", "..#...#.###.....", "...#...#.###....",
    "....#...#.###...", ".....#...#.###..", "......#...#.###.", ".......#...#.###",
};

void no_query_sees_the_future() {
  for (int64_t i = 0; i < 64; ++i)
    for (int64_t j = i + 1; j < 64; ++j)
      expect(!attends(i, j), "query ", i, " sees key ", j, ", which comes later");
}

void every_query_sees_itself() {
  for (int64_t i = 0; i < 64; ++i) expect(attends(i, i), "query ", i, " does not see its own key");
}

void rows_are_those_of_the_picture() {
  for (int64_t i = 0; i < 16; ++i) {
    std::string row;
    for (int64_t j = 0; j < 16; ++j) row += attends(i, j) ? '#' : '.';
    expect(row == kPicture[i], "row ", i, " of the picture is ", kPicture[i], ", yours is ", row);
  }
}

void longer_sequences_go_on_in_the_same_way() {
  for (int64_t i = 0; i < 1000; ++i) {
    std::set<int64_t> seen{i};
    for (int64_t distance = 1; distance <= i; distance *= 2) seen.insert(i - distance);
    for (int64_t j = 0; j <= i; ++j)
      expect(attends(i, j) == seen.contains(j), "beyond the picture: query ", i,
             seen.contains(j) ? " must see key " : " must not see key ", j, ", at distance ",
             i - j);
  }
}
}  // namespace

int main() {
  return exercise::run({
      {"no query sees the future", no_query_sees_the_future},
      {"every query sees itself", every_query_sees_itself},
      {"the rows are those of the picture", rows_are_those_of_the_picture},
      {"longer sequences go on in the same way", longer_sequences_go_on_in_the_same_way},
  });
}
