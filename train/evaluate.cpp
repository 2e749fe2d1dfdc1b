// SPDX-License-Identifier: MIT
// evaluate: bits per token of a checkpoint on a split, as one JSON line. See train/README.md.
#include "src/files/files.h"
#include "train/evaluation/evaluate_run.h"
#include "train/program/loaded_model.h"
#include "train/program/options.h"
#include "train/program/program.h"

using namespace weft;

static void add_evaluate_options(CLI::App& app, EvaluateArguments& a) {
  add_checkpoint(app, a.checkpoint);
  app.add_option("--data", a.data, "HDF5 file made by prepare; the one of training when not given");
  add_shown(app, "--split", a.split, "train, valid or test");
  add_shown(app, "--min-context", a.min_context,
            "tokens that every scored token has before it in its window (those of the first window "
            "excepted)");
  app.add_option("--batch", a.batch, "windows at a time")->check(at_least(1));
  app.add_flag("--decode", a.decode,
               "a position at a time, as texts are sampled: the same bits up to rounding, slower");
  add_weights(app, a.weights);
  a.extensions = evaluate_extensions();
  for (const auto& extension : a.extensions) extension->add_options(app);
  add_output(app, "--losses", a.losses,
             "HDF5 file to write: nats and tokens, by image, row, column, channel");
  add_device(app, a.device);
  add_no_verify(app);
  launcher().add_options(app);
  app.footer(
      "Prints one JSON object: bits (per token: per byte for byte data, per dimension for images), "
      "tokens, "
      "bits_per_byte (of tokens prepared with --bytes), min_context, split, ema, step, checkpoint, "
      "data.\n"
      "Examples:\n"
      "  evaluate runs/tiny\n"
      "  evaluate runs/enwik8 --split test --min-context 12160\n"
      "  evaluate runs/cifar10 --heatmap bits.png\n"
      "  evaluate runs/c10_15m_rot --split valid --augmentations all");
}

int main(int argc, char** argv) {
  EvaluateArguments arguments;
  const auto add_options = [&](CLI::App& app) { add_evaluate_options(app, arguments); };
  const auto work = [&] { work_on_checkpoint(arguments, run_evaluate); };
  const char* purpose = "Evaluates a checkpoint: every token of a split is scored once.";
  return run_program({"evaluate", purpose, add_options, work, true}, argc, argv);
}
