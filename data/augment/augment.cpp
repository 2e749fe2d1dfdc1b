// SPDX-License-Identifier: MIT
// One gather for all transforms that reorder sub-pixels, then RandAugment on the result.
#include "data/augment/augment.h"

#include "kernels/philox.h"
#include "src/config/conditions.h"
#include "src/config/config.h"
#include "src/config/names.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>
#include <string_view>
#include <utility>

namespace weft {
namespace {
constexpr uint64_t kShuffleKey = 0x73687566666c65ull;  // keeps random orders apart from other draws

// The order whose sub-pixel (row, column, channel) is `from`(row, column, channel), an index of the
// image.
template <class From>
Order order_of(const ImageShape& s, const From& from) {
  Order order;
  order.reserve(s.tokens());
  for (int64_t row = 0; row < s.height; ++row)
    for (int64_t column = 0; column < s.width; ++column)
      for (int64_t channel = 0; channel < s.channels; ++channel)
        order.push_back(static_cast<int32_t>(from(row, column, channel)));
  return order;
}

int64_t index_of(const ImageShape& s, int64_t row, int64_t column, int64_t channel) {
  return (row * s.width + column) * s.channels + channel;
}

void expect_square(const ImageShape& s, const char* what) {
  WEFT_CHECK(s.height == s.width, what, " of an image of ", s.height, " x ", s.width,
             ", which is no square");
}

// Permutation `value` of 0 .. count - 1 in lexicographic order, from its digits in factorial base.
std::vector<int64_t> permutation(int64_t count, int64_t value) {
  std::vector<int64_t> left(count), result;
  std::iota(left.begin(), left.end(), 0);
  int64_t arrangements = 1;  // of the elements left but one
  for (int64_t i = 2; i < count; ++i) arrangements *= i;
  WEFT_CHECK(value >= 0 && value < arrangements * count, "permutation ", value, " of ", count,
             " things");
  for (int64_t size = count; size > 0; --size) {
    const auto next = left.begin() + value / arrangements;
    result.push_back(*next);
    left.erase(next);
    value %= arrangements;
    if (size > 1) arrangements /= size - 1;
  }
  return result;
}

// ---- from a key to an order ----

constexpr uint64_t kAugmentKey = 0x6175676d656e74ull;  // keeps these draws apart from others

// Seed number i: as listed, then counted on from the last.
uint64_t order_seed(const std::vector<int64_t>& seeds, std::size_t i) {
  if (i < seeds.size()) return static_cast<uint64_t>(seeds[i]);
  return static_cast<uint64_t>(seeds.back()) + (i - seeds.size() + 1);
}

// Value 0 of a kind that reorders leaves all where it is.
bool reorders(Augment kind) { return kind != Augment::randaugment && kind != Augment::dataset; }

Order order_of(Augment kind, int64_t value, const ImageShape& shape, const AugmentConfig& config) {
  if (value == 0) return identity_order(shape.tokens());
  switch (kind) {
    case Augment::rotation: return rotation_order(shape, value);
    case Augment::color: return color_order(shape, value);
    case Augment::transposition: return transposition_order(shape);
    case Augment::reversal: return rotation_order(shape, 2 * value);
    case Augment::jigsaw: return jigsaw_order(shape, config.jigsaw, value);
    case Augment::random_order:
      return random_order(shape.tokens(), order_seed(config.random_order_seeds, value - 1));
    case Augment::randaugment:
    case Augment::dataset:
    case Augment::label: break;
  }
  return identity_order(shape.tokens());  // these change no places
}

constexpr int64_t kMostChoices = 10000;

std::string known_kinds(const std::vector<Condition>& kinds) {
  if (kinds.empty()) return "this model was trained without augmentation";
  return "this model knows " + joined(kinds, ", ", [](const Condition& kind) {
           return str(name_of(kind.kind), "=0 to ", kind.values - 1);
         });
}
}  // namespace

Order identity_order(int64_t tokens) {
  Order order(static_cast<std::size_t>(tokens));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Order rotation_order(const ImageShape& s, int64_t quarters) {
  WEFT_CHECK(quarters >= 0 && quarters < 4, "rotation by ", quarters, " quarters");
  if (quarters % 2 == 1) expect_square(s, "rotation by 90 degrees");
  const int64_t bottom = s.height - 1, right = s.width - 1;
  return order_of(s, [&](int64_t row, int64_t column, int64_t channel) {
    switch (quarters) {
      case 1: return index_of(s, bottom - column, row, channel);
      case 2: return index_of(s, bottom - row, right - column, channel);
      case 3: return index_of(s, column, right - row, channel);
      default: return index_of(s, row, column, channel);
    }
  });
}

Order color_order(const ImageShape& s, int64_t value) {
  WEFT_CHECK(s.channels == 3, "orders of colours: 3 channels, not ", s.channels);
  const std::vector<int64_t> from = permutation(3, value);
  return order_of(s, [&](int64_t row, int64_t column, int64_t channel) {
    return index_of(s, row, column, from[channel]);
  });
}

Order transposition_order(const ImageShape& s) {
  expect_square(s, "transposition");
  return order_of(s, [&](int64_t row, int64_t column, int64_t channel) {
    return index_of(s, column, row, channel);
  });
}

Order flip_order(const ImageShape& s) {
  return order_of(s, [&](int64_t row, int64_t column, int64_t channel) {
    return index_of(s, row, s.width - 1 - column, channel);
  });
}

Order jigsaw_order(const ImageShape& s, int64_t grid, int64_t value) {
  WEFT_CHECK(grid > 0 && s.height % grid == 0 && s.width % grid == 0, "jigsaw: ", grid, " x ", grid,
             " tiles of an image of ", s.height, " x ", s.width);
  const std::vector<int64_t> tiles = permutation(grid * grid, value);
  const int64_t height = s.height / grid, width = s.width / grid;  // of a tile
  Order order(s.tokens());
  for (int64_t row = 0; row < s.height; ++row) {
    for (int64_t across = 0; across < grid; ++across) {
      const int64_t tile = tiles[row / height * grid + across];
      const int64_t from = index_of(s, tile / grid * height + row % height, tile % grid * width, 0);
      const auto begin = order.begin() + index_of(s, row, across * width, 0);
      std::iota(begin, begin + width * s.channels, static_cast<int32_t>(from));
    }
  }
  return order;
}

Order random_order(int64_t tokens, uint64_t seed) {
  Order order = identity_order(tokens);
  for (int64_t i = tokens - 1; i > 0; --i) {
    const Philox4 bits = philox4x32({static_cast<uint32_t>(i)}, seed ^ kShuffleKey);
    std::swap(order[i], order[uniform_below(bits[0], i + 1)]);
  }
  return order;
}

Order composed(const Order& first, const Order& second) {
  WEFT_CHECK(first.size() == second.size(), "orders of ", first.size(), " and ", second.size(),
             " tokens");
  Order order(second.size());
  for (std::size_t t = 0; t < order.size(); ++t) order[t] = first[second[t]];
  return order;
}

Order inverse(const Order& order) {
  Order result(order.size());
  for (std::size_t t = 0; t < order.size(); ++t) result[order[t]] = static_cast<int32_t>(t);
  return result;
}

Augmenter::Augmenter(const Config& config, const ImageShape& shape, std::vector<uint16_t> labels)
    : config_(std::make_shared<const AugmentConfig>(config.augment)),
      vocab_(config.model.vocab),
      shape_(shape),
      kinds_(augmentations(config)),
      conditions_(weft::conditions(config)),
      labels_(std::move(labels)) {
  if (!any()) return;
  check_shape();
  if (config_->flip) flip_ = flip_order(shape_);
  for (const Condition& k : kinds_) {
    // The 9! orders of 3 x 3 tiles would not fit into memory.
    if (!reorders(k.kind) || k.kind == Augment::jigsaw) continue;
    for (int64_t value = 0; value < k.values; ++value)
      orders_[static_cast<std::size_t>(k.kind)].push_back(
          order_of(k.kind, value, shape_, *config_));
  }
}

void Augmenter::check_shape() const {
  const std::string size = shape_.text();
  if (!shape_) fail("augment: only images are augmented, the data has none");
  for (const auto& [used, key] : {std::pair{config_->rotation, "augment.rotation"},
                                  std::pair{config_->transposition, "augment.transposition"}}) {
    if (used && shape_.height != shape_.width)
      fail(key, ": images must be square, these are ", size, "; augment.reversal works for any");
  }
  if (config_->jigsaw > 1 &&
      (shape_.height % config_->jigsaw != 0 || shape_.width % config_->jigsaw != 0))
    fail("augment.jigsaw: ", config_->jigsaw, " does not divide the sides of images of ", size);
  for (const auto& [used, key] : {std::pair{config_->color, "augment.color"},
                                  std::pair{config_->randaugment > 0, "augment.randaugment"}}) {
    if (used && shape_.channels != 3) fail(key, ": images must have 3 channels, these are ", size);
  }
  if (config_->randaugment > 0 && vocab_ != 256)
    fail("augment.randaugment: wants images of 8 bits, model.vocab 256, not ", vocab_);
  if (config_->random_order > 0 && config_->random_order_seeds.empty())
    fail("augment.random_order_seeds: at least one seed is needed, for example [42]");
}

bool Augmenter::any() const { return !kinds_.empty() || config_->flip; }

bool Augmenter::moves_positions() const {
  return config_->permute_positions &&
         std::ranges::any_of(kinds_, [](const Condition& k) { return reorders(k.kind); });
}

int64_t Augmenter::draw_value(const Condition& k, uint32_t bits) const {
  const double uniform = bits * 0x1p-32;
  if (k.kind == Augment::dataset) return 0;
  if (k.kind == Augment::randaugment) return uniform < config_->randaugment_rate ? 1 : 0;
  if (config_->unaugmented_rate <= 0) return uniform_below(bits, k.values);
  const double same = std::pow(config_->unaugmented_rate, 1.0 / static_cast<double>(kinds_.size()));
  if (uniform < same) return 0;
  const double share = (uniform - same) / (1 - same) * static_cast<double>(k.values - 1);
  return std::min(1 + static_cast<int64_t>(share), k.values - 1);
}

AugmentChoice Augmenter::draw(uint64_t seed, int64_t index) const {
  // One word for each kind, used or not: what one kind draws does not depend on the others.
  constexpr uint32_t kBlocks = kAugments / 4 + 1;
  std::array<uint32_t, 4 * kBlocks> words;
  for (uint32_t block = 0; block < kBlocks; ++block) {
    const auto i = static_cast<uint64_t>(index);
    const Philox4 bits = philox4x32(
        {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), block}, seed ^ kAugmentKey);
    std::ranges::copy(bits, words.begin() + 4 * block);
  }
  AugmentChoice choice;
  for (const Condition& k : kinds_)
    choice[k.kind] = static_cast<int32_t>(draw_value(k, words[static_cast<std::size_t>(k.kind)]));
  choice.flip = config_->flip && words[kAugments] >> 31 == 1;
  choice.key = uint64_t{words[kAugments + 2]} << 32 | words[kAugments + 1];
  return choice;
}

Order Augmenter::place(const AugmentChoice& choice) const {
  Order all;  // empty: as it is
  const auto then = [&](const Order& next) { all = all.empty() ? next : composed(all, next); };
  for (const Condition& k : kinds_) {
    const int64_t value = choice[k.kind];
    WEFT_CHECK(value >= 0 && value < k.values, "augmentation ", name_of(k.kind),
               " has values 0 to ", k.values - 1, ", not ", value);
    if (value == 0 || !reorders(k.kind)) continue;
    if (k.kind == Augment::jigsaw)
      then(jigsaw_order(shape_, config_->jigsaw, value));
    else
      then(orders_[static_cast<std::size_t>(k.kind)][value]);
  }
  return all.empty() ? identity_order(shape_.tokens()) : all;
}

Order Augmenter::source(const AugmentChoice& choice) const {
  return choice.flip ? composed(flip_, place(choice)) : place(choice);
}

void Augmenter::apply(const AugmentChoice& choice, std::span<int32_t> tokens,
                      std::span<int32_t> positions) const {
  const Order places = place(choice);
  if (any()) {
    WEFT_CHECK(tokens.size() == places.size(), tokens.size(), " tokens of images of ",
               places.size());
    const std::vector<int32_t> image(tokens.begin(), tokens.end());
    const Order order = choice.flip ? composed(flip_, places) : Order{};
    const Order& from = choice.flip ? order : places;
    for (std::size_t t = 0; t < from.size(); ++t) tokens[t] = image[from[t]];
    if (choice[Augment::randaugment] != 0) randaugment(choice, tokens);
  }
  if (positions.empty()) return;
  WEFT_CHECK(places.size() == positions.size(), positions.size(), " positions of images of ",
             places.size());
  if (moves_positions())
    std::ranges::copy(places, positions.begin());
  else
    std::iota(positions.begin(), positions.end(), 0);
}

void Augmenter::randaugment(const AugmentChoice& choice, std::span<int32_t> tokens) const {
  RgbImage image{shape_.height, shape_.width, {tokens.begin(), tokens.end()}};
  for (const RandOperation& o :
       draw_operations(choice.key, config_->randaugment, config_->randaugment_magnitude,
                       shape_.height, shape_.width))
    weft::apply(o, image);
  std::ranges::copy(image.pixels, tokens.begin());
}

void Augmenter::rows(const AugmentChoice& choice, std::span<int32_t> out) const {
  for (std::size_t i = 0; i < conditions_.size(); ++i)
    out[i] = static_cast<int32_t>(conditions_[i].first_row) + choice[conditions_[i].kind];
}

AugmentChoice parse_choice(const std::string& text, const Config& config) {
  const std::vector<Condition> kinds = augmentations(config);
  AugmentChoice choice;
  if (text == "none") return choice;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, equals);
    const auto kind =
        std::ranges::find_if(kinds, [&](const auto& c) { return name == name_of(c.kind); });
    const auto value =
        number_in<int32_t>(std::string_view(part).substr(std::min(equals + 1, part.size())));
    if (kind == kinds.end() || !value || *value < 0 || *value >= kind->values)
      fail("augmentation \"", part, "\": expected KIND=VALUE as in rotation=1; ",
           known_kinds(kinds));
    choice[kind->kind] = *value;
  }
  return choice;
}

std::string choice_text(const AugmentChoice& choice, const Config& config) {
  const std::string text = joined(augmentations(config), ",", [&](const Condition& kind) {
    return str(name_of(kind.kind), "=", choice[kind.kind]);
  });
  return text.empty() ? "none" : text;
}

std::vector<AugmentChoice> all_choices(const Config& config) {
  std::vector<AugmentChoice> choices(1);
  for (const Condition& kind : augmentations(config)) {
    if (std::ssize(choices) > kMostChoices / kind.values)
      fail("there are more than ", kMostChoices,
           " combinations of augmentations; name one instead of all");
    std::vector<AugmentChoice> more;
    for (const AugmentChoice& choice : choices)
      for (int32_t value = 0; value < kind.values; ++value) {
        more.push_back(choice);
        more.back()[kind.kind] = value;
      }
    choices = std::move(more);
  }
  return choices;
}
}  // namespace weft
