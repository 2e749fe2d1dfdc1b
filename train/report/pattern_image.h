// SPDX-License-Identifier: MIT
// A pattern as a picture: panels side by side.
#pragma once

#include "train/inspect/picture.h"
#include "train/program/png.h"

#include <string>

namespace weft {
Image pattern_image(const AttentionPattern&, const PictureSpec&);
void write_pattern_image(const std::string& path, const AttentionPattern&, const PictureSpec&);
}  // namespace weft
