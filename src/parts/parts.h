// SPDX-License-Identifier: MIT
// weft is a core and parts: folders that can be switched off or deleted (src/parts/parts.cmake
// lists them). The core owns tables (kinds of patterns, of models, of communicators, ...) and never
// names a part. A part adds rows to them in `void weft::register_<part>()`.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft {
struct Part {
  std::string_view name;
  // of CMake: "WEFT_WITH_CONTENT", and what it requires behind "=ON -D"; "": this library never has
  // the part
  std::string_view option;
  std::string_view holds;  // what a person may ask for, separated by spaces: "routing lsh"
  bool built;
};

// Calls register_<part>() of every part that is built, once. A table calls it before it is read.
void register_parts();

// All parts, built or not.
std::span<const Part> parts();

// How a build gets what it was asked for by name, for errors: "'routing' is in the part 'content',
// which this build leaves out: configure with -DWEFT_WITH_CONTENT=ON". "": no absent part holds it.
std::string absent_part_text(std::string_view asked);
}  // namespace weft
