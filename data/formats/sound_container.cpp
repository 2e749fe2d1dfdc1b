// SPDX-License-Identifier: MIT
#include "data/formats/sound_container.h"

#include "data/formats/sound_frames.h"
#include "kernels/view.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace weft {
namespace {
[[noreturn]] void fail_without_length(const std::string& path) {
  fail(path,
       ": does not say how long it is, so that a cut would not be noticed; write it again with its "
       "length, for example by ffmpeg -i FILE NEW.flac");
}

// A head of `first` bytes, then chunks: a name of 4 bytes, a size, and with `padded` a byte more
// behind an odd size. The last chunk may have such a byte in any format, and may lack it.
struct ChunkedFormat {
  std::string_view head, kind;  // at bytes 0 and 8
  std::string_view samples;     // name of the chunk that holds them
  bool big_endian = false;
  std::size_t size_bytes = 4;
  int64_t first = 12;
  bool padded = true;
};

constexpr ChunkedFormat kChunkedFormats[] = {
    {"RIFF", "WAVE", "data"},
    {"RIFX", "WAVE", "data", true},
    {"RF64", "WAVE", "data"},
    {"FORM", "AIF", "SSND", true},  // AIFF is also AIFC
    {"caff", "", "data", true, 8, 8, false},
};

// Chunks fill the file, and one of them holds samples.
void check_chunks(SoundFileBytes& file, const ChunkedFormat& format) {
  constexpr int kMostChunks = 1000;
  const std::size_t head = 4 + format.size_bytes;
  const uint64_t unknown = ~uint64_t{0} >> (64 - 8 * format.size_bytes);
  uint64_t wide_size = unknown;  // of the samples, where their chunk has no room for it
  bool found = false;
  int64_t at = format.first;
  for (int chunk = 0; at < file.size; ++chunk) {
    const std::string bytes = file.read(at, head), name = bytes.substr(0, 4);
    const bool named = std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
    const bool samples = !found && name == format.samples;
    uint64_t size = number_in(
        std::string_view(bytes).substr(std::min<std::size_t>(4, bytes.size())), format.big_endian);
    if (samples && size == unknown) size = wide_size;
    if (samples && size == unknown) fail_without_length(file.path);
    const int64_t left = file.size - at - static_cast<int64_t>(head);
    const bool fits = left >= 0 && size <= static_cast<uint64_t>(left);
    if (!named || name == format.head || chunk == kMostChunks || (found && !fits))
      fail(file.path, ": is damaged: ", file.size - at, " bytes ",
           found ? "behind its samples" : "before any samples",
           " are no whole chunks; it is truncated, or states a wrong size");
    if (!fits)
      fail(file.path, ": is truncated: ", size, " bytes of ", samples ? "samples" : "chunk " + name,
           " should follow, ", std::max<int64_t>(left, 0), " do");
    at += static_cast<int64_t>(head);
    if (name == "ds64") wide_size = number_in(file.read(at + 8, 8), false);
    found = found || samples;
    at += static_cast<int64_t>(size);
    if (size % 2 == 1 && (format.padded || at + 1 == file.size)) ++at;
  }
  if (!found) fail(file.path, ": is a damaged or truncated sound file: it has no samples");
}

// Pages fill the file; every stream in it has its last page, and none begins behind another's end.
void check_pages(SoundFileBytes& file) {
  constexpr std::size_t kHead = 27, kFlags = 5, kSerial = 14, kSegments = 26;
  constexpr unsigned kBegins = 2, kEnds = 4;
  std::set<uint64_t> open;
  bool ended = false;
  for (int64_t at = 0; at < file.size;) {
    const std::string page = file.read(at, kHead + 255);
    const std::size_t segments = page.size() < kHead ? 0 : static_cast<uint8_t>(page[kSegments]);
    if (!page.starts_with("OggS") || page.size() < kHead + segments)
      fail(file.path, ": is truncated or damaged: its last ", file.size - at,
           " bytes are no page of Ogg");
    at += static_cast<int64_t>(kHead + segments);
    for (const char size : page.substr(kHead, segments)) at += static_cast<uint8_t>(size);
    if (at > file.size)
      fail(file.path, ": is truncated: its last page lacks ", at - file.size, " bytes");
    const uint64_t serial = number_in(page.substr(kSerial, 4), false);
    const auto flags = static_cast<uint8_t>(page[kFlags]);
    if ((flags & kBegins) != 0 && ended)
      fail(file.path, ": holds several sounds, one behind the other; give each as a file");
    if ((flags & kBegins) != 0) open.insert(serial);
    if ((flags & kEnds) != 0) ended = true, open.erase(serial);
  }
  if (!open.empty()) fail(file.path, ": is truncated: the page that ends its sound is missing");
}

// The frames that the first header states, and nothing joined behind them.
void check_mp3(SoundFileBytes& file, int64_t first) {
  const std::string head = file.read(first, 64);  // the header, its side information, then:
  const std::size_t at = std::min(head.find("Xing"), head.find("Info"));
  constexpr uint64_t kHasFrames = 1, kHasBytes = 2;
  constexpr std::size_t kFields = 16;  // name, flags, frames, bytes
  if (at < 40 && head.size() < at + kFields)
    fail(file.path, ": is truncated: its first frame ends within its header");
  const uint64_t flags = at < 40 ? number_in(head.substr(at + 4, 4), true) : 0;
  if ((flags & kHasFrames) == 0) fail_without_length(file.path);
  const uint64_t frames = number_in(head.substr(at + 8, 4), true);
  if ((flags & kHasBytes) == 0) return check_mp3_frames(file, first, frames);
  const int64_t end = first + static_cast<int64_t>(number_in(head.substr(at + 12, 4), true));
  const std::string next = file.read(end, 3);
  const bool frame = next.size() > 1 && next[0] == '\xff' && (next[1] & 0xe0) == 0xe0;
  if (frame || next == "ID3")
    fail(file.path, ": holds more sound than it states, which ends at byte ", end, " of ",
         file.size, "; give files that were joined one by one");
  check_mp3_frames(file, first, frames);
}

// The header that states the samples stands once.
void check_flac(SoundFileBytes& file, int64_t first) {
  constexpr std::string_view kStart{"fLaC\0\0\0\x22", 8};
  constexpr std::size_t kPiece = 1 << 20;
  for (int64_t at = first + 1; at < file.size; at += kPiece - kStart.size())
    if (const std::size_t found = file.read(at, kPiece).find(kStart); found != std::string::npos)
      fail(file.path, ": holds another sound from byte ", at + static_cast<int64_t>(found),
           " on; give files that were joined one by one");
  constexpr std::size_t kFrames = 21;  // the lower half of a byte, then 4 bytes
  const std::string stated = file.read(first + static_cast<int64_t>(kFrames), 5);
  const uint64_t samples = number_in(stated, true) & 0xf'ffff'ffff;
  if (samples == 0) fail_without_length(file.path);
  check_flac_frames(file, first, samples);
}
}  // namespace

void check_sound_is_whole(const std::string& path) {
  SoundFileBytes file(path);
  const std::string head = file.read(0, 12);
  for (const ChunkedFormat& format : kChunkedFormats)
    if (head.starts_with(format.head) && head.find(format.kind, 8) == 8)
      return check_chunks(file, format);
  if (head.starts_with("OggS")) return check_pages(file);
  int64_t first = 0;  // behind an ID3 tag, whose size has 7 bits a byte
  if (head.starts_with("ID3") && head.size() > 9) {
    first = 10;
    for (int k = 0; k < 4; ++k) first += int64_t{static_cast<uint8_t>(head[6 + k])} << 7 * (3 - k);
  }
  const std::string start = file.read(first, 4);
  if (start == "fLaC") return check_flac(file, first);
  if (start.size() > 1 && start[0] == '\xff' && (start[1] & 0xe0) == 0xe0)
    return check_mp3(file, first);
  fail(
      path,
      ": is sound in a container whose end cannot be checked; expected WAV, RF64, AIFF, CAF, FLAC, "
      "Ogg or MP3: convert it, for example by ffmpeg -i FILE NEW.flac");
}
}  // namespace weft
