// SPDX-License-Identifier: MIT
// Containers of sound, read for one question: is the file whole? libsndfile takes a shortened file
// for a short one, and stops where a header says, whatever follows.
#pragma once

#include <string>

namespace weft {
// Throws Error unless the file is whole: when it is cut, when bytes follow its samples that its
// container does not explain (a size that wrapped, files that were joined), when it does not say
// where it ends, and when its container is none of WAV, RF64, AIFF, CAF, FLAC, Ogg and MP3.
// The frames that FLAC and MP3 state are left to the reader, which has to compare them.
void check_sound_is_whole(const std::string& path);
}  // namespace weft
