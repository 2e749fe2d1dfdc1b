// SPDX-License-Identifier: MIT
// What a sequence is told before its first token: how its image was augmented, and the class.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {
struct Config;

// The value of each kind of augmentation that training uses, and the class of the image: the sum of
// their embeddings replaces the plain start vector. The kinds, in the order in which they are
// applied to an image.
enum class Augment : uint8_t {
  rotation,
  color,
  transposition,
  reversal,
  jigsaw,
  randaugment,
  random_order,
  dataset,
  label  // of the data, not drawn
};
inline constexpr int kAugments = 8;  // that are drawn
const char* name_of(Augment);

struct Condition {
  Augment kind;
  int64_t values = 0;     // 0 .. values - 1; 0: not augmented
  int64_t first_row = 0;  // row of the start table that value 0 has
};

// The kinds that a config applies, whether or not the model is told.
std::vector<Condition> augmentations(const Config&);
// Those that the model is told, and the label with data.labels; empty: it has a plain start vector.
std::vector<Condition> conditions(const Config&);
int64_t condition_rows(const std::vector<Condition>&);
}  // namespace weft
