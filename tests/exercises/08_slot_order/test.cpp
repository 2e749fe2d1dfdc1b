// SPDX-License-Identifier: MIT
// The tables of images of several sizes: each slot taken once, and the pairs that tiles execute.
// Needs: weft
#include "kernels/attention/tile_tables.h"
#include "tests/exercises/08_slot_order/exercise.h"
#include "tests/exercises/check.h"

#include <algorithm>
#include <map>
#include <string>

namespace {
using exercise::expect;

// Query i sees the pixels of its own patch that are not later than i.
weft::AttendedPairs pairs_of(const Image& image) {
  weft::AttendedPairs pairs;
  pairs.name = "patches of an image of " + std::to_string(image.height) + " x " +
               std::to_string(image.width);
  pairs.queries = pairs.keys = image.height * image.width;
  pairs.key_runs = [image](int64_t i, std::vector<weft::KeyRun>& runs) {
    const int64_t row = i / image.width, left = i % image.width / kPatch * kPatch,
                  right = std::min(left + kPatch, image.width);
    for (int64_t y = row / kPatch * kPatch; y <= row; ++y)
      runs.push_back({y * image.width + left, std::min(y * image.width + right, i + 1)});
  };
  pairs.query_slot = pairs.key_slot = [image](int64_t i) { return slot(image, i); };
  return pairs;
}

constexpr Image kImages[] = {{64, 64}, {32, 32}, {8, 8}, {64, 60},
                             {52, 60}, {9, 17},  {1, 5}, {40, 8}};

void each_position_has_a_slot_of_its_own() {
  for (const Image& image : kImages) {
    std::map<int64_t, int64_t> position_in;
    const std::string size = exercise::text("an image of ", image.height, " x ", image.width, ": ");
    for (int64_t i = 0; i < image.height * image.width; ++i) {
      const int64_t s = slot(image, i);
      expect(s >= 0, size, "position ", i, " has the negative slot ", s);
      const auto [there, added] = position_in.emplace(s, i);
      expect(added, size, "positions ", there->second, " and ", i, " have the same slot ", s);
    }
  }
}

// A tile a patch is the least: as many tiles as there are patches, cut ones too.
int64_t patches(const Image& image) {
  return (image.height + kPatch - 1) / kPatch * ((image.width + kPatch - 1) / kPatch);
}

void expect_waste(const Image& image) {
  const weft::PairCount pairs = weft::build_tile_tables(pairs_of(image)).pairs;
  const int64_t tiles = pairs.executed / (kTileSlots * kTileSlots);
  expect(tiles <= patches(image), "an image of ", image.height, " x ", image.width, ": ", tiles,
         " pairs of tiles are executed, ", patches(image), " are enough; ", pairs.executed,
         " pairs for ", pairs.needed, " that are needed, a waste of ", pairs.waste());
}

void whole_patches_waste_less_than_two() {
  for (const Image& image : {Image{64, 64}, Image{32, 32}, Image{8, 8}}) expect_waste(image);
}

void cut_patches_share_no_tile_with_a_second() {
  for (const Image& image : {Image{64, 60}, Image{52, 60}, Image{9, 17}, Image{1, 5}})
    expect_waste(image);
}

void no_tile_is_empty() {
  for (const Image& image : kImages) {
    const weft::TileTables tables = weft::build_tile_tables(pairs_of(image));
    expect(tables.query_tiles() <= patches(image), "an image of ", image.height, " x ", image.width,
           ": there are ", tables.query_tiles(), " tiles for ", patches(image),
           " patches: empty ones cost memory");
  }
}
}  // namespace

int main() {
  return exercise::run({
      {"each position has a slot of its own", each_position_has_a_slot_of_its_own},
      {"whole patches: a tile each, a waste below 2", whole_patches_waste_less_than_two},
      {"cut patches: a tile each", cut_patches_share_no_tile_with_a_second},
      {"no tile is empty", no_tile_is_empty},
  });
}
