// SPDX-License-Identifier: MIT
// Reads through libsndfile and resamples by libsamplerate, piece by piece; writes WAV.
#include "data/formats/audio_file.h"

#include "data/formats/sound_container.h"
#include "kernels/view.h"
#include "src/files/files.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#ifdef WEFT_SNDFILE
#include <samplerate.h>
#include <sndfile.h>
#endif

namespace weft {
namespace {
void append(std::string& bytes, int64_t value, int size) {  // little-endian
  for (int k = 0; k < size; ++k) bytes += static_cast<char>(value >> 8 * k & 0xff);
}

#ifdef WEFT_SNDFILE

constexpr int64_t kLeastRate = 1000, kMostRate = 768000;
constexpr int64_t kPiece = 1 << 16;  // samples read at a time, all channels together
constexpr float kNoSample = 0;       // libsamplerate, given null, keeps its last samples to itself
constexpr float kMostSample = 1000;  // beyond it the numbers are no sound from -1 to 1

// Mono samples at one rate in, codes at another out.
class Encoder {
 public:
  Encoder(const std::string& path, int64_t from, int64_t to, int64_t most,
          std::vector<uint16_t>& tokens)
      : path_(path),
        ratio_(static_cast<double>(to) / static_cast<double>(from)),
        most_(most),
        tokens_(tokens) {
    if (from == to) return;
    if (!src_is_valid_ratio(ratio_))
      fail(path, ": has ", from, " samples a second, too far from --rate ", to,
           "; at most 256 times");
    int error = 0;
    resampler_.reset(src_new(SRC_SINC_BEST_QUALITY, 1, &error));
    if (!resampler_) fail(path, ": cannot be resampled: ", src_strerror(error));
    out_.resize(kPiece);
  }

  void add(std::span<const float> samples, bool last) {
    if (!resampler_) return encode(samples);
    SRC_DATA data{};
    data.src_ratio = ratio_;
    data.end_of_input = last;
    data.data_in = samples.empty() ? &kNoSample : samples.data();
    data.input_frames = static_cast<long>(samples.size());
    data.data_out = out_.data();
    data.output_frames = static_cast<long>(out_.size());
    do {
      if (const int error = src_process(resampler_.get(), &data))
        fail(path_, ": cannot be resampled: ", src_strerror(error));
      encode({out_.data(), static_cast<std::size_t>(data.output_frames_gen)});
      data.data_in += data.input_frames_used;
      data.input_frames -= data.input_frames_used;
    } while (data.input_frames > 0 || data.output_frames_gen > 0);
  }

  int64_t clipped() const { return clipped_; }

 private:
  void encode(std::span<const float> samples) {
    if (static_cast<int64_t>(tokens_.size() + samples.size()) > most_)
      fail(path_, ": makes more than ", most_, " tokens; prepare fewer files at once");
    for (const float x : samples) {
      clipped_ += std::abs(x) > 1;
      tokens_.push_back(mu_law_encode(x));
    }
  }

  const std::string& path_;
  const double ratio_;
  const int64_t most_;
  std::vector<uint16_t>& tokens_;
  std::unique_ptr<SRC_STATE, SRC_STATE* (*)(SRC_STATE*)> resampler_{nullptr, src_delete};
  std::vector<float> out_;
  int64_t clipped_ = 0;
};

using SoundFile = std::unique_ptr<SNDFILE, int (*)(SNDFILE*)>;

SoundFile open_sound(const std::string& path, SF_INFO& info) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    fail(path, ": cannot be opened: there is no such file");
  if (!std::filesystem::is_regular_file(path, error))
    fail(path, ": is no regular file, expected a sound file");
  info = {};
  SoundFile file(sf_open(path.c_str(), SFM_READ, &info), sf_close);
  if (!file) fail(path, ": is no sound file that can be read: ", sf_strerror(nullptr));
  if (info.samplerate < kLeastRate || info.samplerate > kMostRate)
    fail(path, ": has ", info.samplerate, " samples a second; expected ", kLeastRate, " to ",
         kMostRate);
  if (info.channels < 1) fail(path, ": has no channels");
  check_sound_is_whole(path);
  return file;
}

// The mean over the channels of each frame. `first`: number of the first frame, for errors.
void average(std::span<const float> frames, int64_t channels, int64_t first,
             const std::string& path, std::vector<float>& mono) {
  mono.clear();
  for (std::size_t at = 0; at < frames.size(); at += static_cast<std::size_t>(channels)) {
    double sum = 0;
    for (const float x : frames.subspan(at, channels)) {
      if (!(std::abs(x) <= kMostSample))
        fail(path, ": frame ", first + std::ssize(mono), " holds ", x,
             "; expected samples from -1 to 1");
      sum += x;
    }
    mono.push_back(static_cast<float>(sum / static_cast<double>(channels)));
  }
}

#endif
}  // namespace

#ifdef WEFT_SNDFILE

bool has_audio() { return true; }

AudioFile append_audio(const std::string& path, int64_t rate, int64_t most,
                       std::vector<uint16_t>& tokens) {
  if (rate < kLeastRate || rate > kMostRate)
    fail("--rate: expected ", kLeastRate, " to ", kMostRate, " samples a second, got ", rate);
  SF_INFO info;
  const SoundFile file = open_sound(path, info);
  AudioFile result{0, info.channels, info.samplerate, 0};
  Encoder encoder(path, info.samplerate, rate, most, tokens);
  const sf_count_t piece = std::max<int64_t>(1, kPiece / info.channels);
  std::vector<float> frames(piece * info.channels), mono;
  for (;;) {
    const sf_count_t got = sf_readf_float(file.get(), frames.data(), piece);
    if (got <= 0) break;
    average({frames.data(), static_cast<std::size_t>(got * info.channels)}, info.channels,
            result.frames, path, mono);
    encoder.add(mono, false);
    result.frames += got;
  }
  if (sf_error(file.get()) != SF_ERR_NO_ERROR)
    fail(path, ": cannot be read beyond frame ", result.frames, ": ", sf_strerror(file.get()));
  if (result.frames == 0) fail(path, ": holds no sound: it has no frames");
  if (info.frames < SF_COUNT_MAX && result.frames < info.frames)
    fail(path, ": is truncated: it should have ", info.frames, " frames, ", result.frames,
         " can be read");
  encoder.add({}, true);
  result.clipped = encoder.clipped();
  return result;
}

#else

bool has_audio() { return false; }

AudioFile append_audio(const std::string& path, int64_t, int64_t, std::vector<uint16_t>&) {
  fail(path,
       ": this build reads no sound; install libsndfile1-dev and libsamplerate0-dev, configure and "
       "build "
       "again");
}

#endif

void write_wav(const std::string& path, std::span<const int32_t> tokens, int64_t rate) {
  constexpr int64_t kItem = 2, kHeader = 44, kPcm = 1, kMono = 1;
  const auto size = std::ssize(tokens) * kItem;
  if (rate < 1 || rate > 768000)
    fail(path, ": a sound of ", rate, " samples a second cannot be written");
  if (size > std::numeric_limits<int32_t>::max() - kHeader)
    fail(path, ": ", tokens.size(), " samples are too many for a WAV file");
  std::string bytes = "RIFF";
  append(bytes, kHeader - 8 + size, 4);
  bytes += "WAVEfmt ";
  append(bytes, 16, 4);  // bytes of the format
  for (const int64_t half : {kPcm, kMono}) append(bytes, half, 2);
  for (const int64_t word : {rate, rate * kItem}) append(bytes, word, 4);
  for (const int64_t half : {kItem, 8 * kItem}) append(bytes, half, 2);
  bytes += "data";
  append(bytes, size, 4);
  for (const int32_t token : tokens) {
    if (token < 0 || token >= kMuLawLevels)
      fail(path, ": token ", token, " is no mu-law code; expected 0 to ", kMuLawLevels - 1);
    append(bytes, std::lround(mu_law_decode(static_cast<uint8_t>(token)) * 32767), kItem);
  }
  write_whole_file(path, [&](std::ostream& out) { out << bytes; });
}
}  // namespace weft
