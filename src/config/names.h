// SPDX-License-Identifier: MIT
// Lists and numbers in texts. Help for misspelt names: error texts list what exists and suggest the
// nearest.
#pragma once

#include "kernels/view.h"

#include <charconv>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace weft {
// The first candidate with the least edit distance from `word`, of those that begin with it where
// some do; else "" when more than a third of the longer word would have to change.
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

// "; did you mean <nearest>?", or "".
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

// "a, b, c": of each item what `text` makes of it.
template <class Items, class Text = std::identity>
std::string joined(Items&& items, const char* separator = ", ", const Text& text = {}) {
  std::string all;
  for (const auto& item : items) all += str(all.empty() ? "" : separator, std::invoke(text, item));
  return all;
}

// "a, b and c"
std::string listed(const std::vector<std::string>& words, const char* last = " and ");

// The whole of `text` as a number.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}
}  // namespace weft
