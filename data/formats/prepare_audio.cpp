// SPDX-License-Identifier: MIT
#include "data/dataset.h"
#include "data/formats/audio_file.h"
#include "data/formats/prepare.h"
#include "data/prepare/prepare.h"
#include "data/prepare/raw_file.h"
#include "kernels/view.h"
#include "src/files/overwrites.h"

#include <cstddef>
#include <string>
#include <vector>

namespace weft {
std::string prepare_audio(const PrepareAudio& o) {
  if (o.files.empty()) fail("prepare audio: name at least one file");
  check_overwrites({{"--out", o.out}}, o.files);
  std::vector<uint16_t> tokens;
  std::vector<std::string> sources;
  std::string lines;
  for (const std::string& path : o.files) {
    const std::size_t before = tokens.size();
    const AudioFile file = append_audio(path, o.rate, kMostTokens, tokens);
    lines += str("read ", path, ": ", file.frames, " frames of ", file.channels,
                 file.channels == 1 ? " channel" : " channels", " at ", file.rate, " Hz, ",
                 tokens.size() - before, " tokens");
    if (file.clipped > 0) lines += str(", ", file.clipped, " of them clipped");
    lines += '\n';
    sources.push_back(file_name(path));
  }
  const std::string what = str("mu-law codes of sound at ", o.rate, " Hz");
  return lines + write_token_file(o.out, tokens, kMuLawLevels, o.split, what, sources,
                                  {{"sample_rate", o.rate}});
}
}  // namespace weft
