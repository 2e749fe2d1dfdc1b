// SPDX-License-Identifier: MIT
#include "train/sampling/sample_run.h"

#include <memory>
#include <ostream>
#include <sstream>

#include "data/formats/audio_file.h"
#include "src/files/files.h"
#include "train/program/loaded_model.h"
#include "train/ranks/ranks.h"
#include "train/sampling/sample_images.h"

namespace weft {
namespace {

constexpr std::int64_t kTextsAtATime = 8;

// A bar for as long as it takes.
OnPositions bar(Progress& progress) {
  auto clock = std::make_shared<Stopwatch>();
  clock->start();
  return [&progress, clock](std::int64_t done, std::int64_t all) {
    progress.passing(bar_text(done, all, clock->seconds()));
  };
}

std::string read_text(const std::string& path) {
  constexpr std::int64_t kMost = 64 << 20;  // bytes
  const std::vector<char> bytes = read_input(path, kMost);
  return {bytes.begin(), bytes.end()};
}

// Puts tokens into text: a single sample at once, several one after the other when a sample's turn has come.
class SampleWriter {
 public:
  SampleWriter(std::ostream& out, std::int64_t vocab, std::int64_t count)
      : out_(out), vocab_(vocab), texts_(static_cast<std::size_t>(count)) {}

  void add(std::int64_t sample, std::int32_t token) {
    texts_[static_cast<std::size_t>(sample)] += token_to_text(token, vocab_);
    if (sample == turn_) flush();
  }
  // Sample `turn_` is complete: the next one follows.
  void next() {
    flush();
    if (++turn_ == static_cast<std::int64_t>(texts_.size())) return;
    out_ << "\n==== sample " << turn_ + 1 << " ====\n";
    flush();
  }

 private:
  void flush() {
    std::string& text = texts_[static_cast<std::size_t>(turn_)];
    out_ << text << std::flush;
    text.clear();
  }

  std::ostream& out_;
  std::int64_t vocab_;
  std::vector<std::string> texts_;
  std::int64_t turn_ = 0;
};

void sample_text(SampleArguments& a, LoadedModel& loaded, std::ostream& text, Progress& notes) {
  const ModelConfig& model = loaded.config.model;
  if (a.options.length == 0) fail("--length: how many tokens to add to the prompt");
  // Over 256, text is numbers.
  const std::int64_t vocab = a.tokens ? std::max<std::int64_t>(model.vocab, 257) : model.vocab;
  a.options.prompt = text_to_tokens(a.prompt_file.empty() ? a.prompt : read_text(a.prompt_file), vocab);
  check_sample_options(a.options, model);
  notes.line(loaded.weights_text());
  std::ostringstream kept;
  SampleWriter writer(a.out.empty() ? text : kept, vocab, a.options.count);
  const std::int64_t length = a.options.given() + a.options.length;
  const SampleStats stats = sample(
      *loaded.device, *loaded.model, model, a.options,
      [&](std::int64_t sample, std::int64_t position, std::int32_t token) {
        writer.add(sample, token);
        if (position + 1 == length) writer.next();
      },
      a.out.empty() ? OnPositions{} : bar(notes));
  notes.clear();
  if (!a.out.empty() && a.options.group->rank() == 0)
    write_whole_file(a.out, [&](std::ostream& out) { out << kept.str(); });
  if (a.out.empty()) text << '\n' << std::flush;
  if (a.stats) notes.line(stats_text(stats, a.options.given(), length));
}

// "a.wav" for a single sample, else "a_1.wav", "a_2.wav" ...
std::string numbered(const std::string& path, std::size_t number, std::size_t count) {
  const std::size_t dot = path.rfind('.');
  return count == 1 ? path : str(path.substr(0, dot), "_", number + 1, path.substr(dot));
}

void sample_sound(SampleArguments& a, LoadedModel& loaded, Progress& notes) {
  const ModelConfig& model = loaded.config.model;
  if (!a.prompt.empty() || !a.prompt_file.empty())
    fail("a sound has no text to go on from: leave out --prompt");
  if (model.vocab > 256)
    fail(str("a WAV file is made from 256 levels; this model has ", model.vocab, " tokens"));
  if (a.options.length == 0) a.options.length = model.context;
  check_sample_options(a.options, model);
  std::vector<std::vector<std::int32_t>> sounds(static_cast<std::size_t>(a.options.count));
  const SampleStats stats = sample(
      *loaded.device, *loaded.model, model, a.options,
      [&](std::int64_t sample, std::int64_t, std::int32_t token) { sounds[sample].push_back(token); },
      bar(notes));
  notes.clear();
  for (std::size_t i = 0; i < sounds.size() && a.options.group->rank() == 0; ++i)
    write_wav(numbered(a.out, i, sounds.size()), sounds[i], a.rate);
  notes.line(str(a.out, ": ",
                 fixed_text(static_cast<double>(a.options.length) / static_cast<double>(a.rate), 2), " s at ",
                 a.rate, " Hz, ", loaded.weights_text()));
  if (a.stats) notes.line(stats_text(stats, 0, a.options.length));
}

}  // namespace

void run_sample(SampleArguments a, ProcessGroup& group, std::ostream& text, Progress& notes) {
  const auto loaded = load_model(
      a.checkpoint, [&] { return open_rank_device(group, a.device); }, weights_from(a.weights));
  a.options.group = &group;
  const bool image = a.options.length == 0 && draws_images(loaded->config), sound = a.out.ends_with(".wav");
  if (a.tokens && (image || sound)) fail("--tokens is for text: leave it out, or set --length and no F.wav");
  if (image) return sample_images(a, *loaded, notes);
  if (!a.singles.empty() || !a.complete.empty() || !a.augmentation.empty() || a.label >= 0 || a.upright)
    fail(str(
        a.checkpoint,
        ": is a model of text; --singles, --complete, --augmentation, --label and --upright are for images"));
  a.options.batch = a.batch > 0 ? a.batch : kTextsAtATime;
  sound ? sample_sound(a, *loaded, notes) : sample_text(a, *loaded, text, notes);
}

}  // namespace weft
