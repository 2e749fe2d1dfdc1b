// SPDX-License-Identifier: MIT
// The work of `sample`.
#include <fstream>
#include <iterator>
#include <ostream>
#include <sstream>

#include "src/files.h"
#include "train/loaded_model.h"
#include "train/options.h"

namespace weft {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(str("cannot read the prompt file ", path));
  return {std::istreambuf_iterator<char>(in), {}};
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
    if (++turn_ < static_cast<std::int64_t>(texts_.size())) {
      out_ << "\n==== sample " << turn_ + 1 << " ====\n";
      flush();
    }
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

}  // namespace

void run_sample(SampleArguments a, std::ostream& text, std::ostream& notes) {
  const std::string prompt = a.prompt_file.empty() ? a.prompt : read_text(a.prompt_file);
  const auto loaded = load_model(a.checkpoint, a.device, weights_from(a.weights));
  const ModelConfig& model = loaded->config.model;
  a.options.prompt = text_to_tokens(prompt, model.vocab);
  check_sample_options(a.options, model);
  std::ostringstream kept;
  SampleWriter writer(a.out.empty() ? text : kept, model.vocab, a.options.count);
  const auto length = static_cast<std::int64_t>(a.options.prompt.size()) + a.options.length;
  const SampleStats stats = sample(*loaded->device, *loaded->model, model, a.options,
                                   [&](std::int64_t sample, std::int64_t position, std::int32_t token) {
                                     writer.add(sample, token);
                                     if (position + 1 == length) writer.next();
                                   });
  if (!a.out.empty()) write_whole_file(a.out, [&](std::ostream& out) { out << kept.str(); });
  if (a.out.empty()) text << '\n' << std::flush;
  if (a.stats) notes << stats_text(stats, length - a.options.length, length) << std::endl;
}

}  // namespace weft
