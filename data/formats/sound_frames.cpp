// SPDX-License-Identifier: MIT
#include "data/formats/sound_frames.h"

#include "kernels/view.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {
uint64_t number_in(std::string_view bytes, bool big_endian) {
  uint64_t value = 0;
  for (std::size_t k = 0; k < bytes.size(); ++k)
    value = value << 8 | static_cast<uint8_t>(bytes[big_endian ? k : bytes.size() - 1 - k]);
  return value;
}

namespace {
// The remainder of a polynomial of `kBits` bits, highest bit first, from 0.
template <int kBits, unsigned kPolynomial>
unsigned crc_of(std::string_view bytes) {
  unsigned crc = 0;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned>(static_cast<uint8_t>(byte)) << (kBits - 8);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc << 1 ^ (crc >> (kBits - 1) & 1 ? kPolynomial : 0)) & ((1u << kBits) - 1);
  }
  return crc;
}

// Where the samples of a file end: a tag of ID3v1 has 128 bytes.
int64_t end_of_sound(SoundFileBytes& file) {
  constexpr int64_t kTag = 128;
  return file.size >= kTag && file.read(file.size - kTag, 3) == "TAG" ? file.size - kTag
                                                                      : file.size;
}

// ---- FLAC ----

// The header of a frame at the start of `bytes`.
struct FlacHeader {
  bool valid = false;
  uint64_t end = 0;  // the sample behind its last one

  FlacHeader(std::string_view bytes, uint64_t block) {
    const auto byte = [&](std::size_t i) { return static_cast<uint8_t>(bytes[i]); };
    constexpr std::size_t kLongest = 16;
    if (bytes.size() < kLongest || byte(0) != 0xff || (byte(1) & 0xfe) != 0xf8) return;
    const int more = byte(4) < 0x80 ? 0 : std::countl_one(byte(4)) - 1;  // as in UTF-8
    if (more < 0 || more > 6 || (byte(4) >= 0x80 && more == 0)) return;
    uint64_t number = more == 0 ? byte(4) : byte(4) & (0x3f >> more);
    std::size_t at = 5;
    for (int i = 0; i < more; ++i, ++at) number = number << 6 | (byte(at) & 0x3f);
    const int size_code = byte(2) >> 4, rate_code = byte(2) & 15;
    uint64_t samples = size_code == 1  ? 192
                       : size_code < 6 ? 576u << std::max(0, size_code - 2)
                                       : 256u << std::max(0, size_code - 8);
    if (size_code == 6 || size_code == 7) {
      const std::size_t count = size_code == 6 ? 1 : 2;
      samples = number_in(bytes.substr(at, count), true) + 1;
      at += count;
    }
    at += rate_code == 12 ? 1 : rate_code == 13 || rate_code == 14 ? 2 : 0;
    valid = size_code > 0 && crc_of<8, 0x07>(bytes.substr(0, at)) == byte(at);
    end = ((byte(1) & 1) != 0 ? number : number * block) + samples;
  }
};

// Rate, channels and bits of a sample: the same in all frames.
bool is_of_same_stream(std::string_view a, std::string_view b) {
  return a[1] == b[1] && (a[2] & 15) == (b[2] & 15) && (a[3] & 15) == (b[3] & 15);
}

// Where the metadata blocks end.
int64_t first_flac_frame(SoundFileBytes& file, int64_t first) {
  int64_t at = first + 4;
  for (bool last = false; !last && at < file.size;) {
    const std::string head = file.read(at, 4);
    if (head.size() < 4) return file.size;
    last = (head[0] & 0x80) != 0;
    at += 4 + static_cast<int64_t>(number_in(std::string_view(head).substr(1), true));
  }
  return at;
}
}  // namespace

void check_flac_frames(SoundFileBytes& file, int64_t first, uint64_t stated) {
  constexpr int64_t kTail = 4 << 20;  // longer than any frame
  const uint64_t block = number_in(file.read(first + 8, 2), true);
  const int64_t begin = first_flac_frame(file, first), end = end_of_sound(file),
                from = std::max(begin, end - kTail);
  const std::string pattern = file.read(begin, 16),
                    tail =
                        file.read(from, static_cast<std::size_t>(std::max<int64_t>(0, end - from)));
  if (pattern.size() == 16)
    for (std::size_t at = tail.rfind('\xff'); at != std::string::npos && tail.size() - at >= 16;
         at = at == 0 ? std::string::npos : tail.rfind('\xff', at - 1)) {
      const std::string_view frame = std::string_view(tail).substr(at);
      const FlacHeader header(frame, block);
      if (!header.valid || !is_of_same_stream(frame, pattern)) continue;
      if (crc_of<16, 0x8005>(frame) != 0)
        fail(file.path,
             ": is truncated or damaged, or holds more than its sound: its last frame, at "
             "byte ",
             from + static_cast<int64_t>(at), ", does not end with the file");
      if (header.end != stated)
        fail(file.path, ": states ", stated, " samples and holds ", header.end);
      return;
    }
  fail(file.path, ": is truncated or damaged: its end has no frame of FLAC");
}

namespace {
// ---- MP3 ----

// Bytes of the frame whose header these are; 0: they are none.
int64_t mp3_frame_bytes(std::string_view head) {
  if (head.size() < 4) return 0;
  const auto bits = static_cast<uint32_t>(number_in(head.substr(0, 4), true));
  const unsigned version = bits >> 19 & 3, layer = 4 - (bits >> 17 & 3), rate = bits >> 12 & 15,
                 frequency = bits >> 10 & 3, padding = bits >> 9 & 1;
  if (bits >> 21 != 0x7ff || version == 1 || layer == 4 || rate == 0 || rate == 15 ||
      frequency == 3)
    return 0;
  static constexpr std::array<std::array<int, 14>, 5> kRates = {{
      {32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
      {32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
      {32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
      {32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
      {8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
  }};  // kbit/s of layers I, II and III of MPEG 1, then I, and II and III, of MPEG 2 and 2.5
  static constexpr std::array<int, 3> kFrequencies = {44100, 48000, 32000};
  const bool first = version == 3;
  const int kilobits = kRates[first ? layer - 1 : layer == 1 ? 3 : 4][rate - 1];
  const int hertz = kFrequencies[frequency] >> (first ? 0 : version == 2 ? 1 : 2);
  if (layer == 1) return (12000 * kilobits / hertz + static_cast<int>(padding)) * 4;
  const int scale = layer == 3 && !first ? 72000 : 144000;
  return scale * kilobits / hertz + static_cast<int>(padding);
}
}  // namespace

void check_mp3_frames(SoundFileBytes& file, int64_t first, uint64_t stated) {
  const int64_t end = end_of_sound(file);
  uint64_t frames = 0;
  int64_t at = first;
  while (at < end) {
    const std::string head = file.read(at, 8);
    const int64_t bytes = mp3_frame_bytes(head);
    if (bytes == 0 && (head == "APETAGEX" || head == "LYRICSBE")) break;
    if (bytes == 0)
      fail(file.path, ": is damaged: its last ", file.size - at, " bytes are no frame of MP3");
    at += bytes;
    if (at > end) fail(file.path, ": is truncated: its last frame lacks ", at - end, " bytes");
    ++frames;
  }
  if (frames != stated + 1 && frames != stated)  // some count the first one, which has no sound
    fail(file.path, ": states ", stated, " frames and holds ", frames - 1);
}
}  // namespace weft
