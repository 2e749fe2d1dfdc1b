// SPDX-License-Identifier: MIT
#include "train/formats/sample_sound.h"

#include "data/dataset.h"
#include "data/formats/audio_file.h"
#include "kernels/view.h"
#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "train/program/options.h"
#include "train/program/progress.h"
#include "train/sampling/sample_run.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace weft {
namespace {
// "a.wav" for a single sample, else "a_1.wav", "a_2.wav" ...
std::string numbered(const std::string& path, std::size_t number, std::size_t count) {
  const std::size_t dot = path.rfind('.');
  return count == 1 ? path : str(path.substr(0, dot), "_", number + 1, path.substr(dot));
}

// Samples a second of the sound in a data file; none: it holds something else.
std::optional<int64_t> sample_rate(const std::string& path) {
  return Hdf5File::open(path).int_attribute("sample_rate");
}

// Where the data file is gone, or has no rate, `notes` say what was taken.
int64_t rate_of_data(const Config& config, const std::string& checkpoint, Progress& notes) {
  constexpr int64_t kCommon = 12000;  // of prepare audio without --rate
  std::string why;
  try {
    const std::string path = find_data(config.data.path, checkpoint, "--rate");
    if (const auto rate = sample_rate(path)) return *rate;
    why = path + " does not say its rate";
  } catch (const Error&) {
    why = config.data.path + " cannot be read here";
  }
  notes.line(str("taking ", kCommon, " samples a second, as the rate of the data is not known (",
                 why, "); --rate must repeat another --rate of prepare audio"));
  return kCommon;
}
}  // namespace

void SoundSamples::add_options(CLI::App& app) {
  app.add_option("--rate", rate,
                 "sound: samples a second (those of the data that the model learned, where that "
                 "file is there, else 12000)")
      ->check(at_least(1));
}

bool SoundSamples::asked(const SampleArguments& a, const Config&) const {
  const std::string ending = ending_of(a.out);
  if (!is_sound_ending(ending)) return false;
  check_ending(a.out, ".wav", "sound");
  return true;
}

void SoundSamples::sample(SampleArguments& a, LoadedModel& loaded, Progress& notes) {
  refuse_text_options(a, "sound");
  const ModelConfig& model = loaded.config.model;
  if (!a.prompt.empty() || !a.prompt_file.empty())
    fail("a sound has no text to go on from: leave out --prompt");
  if (model.vocab > 256)
    fail("a WAV file is made from 256 levels; this model has ", model.vocab, " tokens");
  if (a.options.length == 0) a.options.length = model.context;
  check_sample_options(a.options, model);
  choose_batch(a, loaded);
  const int64_t hertz = rate > 0 ? rate : rate_of_data(loaded.config, a.checkpoint, notes);
  std::vector<std::vector<int32_t>> sounds(a.options.count);
  const SampleStats stats = weft::sample(
      *loaded.device, *loaded.model, model, a.options,
      [&](int64_t sample, int64_t, int32_t token) { sounds[sample].push_back(token); }, bar(notes));
  notes.clear();
  for (std::size_t i = 0; i < sounds.size() && a.options.group->rank() == 0; ++i)
    write_wav(numbered(a.out, i, sounds.size()), sounds[i], hertz);
  const std::size_t count = sounds.size();
  notes.line(str(numbered(a.out, 0, count), count > 1 ? " to " : "",
                 count > 1 ? numbered(a.out, count - 1, count) : "", ": ",
                 fixed_text(static_cast<double>(a.options.length) / static_cast<double>(hertz), 2),
                 count > 1 ? " s each at " : " s at ", hertz, " Hz, ", loaded.weights_text()));
  note_speed(a, a.options, stats, model, notes);
}

bool SoundSamples::preview(Device& device, Model& model, const Config& config,
                           const std::string& stem, const OnPositions& on_positions) const {
  std::optional<int64_t> hertz;
  try {
    hertz = sample_rate(config.data.path);
  } catch (const Error&) {
    return false;  // training goes on where the file was removed
  }
  if (!hertz || config.model.vocab > 256) return false;
  SampleOptions options{.seed = config.seed};
  options.length = config.model.context;
  std::vector<int32_t> sound;
  weft::sample(
      device, model, config.model, options,
      [&](int64_t, int64_t, int32_t token) { sound.push_back(token); }, on_positions);
  write_wav(stem + "wav", sound, *hertz);
  return true;
}
}  // namespace weft
