// SPDX-License-Identifier: MIT
// Philox4x32-10, the counter-based generator of Salmon et al. 2011, on the CPU. CUDA kernels call
// curand_Philox4x32_10 with the same counter and key, and get the same bits.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

namespace weft {
using Philox4 = std::array<uint32_t, 4>;

constexpr Philox4 philox4x32(Philox4 counter, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0], p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// Four independent normal numbers from the bits of a block (Box and Muller 1958).
inline std::array<double, 4> normals_of(const Philox4& bits) {
  std::array<double, 4> normals;
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const double u = (bits[pair] + 0.5) * 0x1p-32,
                 angle = 2 * std::numbers::pi * (bits[pair + 1] + 0.5) * 0x1p-32;
    const double radius = std::sqrt(-2 * std::log(u));
    normals[pair] = radius * std::cos(angle);
    normals[pair + 1] = radius * std::sin(angle);
  }
  return normals;
}

// One call serves eight consecutive elements with 16 bits each: element e uses half-word e % 8 (low
// half first) of the block with this counter. `site` is the number of the dropout call within a
// forward pass.
inline Philox4 dropout_counter(uint64_t group_of_eight, uint32_t site, uint64_t draw) {
  return {static_cast<uint32_t>(group_of_eight), static_cast<uint32_t>(group_of_eight >> 32), site,
          static_cast<uint32_t>(draw)};
}

// An element is kept when its 16 bits are at least this. So the probability of dropping is exactly
// threshold / 65536.
inline uint32_t dropout_threshold(double p) { return static_cast<uint32_t>(p * 65536.0 + 0.5); }
}  // namespace weft
