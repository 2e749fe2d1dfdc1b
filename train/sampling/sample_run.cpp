// SPDX-License-Identifier: MIT
#include "train/sampling/sample_run.h"

#include "src/config/config.h"
#include "src/files/files.h"
#include "src/files/overwrites.h"
#include "src/parts/parts.h"
#include "train/program/json.h"
#include "train/program/stop_signal.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <optional>
#include <signal.h>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft {

namespace {
// Puts tokens into text: one sample as it comes, several in turn. A sample ends before the stop
// text.
class SampleWriter {
 public:
  // `whole`: characters are, for a terminal. `begin`: how each sample begins (echo_of()).
  SampleWriter(std::ostream& out, TextForm form, int64_t count, const std::string& stop, bool whole,
               std::string begin)
      : out_(out),
        form_(form),
        whole_(whole),
        stop_(text_to_tokens(stop, form, "--stop")),
        begin_(std::move(begin)),
        texts_(count) {}

  void begin() { out_ << begin_ << std::flush; }

  void add(int64_t sample, int32_t token, bool last) {
    Text& text = texts_[sample];
    if (text.done) return;
    text.waiting.push_back(token);
    const std::size_t held = may_stop(text.waiting);
    text.done = last || (held > 0 && held == stop_.size());
    if (held == stop_.size()) text.waiting.resize(text.waiting.size() - held);
    if (sample == turn_) write();
  }

  void end(int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count && i < samples(); ++i) texts_[i].done = true;
    write();
  }

  bool ended(int64_t first, int64_t count) const {
    const auto begin = texts_.begin() + first;
    return std::all_of(begin, begin + std::min(count, samples() - first),
                       [](const Text& t) { return t.done; });
  }

  void go_on() { texts_[0].done = false; }  // the only sample

 private:
  struct Text {
    std::vector<int32_t> waiting;
    bool done = false;
  };

  int64_t samples() const { return std::ssize(texts_); }

  // How many of the last tokens are the beginning of the stop text.
  std::size_t may_stop(const std::vector<int32_t>& tokens) const {
    std::size_t n = std::min(tokens.size(), stop_.size());
    while (!std::equal(tokens.end() - n, tokens.end(), stop_.begin())) --n;
    return n;
  }

  void write() {
    for (;; ++turn_) {
      Text& text = texts_[turn_];
      const auto ready =
          text.waiting.end() - static_cast<std::ptrdiff_t>(text.done ? 0 : may_stop(text.waiting));
      for (auto token = text.waiting.begin(); token < ready; ++token)
        bytes_ += token_to_text(*token, form_);
      text.waiting.erase(text.waiting.begin(), ready);
      out_ << (whole_ ? take_characters(bytes_, text.done) : std::exchange(bytes_, {}));
      if (!text.done || turn_ + 1 == samples()) break;
      out_ << "\n==== sample " << turn_ + 2 << " ====\n" << begin_;
    }
    out_ << std::flush;
  }

  std::ostream& out_;
  TextForm form_;
  bool whole_;
  std::vector<int32_t> stop_;
  std::string begin_;
  std::vector<Text> texts_;
  std::string bytes_;  // of the sample whose turn it is
  int64_t turn_ = 0;
};

// While it lives, Ctrl-C ends the texts at hand, and a second one the program. nohup and & are
// respected.
class TextInterrupt {
 public:
  TextInterrupt() {
    forget();
    sigaction(SIGINT, nullptr, &earlier_);
    struct sigaction action = {};
    action.sa_handler = handle;  // without SA_RESTART: who waits for a line gets none
    if (earlier_.sa_handler != SIG_IGN) sigaction(SIGINT, &action, nullptr);
  }

  ~TextInterrupt() { sigaction(SIGINT, &earlier_, nullptr); }

  TextInterrupt& operator=(TextInterrupt&&) = delete;  // nor copied

  bool came() { return std::exchange(seen_, presses_ > 0) != (presses_ > 0); }  // true once

  void forget() {
    presses_ = 0;
    seen_ = false;
  }

 private:
  static void handle(int number) {
    if (presses_ > 0 && !echo_.lasts()) _exit(128 + number);
    if (presses_ == 0) echo_.begin();
    presses_ = 1;
  }

  static inline volatile sig_atomic_t presses_ = 0;
  static inline Echo echo_;
  struct sigaction earlier_ = {};
  bool seen_ = false;
};

// Appends the line that a person types; false when there is none.
bool ask(std::vector<int32_t>& text, TextForm form, Progress& notes) {
  for (std::string line;;) {
    if (isatty(STDIN_FILENO)) std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, line)) return false;
    try {
      const std::vector<int32_t> tokens = text_to_tokens(line, form);
      text.insert(text.end(), tokens.begin(), tokens.end());
      return true;
    } catch (const Error& e) {
      notes.line(e.what());
    }
  }
}

std::string json_of(const SampleStats& s, const SampleOptions& options) {
  return json_object({{"tokens", s.tokens},
                      {"seconds", s.seconds},
                      {"tok_s", static_cast<double>(s.tokens) / s.seconds},
                      {"first_ms", 1e3 * s.first_seconds},
                      {"position_ms", s.position_ms()},
                      {"positions", s.positions},
                      {"batch", options.batch},
                      {"kernels", s.launches},
                      {"cache_bytes", s.cache_bytes}});
}

// What a person should know before the text comes.
std::string about_text(const LoadedModel& loaded, const SampleOptions& options) {
  const int64_t context = loaded.config.model.context;
  std::string text = loaded.weights_text();
  if (options.temperature == 0) text += "; temperature 0 is greedy: the same text for every seed";
  if (options.next || options.given() + options.length > context)
    text += str("\nthe context holds ", context, " tokens: when it is full, the last ", context / 2,
                " are read again as the beginning of a text, and all before them is forgotten");
  if (options.given() >= context)
    text +=
        str("\nthe prompt has ", options.given(), " tokens, the context ", context, ": the first ",
            options.given() - context / 2, " are not read, which leaves room for new ones");
  return text;
}

// The prompt as a text shows it, told from what the model adds: dim on a terminal, else in
// brackets. Of a long one the end.
std::string echo_of(const std::vector<int32_t>& prompt, TextForm form, bool terminal) {
  constexpr std::ptrdiff_t kShown = 1000;  // tokens
  if (prompt.empty()) return "";
  const std::ptrdiff_t left_out = std::max<std::ptrdiff_t>(std::ssize(prompt) - kShown, 0);
  std::string text = left_out > 0 ? "... " : "";
  for (auto token = prompt.begin() + left_out; token < prompt.end(); ++token)
    text += token_to_text(*token, form);
  return terminal ? "\033[2m" + take_characters(text, true) + "\033[0m" : "[" + text + "]";
}

void sample_text(SampleArguments& a, LoadedModel& loaded, std::ostream& text, Progress& notes) {
  const ModelConfig& model = loaded.config.model;
  const bool alone = a.options.group->size() == 1;
  if (a.options.length == 0) fail("--length is required: how many tokens to add to the prompt");
  if (a.interactive && !alone)
    fail("--interactive: one process alone can answer; leave out --gpus");
  const TextForm form(model.vocab, a.tokens);
  a.options.prompt =
      text_to_tokens(a.prompt_file.empty() ? a.prompt : read_text(a.prompt_file, 64 << 20), form);
  std::ostringstream kept;
  const bool shown = a.out.empty(), terminal = shown && isatty(STDOUT_FILENO);
  // a file has the samples alone; what a person types later stands there already
  const std::string begin = shown ? echo_of(a.options.prompt, form, terminal) : "";
  SampleWriter writer(shown ? text : kept, form, a.options.count, a.stop, terminal, begin);
  std::optional<TextInterrupt> interrupt;
  if (alone) interrupt.emplace();
  if (alone)
    a.options.ended = [&](int64_t first, int64_t count) {
      if (interrupt->came()) writer.end(first, count);
      return writer.ended(first, count);
    };
  if (a.interactive)
    a.options.next = [&](std::vector<int32_t>& more) {
      writer.end(0, 1);
      text << '\n' << std::flush;
      interrupt->forget();
      writer.go_on();
      return ask(more, form, notes);
    };
  check_sample_options(a.options, model);
  choose_batch(a, loaded);
  notes.line(about_text(loaded, a.options));
  if (a.interactive && a.options.prompt.empty() && !ask(a.options.prompt, form, notes)) return;
  writer.begin();
  const int64_t length = a.options.given() + a.options.length;
  const SampleStats stats = sample(
      *loaded.device, *loaded.model, model, a.options,
      [&](int64_t sample, int64_t position, int32_t token) {
        writer.add(sample, token, position + 1 == length && !a.interactive);
      },
      shown ? OnPositions{} : bar(notes));
  notes.clear();
  if (!shown && a.options.group->rank() == 0)
    write_whole_file(a.out, [&](std::ostream& out) { out << kept.str(); });
  if (shown && !a.interactive) text << '\n' << std::flush;
  note_speed(a, a.options, stats, model, notes);
}

// Before the model is loaded.
void check_files(const SampleArguments& a) {
  std::vector<OutputOption> outputs{{"--out", a.out}};
  std::vector<std::string> inputs{a.checkpoint, a.prompt_file};
  for (const auto& extension : a.extensions) {
    for (const OutputOption& output : extension->outputs(a)) outputs.push_back(output);
    for (const std::string& input : extension->inputs()) inputs.push_back(input);
  }
  check_overwrites(outputs, inputs);
  check_run_is_kept(outputs, std::filesystem::path(a.checkpoint).parent_path().string());
}

}  // namespace

void note_speed(const SampleArguments& a, const SampleOptions& options, const SampleStats& stats,
                const ModelConfig& model, Progress& notes) {
  if (a.stats) notes.line(stats_text(stats, options.given(), options.length, model.context));
  if (a.json) notes.line(json_of(stats, options));
}

void check_count(int64_t count, int64_t of_each) {
  constexpr int64_t kMost = 1 << 20;
  if (count >= 1 && count <= kMost / std::max<int64_t>(of_each, 1)) return;
  fail("--count: expected 1 to ", kMost, " samples in all, got ", count,
       of_each > 1 ? str(" for each of ", of_each) : "");
}

OnPositions bar(Progress& progress) {
  return [&progress, clock = Stopwatch(true)](int64_t done, int64_t all) {
    progress.passing(bar_text(done, all, clock.seconds()));
  };
}

void choose_batch(SampleArguments& a, LoadedModel& loaded) {
  a.options.batch =
      a.batch > 0 ? a.batch
                  : batch_that_fits(*loaded.device, *loaded.model, loaded.config.model, a.options);
}

void refuse_text_options(const SampleArguments& a, const char* kind) {
  const std::string of_text = a.tokens         ? "--tokens"
                              : a.interactive  ? "--interactive"
                              : a.stop.empty() ? ""
                                               : "--stop";
  if (!of_text.empty())
    fail(of_text, " is for text, and this call samples ", kind, ": leave it out");
}

std::string ending_of(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension().string();
  std::ranges::transform(ending, ending.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending;
}

bool is_sound_ending(const std::string& ending) {
  static const std::vector<std::string> sound{".wav",  ".flac", ".mp3", ".ogg",
                                              ".aiff", ".aif",  ".caf"};
  return std::ranges::count(sound, ending) > 0;
}

void check_ending(const std::string& out, const std::string& own, const char* kind) {
  static const std::vector<std::string> text{".txt", ".md", ".json", ".yaml", ".html"};
  static const std::vector<std::string> others{".png",  ".jpg",         ".jpeg", ".gif", ".bmp",
                                               ".webp", ".tif",         ".tiff", ".h5",  ".npy",
                                               ".npz",  ".safetensors", ".pdf"};
  const std::string ending = ending_of(out);
  const bool lies = is_sound_ending(ending) || std::ranges::count(others, ending) > 0 ||
                    (own != ".txt" && std::ranges::count(text, ending) > 0);
  if (ending == own || !lies) return;
  const std::string better = std::filesystem::path(out).replace_extension(own).string();
  fail("--out ", out, ": ", kind, " would not be what ", ending, " says; write --out ", better);
}

void run_sample(SampleArguments a, Processes& group, std::ostream& text, Progress& notes) {
  check_count(a.options.count);
  check_files(a);
  const auto loaded = load_model(
      a.checkpoint, [&] { return make_device(group.device(a.device)); }, weights_from(a.weights));
  a.options.group = &group;
  for (const auto& extension : a.extensions)
    if (extension->asked(a, loaded->config)) return extension->sample(a, *loaded, notes);
  const std::string absent = absent_part_text(ending_of(a.out));
  if (!absent.empty()) fail("--out ", a.out, ": ", absent);
  check_ending(a.out, ".txt", "text");
  sample_text(a, *loaded, text, notes);
}
}  // namespace weft
