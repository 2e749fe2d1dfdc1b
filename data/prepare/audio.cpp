// SPDX-License-Identifier: MIT
// prepare audio: sound files as one stream of mu-law codes.
#include "data/dataset.h"
#include "data/formats/audio_file.h"
#include "data/formats/mu_law.h"
#include "data/formats/raw_file.h"
#include "data/prepare/prepare.h"
#include "kernels/view.h"

namespace weft {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 32;  // 8 GiB of memory; 99 hours at 12 kHz

}  // namespace

std::string prepare_audio(const PrepareAudio& o) {
  if (o.files.empty()) fail("prepare audio: name at least one file");
  std::vector<std::uint16_t> tokens;
  std::vector<std::string> sources;
  std::string lines;
  for (const std::string& path : o.files) {
    check_not_written(path, o.out);
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
  return lines +
         write_token_file(o.out, tokens, kMuLawLevels, o.split, what, sources, {{"sample_rate", o.rate}});
}

}  // namespace weft
