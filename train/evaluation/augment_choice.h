// SPDX-License-Identifier: MIT
// Augmentations chosen by a person: "rotation=1,color=2".
#pragma once

#include "data/augment/augment.h"

namespace weft {

// Kinds that are not named have the value 0; "" and "none" name none. Errors list the model's kinds.
AugmentChoice parse_choice(const std::string& text, const Config&);
// All kinds of the config with their values, "rotation=1,color=0"; "none" when it has no kinds.
std::string choice_text(const AugmentChoice&, const Config&);
// Every combination of values of the config's kinds, the last kind varying fastest.
std::vector<AugmentChoice> all_choices(const Config&);

}  // namespace weft
