// SPDX-License-Identifier: MIT
// Help for misspelt names: error texts list what exists and suggest the nearest.
#pragma once

#include <string>
#include <vector>

namespace weft {

// The candidate closest to `word` by edit distance (insert, delete, replace), the first of equals; "" when
// none is near: more than a third of the longer word would have to change.
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

// "a, b, c"
std::string joined(const std::vector<std::string>& words);

}  // namespace weft
