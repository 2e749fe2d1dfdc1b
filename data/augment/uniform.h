// SPDX-License-Identifier: MIT
// Whole numbers from random bits.
#pragma once

#include <cstdint>

namespace weft {

// Uniform in 0 .. count - 1, each to within 2^-32; count up to 2^32.
inline std::int64_t uniform_below(std::uint32_t bits, std::int64_t count) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(bits) * static_cast<std::uint64_t>(count) >>
                                   32);
}

}  // namespace weft
