// SPDX-License-Identifier: MIT
// sample: text from a checkpoint, token by token; images and sound as files. See train/README.md.
#include "src/files/files.h"
#include "train/program/options.h"
#include "train/program/program.h"
#include "train/sampling/sample_run.h"

#include <string>

using namespace weft;

static CLI::Validator probability() {
  return {[](const std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            if (!is_number || (value > 0 && value <= 1)) return std::string();
            return "expected a number above 0 and at most 1, got " + text;
          },
          ""};
}

// How each token is chosen.
static void add_choice_options(CLI::App& app, SampleArguments& a) {
  add_shown(app, "--temperature", a.options.temperature,
            "0 is greedy: always the most likely token")
      ->check(at_least(0));
  add_shown(app, "--top-k", a.options.top_k, "only the k most likely tokens; 0: all")
      ->check(at_least(0));
  add_shown(app, "--top-p", a.options.top_p,
            "only the most likely tokens that reach this probability")
      ->check(probability());
  add_shown(app, "--seed", a.options.seed, "same seed, same samples")
      ->check(whole_number<uint64_t>());
}

static void add_sample_options(CLI::App& app, SampleArguments& a) {
  add_checkpoint(app, a.checkpoint);
  auto* prompt = app.add_option("--prompt", a.prompt, "text to go on from");
  app.add_option("--prompt-file", a.prompt_file, "file with the text to go on from")
      ->excludes(prompt);
  app.add_option("--length", a.options.length,
                 "tokens to add: texts need it (beyond the context, a window moves), images are "
                 "drawn whole")
      ->check(at_least(1));
  add_choice_options(app, a);
  add_shown(app, "--count", a.options.count, "number of samples; with --complete of each image");
  app.add_option(
         "--batch", a.batch,
         "samples at a time: does not change them (as many texts as have room, images of about "
         "800,000 tokens)")
      ->check(at_least(1));
  add_weights(app, a.weights);
  add_output(app, "--out", a.out,
             "text: this file instead of stdout; images: F.png, all in a grid; sound: F.wav",
             Devices::written);
  app.add_flag(
      "--tokens", a.tokens,
      "text: prompt and samples are token numbers, as they always are with a vocabulary over 256");
  app.add_option("--stop", a.stop, "text: a sample ends before this text");
  app.add_flag("--interactive", a.interactive,
               "text: after each sample, which has --length tokens at most, goes on with a line "
               "from stdin")
      ->excludes("--out", "--count");
  app.add_flag("--stats", a.stats,
               "tokens a second, time to the first, keys read and cache size, to stderr");
  app.add_flag("--json", a.json, "the speed as one JSON object, to stderr");
  add_device(app, a.device);
  add_no_verify(app);
  launcher().add_options(app);
  a.extensions = sample_extensions();
  for (const auto& extension : a.extensions) extension->add_options(app);
  app.footer(
      "Writes the prompt (dim on a terminal, else in [brackets]; not with --out) and what follows "
      "it, as it comes; several samples one after the other, a line between "
      "them.\nCtrl-C ends a text, twice the program.\nA model whose position_axes are rows, "
      "columns and "
      "channels draws images.\n"
      "Examples:\n"
      "  sample runs/tiny --length 200\n"
      "  sample runs/tiny --prompt \"It was\" --length 200 --temperature 0.8 "
      "--top-p "
      "0.95 --count 3\n"
      "  sample runs/cifar10 --count 64 --out grid.png --singles images\n"
      "  sample runs/cifar10 --complete cifar10.h5 --images 8 --rows 16 "
      "--count 3 --out "
      "completed.png\n"
      "  sample runs/audio --out sound.wav");
}

int main(int argc, char** argv) {
  SampleArguments arguments;
  const auto add_options = [&](CLI::App& app) { add_sample_options(app, arguments); };
  const auto work = [&] { work_on_checkpoint(arguments, run_sample); };
  return run_program({"sample", "Samples from a checkpoint.", add_options, work, true}, argc, argv);
}
