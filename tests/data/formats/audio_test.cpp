// SPDX-License-Identifier: MIT
// Sound: mu-law codes against their formula, files of every sample format, resampling of a sine,
// and files that are refused.
#include "data/dataset.h"
#include "data/formats/audio_file.h"
#include "data/formats/prepare.h"
#include "src/files/hdf5.h"
#include "tests/data/formats/archives.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
TEST(MuLaw, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    const double x = mu_law_decode(static_cast<uint8_t>(code));
    EXPECT_EQ(mu_law_encode(x), code);
    EXPECT_EQ(mu_law_encode(std::round(x * 32767) / 32768), code) << "through 16 bits";
    EXPECT_GT(x, code > 0 ? mu_law_decode(static_cast<uint8_t>(code - 1)) : -2);
    EXPECT_DOUBLE_EQ(x, -mu_law_decode(static_cast<uint8_t>(255 - code)));
  }
  EXPECT_EQ(mu_law_decode(0), -1);
  EXPECT_EQ(mu_law_decode(255), 1);
  EXPECT_DOUBLE_EQ(mu_law_decode(191), (std::pow(256.0, 127.0 / 255) - 1) / 255);
}

TEST(MuLaw, IsMonotoneAndKnowsItsEnds) {
  int before = 0;
  for (int k = -33000; k <= 33000; ++k) {
    const int code = mu_law_encode(k / 32768.0);
    EXPECT_GE(code, before);
    before = code;
  }
  EXPECT_EQ(mu_law_encode(0), 128);
  EXPECT_EQ(mu_law_encode(-0.0), 128);
  EXPECT_EQ(mu_law_encode(-1), 0);
  EXPECT_EQ(mu_law_encode(1), 255);
  EXPECT_EQ(mu_law_encode(7), 255);
  EXPECT_EQ(mu_law_encode(-INFINITY), 0);
  EXPECT_EQ(mu_law_encode(0.1), 203);  // f = ln 26.5 / ln 256 = 0.59097
}

struct Wav {
  int bits = 16, channels = 1, rate = 12000;
  bool real = false;

  std::string bytes(const std::vector<double>& samples) const {
    std::string data;
    for (const double x : samples) data += encoded(x);
    const int frame = channels * bits / 8;
    return "RIFF" + little_endian(36 + data.size(), 4) + "WAVEfmt " + little_endian(16, 4) +
           little_endian(real ? 3 : 1, 2) + little_endian(static_cast<uint64_t>(channels), 2) +
           little_endian(static_cast<uint64_t>(rate), 4) +
           little_endian(static_cast<uint64_t>(rate) * frame, 4) + little_endian(frame, 2) +
           little_endian(bits, 2) + "data" + little_endian(data.size(), 4) + data;
  }

  std::string encoded(double x) const {
    if (real) return little_endian(std::bit_cast<uint32_t>(static_cast<float>(x)), 4);
    if (bits == 8) return little_endian(static_cast<uint64_t>(std::lround(x * 127) + 128), 1);
    const auto integer = static_cast<int64_t>(std::llround(x * (std::ldexp(1, bits - 1) - 1)));
    return little_endian(static_cast<uint64_t>(integer), bits / 8);
  }
};

std::vector<double> sine(double frequency, double rate, int frames, double amplitude,
                         int channels = 1) {
  std::vector<double> samples;
  for (int t = 0; t < frames; ++t)
    for (int c = 0; c < channels; ++c)
      samples.push_back(amplitude * std::sin(2 * std::numbers::pi * frequency * t / rate) *
                        (c == 0 ? 1 : 0.5));
  return samples;
}

class Audio : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_audio()) GTEST_SKIP() << "built without libsndfile or libsamplerate";
  }

  std::vector<uint16_t> read(const std::string& bytes, int64_t rate = 12000,
                             int64_t most = 1 << 20) {
    write_file(dir_ / "x.wav", bytes);
    std::vector<uint16_t> tokens;
    append_audio(dir_ / "x.wav", rate, most, tokens);
    return tokens;
  }

  std::string error(const std::string& bytes, int64_t rate = 12000, int64_t most = 1 << 20) {
    return error_of([&] { read(bytes, rate, most); });
  }

  TempDir dir_;
};

TEST_F(Audio, SamplesOfEveryFormatGiveTheSameCodes) {
  const std::vector<double> samples = {0, 0.5, -0.5, 1, -1, 0.25, -0.125, 0.9, -0.9};
  for (const Wav& wav : {Wav{8}, Wav{16}, Wav{24}, Wav{32}, Wav{32, 1, 12000, true}}) {
    const auto tokens = read(wav.bytes(samples));
    ASSERT_EQ(tokens.size(), samples.size());
    for (std::size_t i = 0; i < tokens.size(); ++i)
      EXPECT_NEAR(mu_law_decode(static_cast<uint8_t>(tokens[i])), samples[i], 0.025)
          << wav.bits << " bits, sample " << i;
    EXPECT_EQ(tokens[0], 128);
    EXPECT_EQ(tokens[1], mu_law_encode(0.5));
  }
}

TEST_F(Audio, ChannelsAreAveraged) {
  const auto tokens = read(Wav{16, 2}.bytes({0.5, 0.25, -0.75, 0.25, 0.5, -0.5}));
  EXPECT_EQ(tokens, (std::vector<uint16_t>{mu_law_encode(0.375), mu_law_encode(-0.25), 128}));
}

// Amplitude of a frequency in the codes, from the middle of the sound.
double amplitude_at(const std::vector<uint16_t>& tokens, double frequency, double rate) {
  double real = 0, imaginary = 0;
  const std::size_t first = 1000, count = 10000;
  for (std::size_t t = first; t < first + count; ++t) {
    const double x = mu_law_decode(static_cast<uint8_t>(tokens.at(t))),
                 phase = 2 * std::numbers::pi * frequency * static_cast<double>(t) / rate;
    real += x * std::cos(phase), imaginary += x * std::sin(phase);
  }
  return 2 * std::hypot(real, imaginary) / count;
}

TEST_F(Audio, ResamplingKeepsASine) {
  const auto tokens = read(Wav{16, 2, 44100}.bytes(sine(440.4, 44100, 44100, 0.6, 2)));
  EXPECT_NEAR(static_cast<double>(tokens.size()), 12000, 2);
  EXPECT_NEAR(amplitude_at(tokens, 440.4, 12000), 0.45, 0.005);  // the mean of 0.6 and 0.3
  EXPECT_LT(amplitude_at(tokens, 444, 12000), 0.005);
  EXPECT_LT(amplitude_at(tokens, 880.8, 12000), 0.005);
  // Where the sine is at an instant, it is after resampling: nothing is shifted.
  for (int t = 100; t < 11900; t += 97)
    EXPECT_NEAR(mu_law_decode(static_cast<uint8_t>(tokens.at(static_cast<std::size_t>(t)))),
                0.45 * std::sin(2 * std::numbers::pi * 440.4 * t / 12000), 0.015);
  // What lies beyond half the new rate goes away instead of folding back.
  const auto high = read(Wav{16, 1, 44100}.bytes(sine(9000, 44100, 44100, 0.6)));
  EXPECT_LT(amplitude_at(high, 3000, 12000), 0.005);
  EXPECT_NEAR(static_cast<double>(read(Wav{16, 1, 8000}.bytes(sine(440, 8000, 8000, 0.5))).size()),
              12000, 2);
}

TEST_F(Audio, WhatIsNoSoundIsRefused) {
  const std::vector<double> samples(2000, 0.25);
  const std::string good = Wav{}.bytes(samples);
  EXPECT_CONTAINS(error("some text"), "x.wav: is no sound file that can be read: ");
  EXPECT_CONTAINS(error(""), "is no sound file that can be read");
  EXPECT_CONTAINS(error(good.substr(0, good.size() - 1)),
                  "is truncated: 4000 bytes of samples should follow, 3999 do");
  EXPECT_CONTAINS(error(Wav{}.bytes({})), "no frames");
  // FORM, size, AIFF; COMM: 1 channel, 4 frames, 16 bits, 12000 as an 80-bit number; SSND: offset,
  // block, samples
  const std::string aiff(
      "FORM\0\0\0\x36"
      "AIFFCOMM\0\0\0\x12\0\1\0\0\0\4\0\x10\x40\x0c\xbb\x80\0\0\0\0\0\0"
      "SSND\0\0\0\x10\0\0\0\0\0\0\0\0\x40\0\xc0\0\0\0\x7f\xff",
      62);
  EXPECT_EQ(read(aiff), (std::vector<uint16_t>{mu_law_encode(0.5), mu_law_encode(-0.5), 128, 255}));
  EXPECT_CONTAINS(error(aiff.substr(0, 60)),
                  "is truncated: 16 bytes of samples should follow, 14 do");
  const Wav real{32, 1, 12000, true};
  EXPECT_CONTAINS(error(real.bytes({0, NAN})), "frame 1 holds nan; expected samples from -1 to 1");
  EXPECT_CONTAINS(error(real.bytes({0, 0, INFINITY})), "frame 2 holds inf");
  EXPECT_CONTAINS(error(real.bytes({1e30})), "frame 0 holds 1e+30");
  EXPECT_CONTAINS(error(Wav{16, 1, 10}.bytes(samples)),
                  "has 10 samples a second; expected 1000 to 768000");
  EXPECT_CONTAINS(error(Wav{16, 1, 5000000}.bytes(samples)), "has 5000000 samples a second");
  EXPECT_CONTAINS(error(good, 5), "--rate: expected 1000 to 768000 samples a second, got 5");
  EXPECT_CONTAINS(error(good, 12000, 1999), "makes more than 1999 tokens");
  EXPECT_CONTAINS(error(Wav{16, 1, 1000}.bytes(samples), 100000, 10000),
                  "makes more than 10000 tokens");
  EXPECT_CONTAINS(error(Wav{16, 1, 1000}.bytes(samples), 768000), "too far from --rate 768000");
  std::vector<uint16_t> tokens;
  const auto at = [&](const std::string& path) {
    return error_of([&] { append_audio(path, 12000, 1000, tokens); });
  };
  EXPECT_CONTAINS(at(dir_.path()), "is no regular file");
  EXPECT_CONTAINS(at(dir_ / "none.wav"), "there is no such file");
}

// A byte of padding follows, which its size does not count.
TEST_F(Audio, ChunksOfOddSizeArePadded) {
  const Wav wav;
  const std::string good = wav.bytes({0.5, -0.5, 1});
  for (const std::size_t odd : {3, 1, 255}) {
    const std::string chunk = "note" + little_endian(odd, 4) + std::string(odd, 'x') + '\0';
    std::string with = good.substr(0, 36) + chunk + good.substr(36);
    with.replace(4, 4, little_endian(with.size() - 8, 4));
    EXPECT_EQ(read(with), read(good)) << odd;
    EXPECT_CONTAINS(error(with.substr(0, with.size() - 1)),
                    "is truncated: 6 bytes of samples should follow, 5 do");
  }
}

TEST_F(Audio, DamageGivesAnErrorOrASound) {
  const std::string whole = Wav{16, 2, 16000}.bytes(sine(300, 16000, 40, 0.5, 2));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error(whole.substr(0, size)), "") << size;
  for (std::size_t bit = 0; bit < 8 * 44; bit += 3) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    error(damaged);
  }
}

TEST_F(Audio, PrepareJoinsFilesAndStatesTheRate) {
  write_file(dir_ / "b.wav", Wav{}.bytes({0.5, -0.5, 1.0, 0}));
  write_file(dir_ / "a.wav", Wav{32, 1, 12000, true}.bytes({-1, 1.5}));
  const PrepareAudio o{{dir_ / "b.wav", dir_ / "a.wav"}, dir_ / "o.h5", 12000, {0.5, 0, 0.5}};
  EXPECT_EQ(prepare_audio(o),
            "read " + (dir_ / "b.wav") + ": 4 frames of 1 channel at 12000 Hz, 4 tokens\nread " +
                (dir_ / "a.wav") +
                ": 2 frames of 1 channel at 12000 Hz, 2 tokens, 1 of them clipped\nwrote " +
                (dir_ / "o.h5") + ": 6 tokens, vocabulary 256 (train 3, valid 0, test 3)");
  const Hdf5File file = Hdf5File::open(o.out);
  EXPECT_EQ(file.int_attribute("sample_rate"), 12000);
  EXPECT_EQ(file.text_attribute("sources"), "b.wav, a.wav");
  std::vector<int32_t> tokens(3);
  TokenDataset(o.out, "test", 256).read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{128, 0, 255}));
}

TEST_F(Audio, PrepareLeavesTheEarlierFile) {
  write_file(dir_ / "a.wav", Wav{}.bytes({0.5, -0.5}));
  write_file(dir_ / "x", "no sound");
  write_file(dir_ / "o.h5", "before");
  const auto error = [&](std::vector<std::string> files, std::string out) {
    return error_of([&] { prepare_audio({std::move(files), std::move(out)}); });
  };
  EXPECT_CONTAINS(error({dir_ / "a.wav", dir_ / "x"}, dir_ / "o.h5"), "is no sound file");
  EXPECT_CONTAINS(error({dir_ / "a.wav"}, dir_ / "a.wav"), "is both read and written");
  EXPECT_CONTAINS(error({}, dir_ / "o.h5"), "at least one file");
  EXPECT_EQ(read_file(dir_ / "o.h5"), "before");
}

TEST_F(Audio, WrittenTokensComeBack) {
  std::vector<int32_t> tokens;
  for (int t = 0; t < 700; ++t) tokens.push_back(t * 7 % 256);
  write_wav(dir_ / "o.wav", tokens, 12000);
  EXPECT_EQ(read_file(dir_ / "o.wav").size(), 44 + 1400u);
  std::vector<uint16_t> back;
  const AudioFile file = append_audio(dir_ / "o.wav", 12000, 1000, back);
  EXPECT_EQ(file.channels, 1);
  EXPECT_EQ(file.clipped, 0);
  EXPECT_TRUE(std::equal(back.begin(), back.end(), tokens.begin(), tokens.end()));
}

TEST(WriteWav, ErrorsWriteNothing) {
  TempDir dir;
  const std::vector<int32_t> good = {0, 255}, high = {256}, low = {-1};
  EXPECT_CONTAINS(error_of([&] { write_wav(dir / "o.wav", high, 12000); }),
                  "token 256 is no mu-law code");
  EXPECT_CONTAINS(error_of([&] { write_wav(dir / "o.wav", low, 12000); }),
                  "token -1 is no mu-law code");
  EXPECT_CONTAINS(error_of([&] { write_wav(dir / "o.wav", good, 0); }), "of 0 samples a second");
  EXPECT_CONTAINS(error_of([&] { write_wav(dir / "none/o.wav", good, 12000); }), "none");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  write_wav(dir / "o.wav", good, 12000);
  // RIFF, 40 bytes, WAVE, fmt, 16 bytes, PCM, mono, rate, bytes a second, bytes and bits of a
  // sample, data
  EXPECT_EQ(
      read_file(dir / "o.wav").substr(0, 40),
      std::string("RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\xe0\x2e\0\0\xc0\x5d\0\0\2\0\x10\0data",
                  40));
  EXPECT_EQ(read_file(dir / "o.wav").substr(40), std::string("\4\0\0\0\x01\x80\xff\x7f", 8));
}

TEST(AudioMissing, SaysWhatToInstall) {
  if (has_audio()) GTEST_SKIP() << "built with libsndfile and libsamplerate";
  EXPECT_CONTAINS(error_of([] { prepare_audio({{"a.wav"}, "o.h5"}); }), "install libsndfile1-dev");
}
}  // namespace
}  // namespace weft
