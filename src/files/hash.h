// SPDX-License-Identifier: MIT
// FNV-1a, 64 bits: what two processes, or two patterns, compare instead of the whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class Hash {
 public:
  void add(std::string_view bytes) {
    add(bytes.size());
    for (const char byte : bytes) add_byte(static_cast<unsigned char>(byte));
  }
  template <class Number>
  void add(const std::vector<Number>& numbers) {
    add(numbers.size());
    for (const Number number : numbers) add(static_cast<std::uint64_t>(number));
  }
  void add(std::uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) add_byte(word >> 8 * byte & 0xff);
  }
  std::uint64_t value() const { return value_; }
  std::string text() const {  // 16 hexadecimal digits
    constexpr const char* kDigits = "0123456789abcdef";
    std::string digits;
    for (int shift = 60; shift >= 0; shift -= 4) digits += kDigits[value_ >> shift & 15];
    return digits;
  }

 private:
  void add_byte(std::uint64_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace weft
