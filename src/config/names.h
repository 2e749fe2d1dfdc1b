// SPDX-License-Identifier: MIT
// Help for misspelt names: error texts list what exists and suggest the nearest.
#pragma once

#include <string>
#include <vector>

namespace weft {

// The first candidate with the least edit distance from `word`, of those that begin with it where some do;
// else "" when more than a third of the longer word would have to change.
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

// "; did you mean <nearest>?", or "".
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

// "a, b, c"
std::string joined(const std::vector<std::string>& words, const char* separator = ", ");

}  // namespace weft
