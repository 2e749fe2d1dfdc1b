// SPDX-License-Identifier: MIT
// Distribution augmentation (Jun et al. 2020): random transforms of training images, on which the
// model is conditioned. All but RandAugment permute the sub-pixels of an image.
#pragma once

#include "data/dataset.h"
#include "src/config/conditions.h"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {
struct AugmentConfig;
struct Config;

// The kinds of augmentation, in the order in which they are applied to an image, and what else a
// model of images is told.
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

// The kinds that a config applies, whether or not the model is told.
std::vector<Condition> augmentations(const Config&);

// Permutations of the sub-pixels of an image, for distribution augmentation (Jun et al. 2020).
// Token t of the result is token order[t] of the image. Tokens run over rows, columns and channels,
// channels fastest.
using Order = std::vector<int32_t>;

Order identity_order(int64_t tokens);
// Clockwise by `quarters` * 90 degrees; an odd number of them wants a square.
Order rotation_order(const ImageShape&, int64_t quarters);
// Channel c becomes channel (012, 021, 102, 120, 201, 210)[value][c]; three channels.
Order color_order(const ImageShape&, int64_t value);
// Rows become columns; wants a square.
Order transposition_order(const ImageShape&);
Order flip_order(const ImageShape&);  // left to right
// Tile p becomes tile permutation[p], number `value` in lexicographic order. `grid` divides the
// sides.
Order jigsaw_order(const ImageShape&, int64_t grid, int64_t value);
// Fisher-Yates from the last place down: i with floor((i + 1) * r / 2^32), r: first word of Philox
// block i.
Order random_order(int64_t tokens, uint64_t seed);

// `first`, then `second`: (first * second)[t] = first[second[t]].
Order composed(const Order& first, const Order& second);
Order inverse(const Order&);

// Uniform in 0 .. count - 1, each to within 2^-32, from random bits; count up to 2^32.
inline int64_t uniform_below(uint32_t bits, int64_t count) {
  return static_cast<int64_t>(uint64_t{bits} * static_cast<uint64_t>(count) >> 32);
}

// The transforms of one image: a value of each kind, 0 for none. The flip comes first, then the
// kinds in the order of `Augment`; RandAugment changes the pixels last, in the order in which the
// model sees them.
struct AugmentChoice {
  std::array<int32_t, kAugments + 1> value{};  // by Augment
  bool flip = false;
  uint64_t key = 0;  // of the operations that RandAugment draws

  int32_t& operator[](Augment kind) { return value[static_cast<std::size_t>(kind)]; }

  int32_t operator[](Augment kind) const { return value[static_cast<std::size_t>(kind)]; }
};

class Augmenter {
 public:
  // Throws Error, naming the keys, where a transform does not fit the shape of the images.
  // labels: labels_of() the data, where images come from there.
  Augmenter(const Config&, const ImageShape&, std::vector<uint16_t> labels = {});

  bool any() const;  // false: images stay as they are and the model has no conditions

  // The kinds on which the model is conditioned, a value each for a sequence.
  const std::vector<Condition>& conditions() const { return conditions_; }

  // The class of image `image` of the data; 0 without labels.
  int32_t label(int64_t image) const { return labels_.empty() ? 0 : labels_.at(image); }

  // For image `index` of all that training sees: a pure function of (seed, index).
  AugmentChoice draw(uint64_t seed, int64_t index) const;
  // Token t of the augmented image is token source[t] of the image, the flip included. A bijection.
  Order source(const AugmentChoice&) const;
  // tokens (H, W, C), in place. positions (H * W * C), or empty when the model gets none: the
  // position of each token. With augment.permute_positions that is its place in the (flipped)
  // image, else its own.
  void apply(const AugmentChoice&, std::span<int32_t> tokens, std::span<int32_t> positions) const;
  // Rows of the start table, one for each of conditions().
  void rows(const AugmentChoice&, std::span<int32_t> out) const;
  bool moves_positions() const;  // true: sequences carry positions of their own

 private:
  void check_shape() const;
  int64_t draw_value(const Condition&, uint32_t bits) const;
  // The orders of the kinds that are not 0, one after the other; the flip left out.
  Order place(const AugmentChoice&) const;
  void randaugment(const AugmentChoice&, std::span<int32_t> tokens) const;

  std::shared_ptr<const AugmentConfig> config_;
  int64_t vocab_;
  ImageShape shape_;
  std::vector<Condition> kinds_, conditions_;
  // of the values of each kind; jigsaw: made when used
  std::array<std::vector<Order>, kAugments> orders_;
  Order flip_;
  std::vector<uint16_t> labels_;
};

// ---- chosen by a person: "rotation=1,color=2" ----

// Kinds that are not named have the value 0; "" and "none" name none. Errors list the model's
// kinds.
AugmentChoice parse_choice(const std::string& text, const Config&);
// All kinds of the config with their values, "rotation=1,color=0"; "none" when it has no kinds.
std::string choice_text(const AugmentChoice&, const Config&);
// Every combination of values of the config's kinds, the last kind varying fastest.
std::vector<AugmentChoice> all_choices(const Config&);

// ---- RandAugment (Cubuk et al. 2019, arXiv 1909.13719): N operations of sixteen, drawn uniformly
// with replacement, all of one magnitude M from 0 to 10. They are those of Pillow's ImageOps,
// ImageEnhance and Image.transform (affine, nearest neighbour), pixel for pixel; places that they
// leave empty become 128. ----

struct RgbImage {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels;  // (height, width, 3), 8 bits each
};

enum class RandKind : uint8_t {
  auto_contrast,  // channel by channel: least value to 0, greatest to 255
  equalize,       // channel by channel: equally many pixels of each value
  invert,
  rotate,      // counter-clockwise about the centre, in degrees
  posterize,   // so many upper bits stay, 0 to 8
  solarize,    // values from this one on are inverted
  color,       // 0: grey, 1: as it is, more: more colourful
  contrast,    // 0: the mean grey
  brightness,  // 0: black
  sharpness,   // 0: smoothed; the border stays
  shear_x,     // pixel (x, y) becomes that at (x + argument * y, y): pixel centres, y down
  shear_y,
  translate_x,  // pixel (x, y) becomes that at (x + argument, y)
  translate_y,
  // of `argument` rows and columns on each side of the middle, as far as the image goes
  cutout,
  solarize_add  // added to values below 128, at most 255
};
inline constexpr int kRandKinds = 16;
const char* name_of(RandKind);

struct RandOperation {
  RandKind kind = RandKind::auto_contrast;
  double argument = 0;          // what the operation takes; without meaning for the first three
  int64_t row = 0, column = 0;  // cutout: the middle
};

// The argument of an operation at this magnitude, before a sign is drawn.
double argument_of(RandKind, double magnitude);
// The operations that `key` stands for, in the order in which they are applied.
std::vector<RandOperation> draw_operations(uint64_t key, int64_t count, double magnitude,
                                           int64_t height, int64_t width);
void apply(const RandOperation&, RgbImage&);  // in place
}  // namespace weft
