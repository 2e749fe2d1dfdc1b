// SPDX-License-Identifier: MIT
// Command lines of the programs.
#include "train/program/options.h"

#include <CLI/CLI.hpp>

#include "train/ranks/ranks.h"

namespace weft {
namespace {

void add_device(CLI::App& app, std::string& device, const char* text = "auto, cpu, cuda or cuda:N") {
  app.add_option("--device", device, text)->capture_default_str();
}

// --config, which comes back, and --set.
CLI::Option* add_config(CLI::App& app, std::string& config, std::vector<std::string>& overrides) {
  CLI::Option* file =
      app.add_option("--config", config, "config file; a name that is no path is looked for in configs/");
  app.add_option("--set", overrides, "a.b=c: sets one key of the config; may be repeated")
      ->allow_extra_args(false);
  return file;
}

void add_gpus(CLI::App& app, int& gpus) {
  app.add_option("--gpus", gpus,
                 "start so many processes on this host, one a GPU (with --device cpu without any); torchrun "
                 "--no-python, mpirun and srun start them otherwise")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
}

void add_weights(CLI::App& app, std::string& weights) {
  auto* which =
      app.add_option("--weights", weights, "ema (the moving average; default where it was kept) or last")
          ->check(CLI::IsMember({"ema", "last"}));
  app.add_flag_callback(
         "--ema", [&weights] { weights = "ema"; }, "--weights ema")
      ->excludes(which);
}

void add_image_options(CLI::App& app, SampleArguments& a) {
  app.add_option("--singles", a.singles, "images: a folder for each as a PNG of its own, 00000.png ...");
  app.add_option("--augmentation", a.augmentation, "images: the model is told so, rotation=1,color=2");
  app.add_flag("--upright", a.upright, "images: shown as they were before the augmentation");
  auto* complete = app.add_option("--complete", a.complete,
                                  "images: PNG files, or a data file, whose upper rows are given; the grid "
                                  "has image, what was given, completions");
  app.add_option("--rows", a.rows, "of each that are given (half)")
      ->needs(complete)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--split", a.split, "of the data file")->needs(complete)->capture_default_str();
  app.add_option("--first", a.first, "number of its first image")->needs(complete)->capture_default_str();
  app.add_option("--images", a.images, "images of the data file")->needs(complete)->capture_default_str();
  app.add_option("--rate", a.rate, "sound: samples a second")->capture_default_str();
}

}  // namespace

void add_train_options(CLI::App& app, TrainArguments& a) {
  add_config(app, a.config, a.overrides)->required();
  app.add_option_function<std::vector<std::string>>(
         "--resume",
         [&a](const std::vector<std::string>& path) { a.options.resume = path.empty() ? "" : path[0]; },
         "go on from latest.h5 of the run folder, or from this checkpoint")
      ->type_name("[PATH]")
      ->expected(0, 1);
  app.add_option("--out", a.options.out, "run folder; runs/<config name> when not given");
  add_device(app, a.options.device);
  add_gpus(app, a.gpus);
  app.add_flag("--rank-log", a.options.rank_log, "at each log line, a line of every process, too");
  app.add_option(
      "--batch", a.options.batch,
      "sequences at a time, the rest of an update by accumulation: a number, or auto: the most that "
      "the device has memory for");
  app.add_option("--max-steps", a.options.max_steps, "stop and save when this step is done")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--max-minutes", a.options.max_minutes, "stop and save after this long")
      ->check(CLI::NonNegativeNumber);
  app.footer(
      "SIGINT and SIGTERM finish the step at hand, save latest.h5 and leave with exit code 0; a second one "
      "ends at once.\n"
      "Examples:\n"
      "  train --config tiny.yaml\n"
      "  train --config enwik8_12l.yaml --set train.batch=8 --set train.accumulation=2 --out runs/large\n"
      "  train --config enwik8.yaml --set train.batch_tokens=393216 --batch auto\n"
      "  train --config tiny.yaml --resume\n"
      "  train --config enwik8.yaml --gpus 8\n"
      "  torchrun --no-python --nproc-per-node 8 train --config enwik8.yaml\n"
      "  mpirun -n 8 train --config enwik8.yaml\n"
      "  train --config tiny.yaml --resume runs/tiny/step_00001000.h5 --set train.steps=4000");
}

void add_evaluate_options(CLI::App& app, EvaluateArguments& a) {
  app.add_option("--checkpoint", a.checkpoint, "checkpoint made by train")->required();
  app.add_option("--data", a.data, "HDF5 file made by prepare; the one of training when not given");
  app.add_option("--split", a.split, "train, valid or test")->capture_default_str();
  app.add_option(
         "--min-context", a.min_context,
         "tokens that every scored token has before it in its window (those of the first window excepted)")
      ->capture_default_str();
  app.add_option("--batch", a.batch, "windows at a time")->check(CLI::PositiveNumber);
  add_weights(app, a.weights);
  app.add_option("--augmentations", a.augmentations,
                 "images: a combination of transforms, rotation=1,color=2, or all: a result for each");
  app.add_option("--heatmap", a.heatmap, "PNG to write: mean bits by position; its scale goes to stderr");
  app.add_option("--losses", a.losses, "HDF5 file to write: nats and tokens, by image, row, column, channel");
  add_device(app, a.device);
  add_gpus(app, a.gpus);
  app.footer(
      "Prints one JSON object: bits (per token: per byte for byte data, per dimension for images), tokens, "
      "min_context, split, ema, step, checkpoint, data.\n"
      "Examples:\n"
      "  evaluate --checkpoint runs/tiny/best.h5\n"
      "  evaluate --checkpoint runs/enwik8/best.h5 --split test --min-context 12160\n"
      "  evaluate --checkpoint runs/cifar10/best.h5 --heatmap bits.png\n"
      "  evaluate --checkpoint runs/c10_15m_rot/best.h5 --split valid --augmentations all");
}

void add_sample_options(CLI::App& app, SampleArguments& a) {
  app.add_option("--checkpoint", a.checkpoint, "checkpoint made by train")->required();
  auto* prompt = app.add_option("--prompt", a.prompt, "text to go on from");
  app.add_option("--prompt-file", a.prompt_file, "file with the text to go on from")->excludes(prompt);
  app.add_option(
         "--length", a.options.length,
         "tokens to add: texts need it (prompt and length fit into the context), images are drawn whole")
      ->check(CLI::PositiveNumber);
  app.add_option("--temperature", a.options.temperature, "0: always the most likely token")
      ->capture_default_str();
  app.add_option("--top-k", a.options.top_k, "only the k most likely tokens; 0: all")->capture_default_str();
  app.add_option("--top-p", a.options.top_p, "only the most likely tokens that reach this probability")
      ->capture_default_str();
  app.add_option("--seed", a.options.seed, "same seed, same samples")->capture_default_str();
  app.add_option("--count", a.options.count, "number of samples; with --complete of each image")
      ->capture_default_str();
  app.add_option("--batch", a.batch,
                 "samples at a time: does not change them (8 texts, images of about 800,000 tokens)")
      ->check(CLI::PositiveNumber);
  add_weights(app, a.weights);
  app.add_option("--out", a.out,
                 "text: this file instead of stdout; images: F.png, all in a grid; sound: F.wav");
  app.add_flag("--stats", a.stats, "tokens a second, keys read and cache size, to stderr");
  add_device(app, a.device);
  add_gpus(app, a.gpus);
  add_image_options(app, a);
  app.footer(
      "Writes what follows the prompt, as it comes; several samples one after the other, a line between "
      "them.\nA model whose position_axes are rows, columns and channels draws images.\n"
      "Examples:\n"
      "  sample --checkpoint runs/tiny/best.h5 --length 500\n"
      "  sample --checkpoint runs/tiny/best.h5 --prompt \"It was\" --length 200 --temperature 0.8 --top-p "
      "0.95 --count 3\n"
      "  sample --checkpoint runs/cifar10/best.h5 --count 64 --out grid.png --singles images\n"
      "  sample --checkpoint runs/cifar10/best.h5 --complete cifar10.h5 --images 8 --rows 16 --count 3 --out "
      "completed.png\n"
      "  sample --checkpoint runs/audio/best.h5 --out sound.wav");
}

void add_selftest_options(CLI::App& app, SelftestOptions& options) {
  add_device(app, options.device);
  app.add_option("--minutes", options.minutes, "how long")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--cases", options.cases, "stop after this many; 0: only the time counts")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "number of the first case; the next ones count on")
      ->capture_default_str();
  app.add_option("--case", options.only, "run this case alone: a failure prints its number");
  app.add_option(
         "--form", options.form,
         "simple, general or hopper: these CUDA kernels alone, in the cases that they cover; automatic: all")
      ->capture_default_str();
  app.footer(
      "Each case is a random pattern with random lengths, heads, element type and kernels; it compares "
      "tables,\n"
      "kernels (forward, backward, decoding) and pictures with the definition. Exit code 1 when one fails.\n"
      "Examples:\n"
      "  selftest\n"
      "  selftest --device cpu --minutes 0.5\n"
      "  selftest --device cuda --case 1234");
}

void add_inspect_options(CLI::App& app, InspectOptions& options) {
  add_config(app, options.config, options.overrides);
  app.add_option("--attention", options.attention,
                 "a pattern as in a config, to look at without one: \"{kind: local, stride: 128}\"");
  app.add_option("--heads", options.heads, "with --attention: number of heads")->capture_default_str();
  app.add_option("--head-size", options.head_size, "with --attention: numbers in a head")
      ->capture_default_str();
  app.add_option("--length", options.length, "length of the sequences looked at (default: the context)");
  app.add_option("--keys", options.keys, "number of keys, where it is not the length");
  app.add_option("--pattern", options.pattern,
                 "LAYER,HEAD: draws the pattern of one head; with --attention 0,HEAD");
  app.add_option("--position", options.position, "the position whose receptive field is drawn");
  app.add_option("--columns", options.columns,
                 "positions in a row of the receptive field (default: the stride)");
  app.add_option("--grid", options.grid, "H,W or H,W,C: draws the receptive field on an image, too")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--png", options.png, "FILE: receptive field and connectivity matrix as an image");
  app.add_option("--mask-out", options.mask_out, "FILE.npy: the boolean matrix, row = query");
  add_device(app, options.device, "auto, cpu, cuda or cuda:N: whose kernels are named");
  app.footer(
      "Examples:\n"
      "  inspect --config enwik8.yaml\n"
      "  inspect --config enwik8.yaml --pattern 0,3 --png pattern.png\n"
      "  inspect --attention \"{kind: strided, stride: 32}\" --length 1024 --grid 32,32 --png strided.png\n"
      "  inspect --attention \"{kind: local, stride: 8, causal: false}\" --length 48 --keys 96");
}

void add_attention_options(CLI::App& app, AttentionFileOptions& a) {
  app.add_option("--in", a.in, "HDF5 file with q, k, v; for gradients dout; query_segments, key_segments")
      ->required();
  app.add_option("--pattern", a.pattern, "as in a config: \"{kind: fixed, stride: 128, c: 32}\"")->required();
  app.add_option("--out", a.out, "HDF5 file to write: o, lse, and with dout dq, dk, dv")->required();
  add_device(app, a.device);
  app.add_option("--form", a.form, "CUDA kernels: automatic, simple, general or hopper")
      ->capture_default_str();
  app.add_option("--dtype", a.dtype, "f32, f16, bf16; f64 on a CPU")->capture_default_str();
  app.add_option("--scale", a.scale, "of the scores (default: 1 / sqrt(Dqk))");
  app.footer(
      "Shapes: q (B, T, H, Dqk), k (B, Tk, H, Dqk), v (B, Tk, H, Dv), dout and o (B, T, H, Dv), lse (B, H, "
      "T),\n"
      "query_segments (B, T) and key_segments (B, Tk): whole numbers; only equal ones that are not negative\n"
      "attend to each other. A query that sees nothing gives o 0, lse -inf and gradients 0.\n"
      "Examples:\n"
      "  attention --in qkv.h5 --pattern \"{kind: strided, stride: 128}\" --out o.h5\n"
      "  attention --in qkv.h5 --pattern \"{kind: local, stride: 64, causal: false}\" --out o.h5 --dtype "
      "bf16");
}

void add_bench_commands(CLI::App& app, BenchArguments& arguments) {
  app.require_subcommand(1);
  BenchKernelsOptions& k = arguments.kernels;
  CLI::App* kernels = app.add_subcommand("kernels", "every kernel at the sizes of a training step");
  kernels->add_option("--filter", k.filter, "only rows whose kernel (sizes) contains this");
  add_device(*kernels, k.device);
  kernels->add_option("--dtype", k.dtype, "f32, f16 or bf16 (default bf16)");
  kernels->add_flag("--json", k.json, "one JSON object a row");
  kernels->add_flag("--verify,!--no-verify", k.verify, "compare with the CPU form first (default)");
  kernels->callback([&arguments] { arguments.command = "kernels"; });
  BenchAttentionOptions& a = arguments.attention;
  CLI::App* attention = app.add_subcommand(
      "attention",
      "attention alone, forward and backward, pattern by pattern; every run starts with cold "
      "caches");
  attention
      ->add_option("--shapes", a.shapes, "paper (all of the table), or names from it, separated by commas")
      ->capture_default_str();
  attention->add_option("--shape", a.custom, "B,H,n,Dqk,Dv,stride,c: another shape instead");
  attention->add_option("--patterns", a.modes,
                        "all,local,strided,fixed,merged_strided (default: those of the shape)");
  attention->add_option("--form", a.form, "automatic, simple, general or hopper: which CUDA kernels")
      ->capture_default_str();
  add_device(*attention, a.device);
  attention->add_option("--dtype", a.dtype, "f32, f16 or bf16, or several: bf16,f16 (default bf16)");
  attention
      ->add_option(
          "--pause-ms", a.pause_ms,
          "milliseconds of rest before each timed run: the clock of a GPU at its power limit recovers")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  attention->add_flag("--f16-against-bf16", a.f16_against_bf16,
                      "both types in turn: time, clock and cycles of sustained runs, time of rested ones");
  attention->add_flag("--json", a.json, "one JSON object a row");
  attention->add_flag("--verify,!--no-verify", a.verify, "compare sampled rows with f64 first (default)");
  attention->callback([&arguments] { arguments.command = "attention"; });
  BenchDecodeOptions& d = arguments.decode;
  CLI::App* decode = app.add_subcommand("decode", "sampling from a config's model with random weights");
  add_config(*decode, d.config, d.overrides)->required();
  add_device(*decode, d.device);
  decode->add_option("--batch", d.batch, "texts at a time")->capture_default_str();
  decode->add_option("--positions", d.positions, "tokens of a text (default: the context)");
  decode->add_flag("--json", d.json, "one JSON object");
  decode->callback([&arguments] { arguments.command = "decode"; });
  BenchStepOptions& s = arguments.step;
  CLI::App* step = app.add_subcommand("step", "whole updates of a config, on random tokens");
  add_config(*step, s.config, s.overrides)->required();
  add_device(*step, s.device);
  add_gpus(*step, arguments.gpus);
  step->add_option("--steps", s.steps, "steps that are timed (default 20)");
  step->add_flag("--json", s.json, "one JSON object");
  step->add_flag("--breakdown,!--no-breakdown", s.breakdown,
                 "time, rates and the least time possible, kernel by kernel (default)");
  step->callback([&arguments] { arguments.command = "step"; });
}

void run_bench(const BenchArguments& arguments, std::ostream& out, std::ostream& notes) {
  if (arguments.command == "step") {
    const auto config = [&] { return to_yaml(load_config(arguments.step.config, arguments.step.overrides)); };
    return with_ranks({arguments.gpus, arguments.step.device}, config, [&](ProcessGroup& group) {
      bench_step(arguments.step, group, rank_output(group, out));
    });
  }
  if (arguments.command == "decode") return bench_decode(arguments.decode, out);
  if (arguments.command == "attention") return bench_attention(arguments.attention, out);
  bench_kernels(arguments.kernels, out, notes);
}

}  // namespace weft
