// SPDX-License-Identifier: MIT
// Keys on which two configs disagree, and which of them a resumed run may have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {
struct Config;

// What a key may do when a run is resumed.
enum class OnResume : uint8_t {
  same,   // refused: it decides what a step computes
  asked,  // changes how sums round: allowed with `train --allow-changes`, which says so
  told,   // changes what is trained from here on, for which it was set: allowed, and said
  free,   // may differ: the weights are the same bits
};

// A key on which two configs disagree; values as to_yaml writes them.
struct KeyDifference {
  std::string key, there, here;
  OnResume rule = OnResume::same;
  std::string effect;  // with asked and told: what it changes
};

// Compares all keys. Files of data differ only when their names do, as folders may move.
std::vector<KeyDifference> config_differences(const Config& there, const Config& here);
// The keys with a rule, "a, b, c".
std::string keys_on_resume(OnResume);
}  // namespace weft
