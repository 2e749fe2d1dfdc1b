// SPDX-License-Identifier: MIT
// bench: times kernels (checked first) and whole training steps. Rows of text, or JSON objects with
// --json.
#include "train/bench/bench.h"

#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "train/program/launcher.h"
#include "train/program/options.h"
#include "train/program/program.h"

#include <functional>
#include <iostream>

using namespace weft;

struct BenchArguments {
  BenchAttentionOptions attention;
  BenchDecodeOptions decode;
  BenchStepOptions step;
};

static void run_step(const BenchStepOptions& step) {
  const auto config = [&] { return to_yaml(load_config(step.config, step.overrides)); };
  launcher().run(step.device, config, [&](Processes& group) {
    bench_step(step, group, first_output(group, std::cout));
  });
}

static void add_bench_commands(Commands commands, BenchArguments& arguments) {
  for (const auto add : linked_commands()) add(commands);
  BenchAttentionOptions& a = arguments.attention;
  CLI::App* attention = commands.add("attention",
                                     "attention alone, forward and backward, pattern by pattern; "
                                     "every run starts with cold caches",
                                     [&] { bench_attention(a, std::cout); });
  add_shown(*attention, "--shapes", a.shapes,
            "paper (all of the table), or names from it, separated by commas");
  attention->add_option("--shape", a.custom, "B,H,n,Dqk,Dv,stride,c: another shape instead");
  attention->add_option("--patterns", a.modes,
                        "all,local,strided,fixed,merged_strided (default: those of the shape)");
  add_shown(*attention, "--form", a.form,
            "automatic, simple, general or hopper: which CUDA kernels");
  add_device(*attention, a.device);
  attention->add_option("--dtype", a.dtype,
                        "f32, f16 or bf16, or several: bf16,f16 (default bf16)");
  add_shown(
      *attention, "--pause-ms", a.pause_ms,
      "milliseconds of rest before each timed run: the clock of a GPU at its power limit recovers")
      ->check(CLI::Range(0, 10000));
  attention->add_flag("--json", a.json, "one JSON object a row");
  attention->add_flag("--verify,!--no-verify", a.verify,
                      "compare sampled rows with f64 first (default)");
  BenchDecodeOptions& d = arguments.decode;
  CLI::App* decode = commands.add("decode", "sampling from a config's model with random weights",
                                  [&] { bench_decode(d, std::cout); });
  add_config(*decode, d.config, d.overrides)->required();
  add_device(*decode, d.device);
  add_shown(*decode, "--batch", d.batch, "texts at a time");
  decode->add_option("--positions", d.positions,
                     "tokens of a text, prompt included (default: the context)");
  add_shown(*decode, "--prompt", d.prompt, "tokens of a prompt, read in one pass")
      ->check(at_least(0));
  decode->add_flag("--json", d.json, "one JSON object");
  BenchStepOptions& s = arguments.step;
  CLI::App* step =
      commands.add("step", "whole updates of a config, on random tokens", [&] { run_step(s); });
  add_config(*step, s.config, s.overrides)->required();
  add_device(*step, s.device);
  launcher().add_options(*step);
  step->add_option("--steps", s.steps, "steps that are timed (default 20)");
  step->add_flag("--json", s.json, "one JSON object");
  step->add_flag("--breakdown,!--no-breakdown", s.breakdown,
                 "time, rates and the least time possible, kernel by kernel (default)");
}

int main(int argc, char** argv) {
  BenchArguments arguments;
  std::function<void()> command;
  const auto add_options = [&](CLI::App& app) { add_bench_commands({app, command}, arguments); };
  return run_program(
      {"bench", "Times what training is made of", add_options, [&] { command(); }, true}, argc,
      argv);
}
