// SPDX-License-Identifier: MIT
// Distribution augmentation (Jun et al. 2020, "Distribution Augmentation for Generative Modeling"): random
// transforms of training images, on which the model is conditioned. All but RandAugment reorder the
// sub-pixels of an image, so that they are permutations with an inverse.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "data/augment/transforms.h"
#include "data/dataset.h"
#include "src/config/conditions.h"

namespace weft {

// What is done to one image: a value of each kind, 0 for nothing. Applied in the order of `Augment`, after
// the flip; but RandAugment changes the pixels last, when they lie in the order in which the model sees them.
struct AugmentChoice {
  std::array<std::int32_t, kAugments> value{};  // by Augment
  bool flip = false;
  std::uint64_t key = 0;  // of the operations that RandAugment draws

  std::int32_t& operator[](Augment kind) { return value[static_cast<std::size_t>(kind)]; }
  std::int32_t operator[](Augment kind) const { return value[static_cast<std::size_t>(kind)]; }
};

class Augmenter {
 public:
  // Throws Error, naming the keys, where a transform does not fit the images: rotation and transposition want
  // squares, jigsaw sides that g divides, colours three channels, anything at all images.
  Augmenter(const Config&, const ImageShape&);

  bool any() const;  // false: images stay as they are and the model has no conditions
  // The kinds on which the model is conditioned, a value each for a sequence.
  const std::vector<Condition>& conditions() const { return conditions_; }

  // What is done to image `index` of all that training sees: a pure function of (seed, index).
  AugmentChoice draw(std::uint64_t seed, std::int64_t index) const;
  // Where each token comes from, the flip included: token t of the augmented image is token source[t] of the
  // image (but for RandAugment, which changes values). A bijection.
  Order source(const AugmentChoice&) const;
  // tokens (H, W, C), in place. positions (H * W * C), or empty when the model is given none: the place whose
  // position embedding each token has: that of the (flipped) image where it came from with
  // augment.permute_positions, else its own.
  void apply(const AugmentChoice&, std::span<std::int32_t> tokens, std::span<std::int32_t> positions) const;
  // The rows of the start table that the model is given for it, one for each of conditions().
  void rows(const AugmentChoice&, std::span<std::int32_t> out) const;
  // True when sequences carry positions of their own.
  bool moves_positions() const;

 private:
  void check_shape() const;
  std::int64_t draw_value(const Condition&, std::uint32_t bits) const;
  // The orders of the kinds that are not 0, one after the other; the flip left out.
  Order place(const AugmentChoice&) const;
  void randaugment(const AugmentChoice&, std::span<std::int32_t> tokens) const;

  AugmentConfig config_;
  std::int64_t vocab_;
  ImageShape shape_;
  std::vector<Condition> kinds_, conditions_;
  std::array<std::vector<Order>, kAugments> orders_;  // of the values of each kind; jigsaw: made when used
  Order flip_;
};

}  // namespace weft
