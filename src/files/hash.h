// SPDX-License-Identifier: MIT
// Hashes of 64 bits: what two processes, two patterns or two copies of a file compare instead of
// the whole.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
class Hash {  // FNV-1a
 public:
  void add(std::string_view bytes) {
    add(bytes.size());
    for (const char byte : bytes) add_byte(static_cast<unsigned char>(byte));
  }

  template <class Number>
  void add(const std::vector<Number>& numbers) {
    add(numbers.size());
    for (const Number number : numbers) add(static_cast<uint64_t>(number));
  }

  void add(uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) add_byte(word >> 8 * byte & 0xff);
  }

  uint64_t value() const { return value_; }

  std::string text() const {  // 16 hexadecimal digits
    constexpr const char* kDigits = "0123456789abcdef";
    std::string digits;
    for (int shift = 60; shift >= 0; shift -= 4) digits += kDigits[value_ >> shift & 15];
    return digits;
  }

 private:
  void add_byte(uint64_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }

  uint64_t value_ = 0xcbf29ce484222325u;
};

// 64 bits of whole files: eight lanes of words, so that one core keeps up with its memory. A change
// within one word always changes it (each step is a bijection of the lane).
class FastHash {
 public:
  // The next piece; all but the last one are multiples of 64 bytes.
  void add(const char* bytes, std::size_t size) {
    size_ += size;
    for (uint64_t words[kLanes]; size > 0; bytes += sizeof words) {
      const std::size_t taken = size < sizeof words ? size : sizeof words;
      if (taken < sizeof words) std::memset(words, 0, sizeof words);
      std::memcpy(words, bytes, taken);
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        lanes_[lane] = mix(lanes_[lane], words[lane]);
      size -= taken;
    }
  }

  uint64_t value() const {
    uint64_t all = size_;
    for (const uint64_t lane : lanes_) all = mix(all, lane);
    return all;
  }

 private:
  static constexpr std::size_t kLanes = 8;

  static uint64_t mix(uint64_t state, uint64_t word) {
    return std::rotl((state ^ word) * 0x9e3779b97f4a7c15u, 29);
  }

  uint64_t lanes_[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8}, size_ = 0;
};
}  // namespace weft
