// SPDX-License-Identifier: MIT
// The program `inspect`: what a config means, before anything is trained.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace weft {

struct InspectOptions {
  std::string config;
  std::vector<std::string> overrides;    // --set
  std::string pattern;                   // "LAYER,HEAD"; empty: the report
  std::optional<std::int64_t> length;    // of the sequences looked at; the config's context
  std::optional<std::int64_t> position;  // whose receptive field is drawn; about 5/8 of the length
  std::string png, mask_out;             // files to write, with `pattern`
};

// Without `pattern`: parameters, memory, FLOPs, and what each layer's attention costs. With it: one head's
// pattern as text, and as the files asked for.
void inspect(const InspectOptions&, std::ostream&);

}  // namespace weft
