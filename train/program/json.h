// SPDX-License-Identifier: MIT
// JSON objects on one line.
#pragma once

#include "kernels/view.h"
#include "src/config/names.h"

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

  JsonMember(const std::string& key, const std::string& value) : JsonMember(key, Raw{json_quoted(value)}) {}
  JsonMember(const std::string& key, const char* value) : JsonMember(key, std::string(value)) {}
  JsonMember(const std::string& key, bool value) : JsonMember(key, Raw{value ? "true" : "false"}) {}
  template <class T>
  requires std::is_arithmetic_v<T> JsonMember(const std::string& key, T value)
      : JsonMember(key, Raw{str(value)}) {}
  JsonMember(const std::string& key, const Raw& raw) : text(json_quoted(key) + ": " + raw.text) {}
};
using JsonMembers = std::vector<JsonMember>;

inline std::string json_members(const JsonMembers& members) {  // without braces
  return joined(members, ", ", &JsonMember::text);
}
inline std::string json_object(const JsonMembers& members) { return "{" + json_members(members) + "}"; }

}  // namespace weft
