// SPDX-License-Identifier: MIT
// Each order as the place in the image of every sub-pixel of the result.
#include "data/augment/transforms.h"

#include <numeric>

#include "kernels/philox.h"
#include "kernels/view.h"

namespace weft {
namespace {

constexpr std::uint64_t kShuffleKey = 0x73687566666c65ull;  // keeps random orders apart from other draws

// The order whose sub-pixel (row, column, channel) is `from`(row, column, channel), an index of the image.
template <class From>
Order order_of(const ImageShape& s, const From& from) {
  Order order;
  order.reserve(s.tokens());
  for (std::int64_t row = 0; row < s.height; ++row)
    for (std::int64_t column = 0; column < s.width; ++column)
      for (std::int64_t channel = 0; channel < s.channels; ++channel)
        order.push_back(static_cast<std::int32_t>(from(row, column, channel)));
  return order;
}

std::int64_t index_of(const ImageShape& s, std::int64_t row, std::int64_t column, std::int64_t channel) {
  return (row * s.width + column) * s.channels + channel;
}

void expect_square(const ImageShape& s, const char* what) {
  WEFT_CHECK(s.height == s.width, what, " of an image of ", s.height, " x ", s.width, ", which is no square");
}

// Permutation `value` of 0 .. count - 1 in lexicographic order, from its digits in factorial base.
std::vector<std::int64_t> permutation(std::int64_t count, std::int64_t value) {
  std::vector<std::int64_t> left(count), result;
  std::iota(left.begin(), left.end(), 0);
  std::int64_t arrangements = 1;  // of the elements left but one
  for (std::int64_t i = 2; i < count; ++i) arrangements *= i;
  WEFT_CHECK(value >= 0 && value < arrangements * count, "permutation ", value, " of ", count, " things");
  for (std::int64_t size = count; size > 0; --size) {
    const auto next = left.begin() + value / arrangements;
    result.push_back(*next);
    left.erase(next);
    value %= arrangements;
    if (size > 1) arrangements /= size - 1;
  }
  return result;
}

}  // namespace

Order identity_order(std::int64_t tokens) {
  Order order(static_cast<std::size_t>(tokens));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Order rotation_order(const ImageShape& s, std::int64_t quarters) {
  WEFT_CHECK(quarters >= 0 && quarters < 4, "rotation by ", quarters, " quarters");
  if (quarters % 2 == 1) expect_square(s, "rotation by 90 degrees");
  const std::int64_t bottom = s.height - 1, right = s.width - 1;
  return order_of(s, [&](std::int64_t row, std::int64_t column, std::int64_t channel) {
    switch (quarters) {
      case 1: return index_of(s, bottom - column, row, channel);
      case 2: return index_of(s, bottom - row, right - column, channel);
      case 3: return index_of(s, column, right - row, channel);
      default: return index_of(s, row, column, channel);
    }
  });
}

Order color_order(const ImageShape& s, std::int64_t value) {
  WEFT_CHECK(s.channels == 3, "orders of colours: 3 channels, not ", s.channels);
  const std::vector<std::int64_t> from = permutation(3, value);
  return order_of(s, [&](std::int64_t row, std::int64_t column, std::int64_t channel) {
    return index_of(s, row, column, from[channel]);
  });
}

Order transposition_order(const ImageShape& s) {
  expect_square(s, "transposition");
  return order_of(s, [&](std::int64_t row, std::int64_t column, std::int64_t channel) {
    return index_of(s, column, row, channel);
  });
}

Order flip_order(const ImageShape& s) {
  return order_of(s, [&](std::int64_t row, std::int64_t column, std::int64_t channel) {
    return index_of(s, row, s.width - 1 - column, channel);
  });
}

Order jigsaw_order(const ImageShape& s, std::int64_t grid, std::int64_t value) {
  WEFT_CHECK(grid > 0 && s.height % grid == 0 && s.width % grid == 0, "jigsaw: ", grid, " x ", grid,
             " tiles of an image of ", s.height, " x ", s.width);
  const std::vector<std::int64_t> tiles = permutation(grid * grid, value);
  const std::int64_t height = s.height / grid, width = s.width / grid;  // of a tile
  Order order(static_cast<std::size_t>(s.tokens()));
  for (std::int64_t row = 0; row < s.height; ++row) {
    for (std::int64_t across = 0; across < grid; ++across) {
      const std::int64_t tile = tiles[row / height * grid + across];
      const std::int64_t from = index_of(s, tile / grid * height + row % height, tile % grid * width, 0);
      const auto begin = order.begin() + index_of(s, row, across * width, 0);
      std::iota(begin, begin + width * s.channels, static_cast<std::int32_t>(from));
    }
  }
  return order;
}

Order random_order(std::int64_t tokens, std::uint64_t seed) {
  Order order = identity_order(tokens);
  for (std::int64_t i = tokens - 1; i > 0; --i) {
    const Philox4 bits = philox4x32({static_cast<std::uint32_t>(i)}, seed ^ kShuffleKey);
    std::swap(order[i], order[uniform_below(bits[0], i + 1)]);
  }
  return order;
}

Order composed(const Order& first, const Order& second) {
  WEFT_CHECK(first.size() == second.size(), "orders of ", first.size(), " and ", second.size(), " tokens");
  Order order(second.size());
  for (std::size_t t = 0; t < order.size(); ++t) order[t] = first[second[t]];
  return order;
}

Order inverse(const Order& order) {
  Order result(order.size());
  for (std::size_t t = 0; t < order.size(); ++t) result[order[t]] = static_cast<std::int32_t>(t);
  return result;
}

}  // namespace weft
