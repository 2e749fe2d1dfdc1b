// SPDX-License-Identifier: MIT
// JSON objects on one line, and bytes as UTF-8.
#pragma once

#include "src/config/names.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace weft {
// A string in quotes; control characters become spaces.
inline std::string json_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

// A key with its value; `Raw` is written as it is.
struct JsonMember {
  struct Raw {
    std::string text;
  };

  std::string text;

  JsonMember(const std::string& key, const std::string& value)
      : JsonMember(key, Raw{json_quoted(value)}) {}

  JsonMember(const std::string& key, const char* value)
      : JsonMember(key, std::string(value)) {}

  JsonMember(const std::string& key, bool value)
      : JsonMember(key, Raw{value ? "true" : "false"}) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  JsonMember(const std::string& key, T value)
      : JsonMember(key, Raw{str(value)}) {}

  JsonMember(const std::string& key, const Raw& raw)
      : text(json_quoted(key) + ": " + raw.text) {}
};

using JsonMembers = std::vector<JsonMember>;

inline std::string json_members(const JsonMembers& members) {  // without braces
  return joined(members, ", ", &JsonMember::text);
}

inline std::string json_object(const JsonMembers& members) {
  return "{" + json_members(members) + "}";
}

// ---- bytes as characters that a page or a terminal can show ----

inline constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Bytes of the UTF-8 character at `text[at]`. 0: there is none, or it is a control character other
// than line break and tab.
inline std::size_t utf8_length(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned char>(i < text.size() ? text[i] : 0);
  };
  const unsigned char first = byte(at);
  if (first < 0x80) return first >= 0x20 || first == '\n' || first == '\t' ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  const bool overlong =
      (first == 0xe0 && byte(at + 1) < 0xa0) || (first == 0xf0 && byte(at + 1) < 0x90);
  const bool beyond =
      (first == 0xed && byte(at + 1) > 0x9f) || (first == 0xf4 && byte(at + 1) > 0x8f);
  return overlong || beyond ? 0 : length;
}

// Removes the characters from the front of `bytes` and returns them; invalid bytes become U+FFFD.
// An incomplete character at the end stays in `bytes`, unless `last`.
inline std::string take_characters(std::string& bytes, bool last) {
  std::string out;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t length = utf8_length(bytes, at), left = bytes.size() - at;
    const auto completed = [&](const char* by) {
      return utf8_length(bytes.substr(at) + by, 0) > left;
    };
    if (length == 0 && !last && (completed("\x80\x80\x80") || completed("\xbf\xbf\xbf"))) break;
    out += length == 0 ? kReplacement : bytes.substr(at, length);
    at += std::max<std::size_t>(length, 1);
  }
  bytes.erase(0, at);
  return out;
}
}  // namespace weft
