// SPDX-License-Identifier: MIT
// Element types. f16 and bf16 are storage formats on the CPU: arithmetic on them happens in float.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace weft {
enum class DType : uint8_t { f64, f32, f16, bf16, i32, u8 };

// IEEE binary16, round to nearest even.
struct f16 {
  uint16_t bits = 0;
  f16() = default;

  explicit f16(float x)
      : bits(encode(x)) {}

  operator float() const { return decode(bits); }

  static uint16_t encode(float x) {
    const auto u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // overflows to inf
    // subnormal or zero
    if (magnitude < 0x38800000u) {
      const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
      return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(scaled)));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }

  static float decode(uint16_t h) {
    const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0)
      return std::copysign(static_cast<float>(mantissa) * 0x1p-24f, std::bit_cast<float>(sign));
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
};

// The upper half of a float, round to nearest even.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;

  explicit bf16(float x)
      : bits(encode(x)) {}

  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

  static uint16_t encode(float x) {
    const auto u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

template <class T>
inline constexpr DType dtype_of = std::is_same_v<T, double>    ? DType::f64
                                  : std::is_same_v<T, float>   ? DType::f32
                                  : std::is_same_v<T, f16>     ? DType::f16
                                  : std::is_same_v<T, bf16>    ? DType::bf16
                                  : std::is_same_v<T, int32_t> ? DType::i32
                                                               : DType::u8;

constexpr int64_t size_of(DType t) {
  constexpr int64_t kSizes[] = {8, 4, 2, 2, 4, 1};
  return kSizes[static_cast<int>(t)];
}

constexpr const char* name_of(DType t) {
  constexpr const char* kNames[] = {"f64", "f32", "f16", "bf16", "i32", "u8"};
  return kNames[static_cast<int>(t)];
}

// The type of statistics, losses, layernorm parameters and parameter gradients for activations of
// type `t`.
constexpr DType wide(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

// The C++ type of wide(dtype_of<T>), of the accumulators of CPU forms.
template <class T>
using wide_t = std::conditional_t<std::is_same_v<T, double>, double, float>;
}  // namespace weft
