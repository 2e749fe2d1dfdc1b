// SPDX-License-Identifier: MIT
// Which options of `inspect` go together, and which files it may write.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weft {
struct InspectOptions;

// The option that names a head, and what it says; "": none does. Throws Error for two of them.
std::pair<const char*, std::string> chosen_head(const InspectOptions&);
// Whether an option is given that needs a head to draw.
bool draws(const InspectOptions&);

// Throws Error for options without those that they go with. Opens no file.
void check_options(const InspectOptions&);

// Throws Error where --png or --mask-out names a file of `read`, or one that is there and is not
// of the kind that the option writes. Names of `read` may be empty.
void check_written(const InspectOptions&, const std::vector<std::string>& read);
}  // namespace weft
