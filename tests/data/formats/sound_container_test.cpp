// SPDX-License-Identifier: MIT
// Files of sound in every container that libsndfile writes: whole ones are read or their container
// is refused; cut ones, joined ones and those that state less than they hold are an error.
#include "data/formats/audio_file.h"
#include "tests/data/formats/archives.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#ifdef WEFT_SNDFILE
#include <sndfile.h>

namespace weft {
namespace {
constexpr int kFrames = 60000, kRate = 16000;

class SoundContainer : public testing::Test {
 protected:
  // The bytes of a file of this format; "" where the library does not write it.
  std::string written(int format, int frames = kFrames) {
    SF_INFO info{};
    info.samplerate = kRate, info.channels = 1, info.format = format;
    if (!sf_format_check(&info)) return "";
    SNDFILE* file = sf_open((dir_ / "w").c_str(), SFM_WRITE, &info);
    if (!file) return "";
    std::vector<float> samples;
    for (int t = 0; t < frames; ++t)
      samples.push_back(static_cast<float>(0.5 * std::sin(0.003 * t * (1 + t * 0.0001))));
    sf_writef_float(file, samples.data(), frames);
    sf_close(file);
    return read_file(dir_ / "w");
  }

  std::string error(const std::string& bytes, int64_t frames = kFrames) {
    write_file(dir_ / "x", bytes);
    std::vector<uint16_t> tokens;
    const std::string text = error_of([&] { append_audio(dir_ / "x", kRate, 1 << 20, tokens); });
    if (!text.empty()) return text;
    EXPECT_GE(std::ssize(tokens), frames);
    EXPECT_LT(std::ssize(tokens), frames + 64) << "ADPCM has whole blocks";
    return "";
  }

  TempDir dir_;
  std::string wav_ = written(SF_FORMAT_WAV | SF_FORMAT_PCM_16);
};

// `bytes` with the number behind `name` replaced; it lies `skip` bytes behind it.
std::string stating(std::string bytes, const std::string& name, const std::string& number,
                    std::size_t skip = 0) {
  return bytes.replace(bytes.find(name) + name.size() + skip, number.size(), number);
}

std::string big_endian(uint64_t value, int size) {
  const std::string bytes = little_endian(value, size);
  return {bytes.rbegin(), bytes.rend()};
}

TEST_F(SoundContainer, EveryOneIsReadWholeOrRefusedAndNeverCut) {
  std::map<int, int> taken;  // how many encodings, by container
  int containers = 0;
  sf_command(nullptr, SFC_GET_FORMAT_MAJOR_COUNT, &containers, sizeof containers);
  for (int number = 0; number < containers; ++number) {
    SF_FORMAT_INFO container{};
    container.format = number;
    sf_command(nullptr, SFC_GET_FORMAT_MAJOR, &container, sizeof container);
    for (const int encoding :
         {SF_FORMAT_PCM_16, SF_FORMAT_FLOAT, SF_FORMAT_IMA_ADPCM, SF_FORMAT_ALAC_16,
          SF_FORMAT_VORBIS, SF_FORMAT_OPUS, SF_FORMAT_MPEG_LAYER_III, SF_FORMAT_DPCM_16}) {
      const std::string whole = written(container.format | encoding);
      if (whole.empty()) continue;
      SCOPED_TRACE(str(container.name, ", encoding ", encoding));
      const bool good = error(whole).empty();
      if (good) ++taken[container.format & SF_FORMAT_TYPEMASK];
      for (std::size_t percent = 5; percent < 100; percent += 11)
        EXPECT_NE(error(whole.substr(0, whole.size() * percent / 100)), "") << percent << " %";
      EXPECT_NE(error(whole.substr(0, whole.size() * 6 / 10)), "");
      EXPECT_NE(error(whole + whole), "") << "two files, joined";
    }
  }
  for (const int kept : {SF_FORMAT_WAV, SF_FORMAT_WAVEX, SF_FORMAT_RF64, SF_FORMAT_AIFF,
                         SF_FORMAT_CAF, SF_FORMAT_FLAC, SF_FORMAT_OGG})
    EXPECT_GE(taken[kept], 1) << std::hex << kept;
  EXPECT_GE(taken[SF_FORMAT_WAV], 3) << "16 bits, real numbers, IMA ADPCM";
  EXPECT_CONTAINS(error(written(SF_FORMAT_AU | SF_FORMAT_PCM_16)),
                  "is sound in a container whose end cannot be checked; expected WAV, RF64");
}

TEST_F(SoundContainer, AStatedSizeBelowThatOfTheFileIsAnError) {
  const std::string aiff = written(SF_FORMAT_AIFF | SF_FORMAT_PCM_16),
                    caf = written(SF_FORMAT_CAF | SF_FORMAT_PCM_16),
                    rf64 = written(SF_FORMAT_RF64 | SF_FORMAT_PCM_16);
  const std::string wrapped = "is damaged: 119936 bytes behind its samples are no whole chunks";
  EXPECT_CONTAINS(error(stating(wav_, "data", little_endian(64, 4))), wrapped);
  EXPECT_CONTAINS(error(stating(rf64, "ds64", little_endian(64, 8), 12)), wrapped);
  EXPECT_CONTAINS(error(stating(aiff, "SSND", big_endian(64, 4))), "behind its samples are no");
  EXPECT_CONTAINS(error(stating(caf, "data", big_endian(64, 8))), "behind its samples are no");
  std::string big = wav_;
  big.replace(0, 4, "RIFX");
  EXPECT_NE(error(stating(big, "data", big_endian(64, 4))), "");
  EXPECT_CONTAINS(error(wav_ + "junk that is none"), "behind its samples are no whole chunks");
  EXPECT_CONTAINS(error(wav_ + '\0'), "1 bytes behind its samples are no whole chunks");
}

TEST_F(SoundContainer, WhatFollowsTheSamplesByRightIsPassedOver) {
  const std::string list = "LIST" + little_endian(5, 4) + "INFO5";
  EXPECT_EQ(error(wav_ + list + '\0'), "");
  EXPECT_EQ(error(wav_ + list), "") << "no byte of padding behind the last";
  EXPECT_CONTAINS(error(wav_ + list.substr(0, 11)), "11 bytes behind its samples are no whole");
  const std::string odd = written(SF_FORMAT_WAV | SF_FORMAT_PCM_U8, 333);
  const std::string bare = odd.substr(0, odd.find("data") + 8 + 333);
  EXPECT_EQ(error(bare, 333), "");
  EXPECT_EQ(error(bare + '\0', 333), "");
}

TEST_F(SoundContainer, FramesAreThoseThatAreStated) {
  const std::string flac = written(SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  std::string tag(128, ' ');
  tag.replace(0, 3, "TAG");
  EXPECT_EQ(error(flac + tag), "");
  for (const uint64_t few : {640, 4096, 8192, 59999}) {
    std::string bytes = flac;
    bytes.replace(22, 4, big_endian(few, 4));
    EXPECT_CONTAINS(error(bytes), str("states ", few, " samples and holds 60000"));
  }
  const std::string junk(5000, 'j');
  EXPECT_CONTAINS(error(flac + junk), "does not end with the file");
  EXPECT_CONTAINS(error(flac.substr(0, flac.size() - 1)), "does not end with the file");
  const std::string mp3 = written(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III);
  if (mp3.empty()) GTEST_SKIP() << "this libsndfile writes no MP3";
  EXPECT_EQ(error(mp3 + tag), "");
  const std::string name = mp3.find("Xing") < mp3.size() ? "Xing" : "Info";
  EXPECT_CONTAINS(error(stating(mp3, name, big_endian(5, 4), 4)), "states 5 frames and holds ");
  EXPECT_CONTAINS(error(mp3 + junk), "last 5000 bytes are no frame of MP3");
}

// Found by the fuzzer: libsndfile opens it.
TEST_F(SoundContainer, AFileThatEndsWithinItsFirstFrameIsAnError) {
  const char bytes[] = "\377\366\1\0WA\377\366\1\0WA!EfInfo\0 \0\377\0";
  EXPECT_NE(error({bytes, sizeof bytes}), "");
}

TEST_F(SoundContainer, WhatStatesNoLengthIsRefused) {
  const std::string text = "does not say how long it is, so that a cut would not be noticed";
  EXPECT_CONTAINS(error(stating(wav_, "data", little_endian(0xffffffff, 4))), text);
  std::string flac = written(SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  ASSERT_EQ(error(flac), "");
  flac[21] = static_cast<char>(flac[21] & 0xf0);
  EXPECT_CONTAINS(error(flac.replace(22, 4, 4, '\0')), text);
  const std::string mp3 = written(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III);
  if (mp3.empty()) GTEST_SKIP() << "this libsndfile writes no MP3";
  EXPECT_EQ(error(mp3), "");
  const std::size_t info = std::min(mp3.find("Xing"), mp3.find("Info"));
  EXPECT_CONTAINS(error(std::string(mp3).replace(info, 4, "none")), text);
  EXPECT_CONTAINS(error(mp3 + mp3), "holds more sound than it states, which ends at byte ");
}
}  // namespace
}  // namespace weft
#endif
