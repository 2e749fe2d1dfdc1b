// SPDX-License-Identifier: MIT
// train --init: fine-tuning from the weights of another run.
#pragma once

#include "src/config/config.h"
#include "src/parameters.h"

namespace weft {

// Takes what the file (see open_weights) has into an allocated store. Lines for people: what was taken,
// extended, drawn anew or left, and which keys of the model differ. Throws Error when nothing fits, and when
// heads differ in number: then weights of equal shape mean something else.
std::vector<std::string> take_initial_weights(const std::string& path, const Config&, Device&,
                                              ParameterStore&);

}  // namespace weft
