// SPDX-License-Identifier: MIT
// inspect: parameters, memory and FLOPs of a config; pictures of its attention patterns.
#include "src/files/files.h"
#include "train/inspect/report.h"
#include "train/program/options.h"
#include "train/program/program.h"

#include <iostream>

using namespace weft;

static void add_inspect_options(CLI::App& app, InspectOptions& options) {
  add_config(app, options.config, options.overrides);
  app.add_option("--checkpoint", options.checkpoint,
                 "RUN, with --pattern and --text, in place of --config: what a head saw of a text");
  app.add_option("--text", options.text, "FILE: with --checkpoint, the text");
  app.add_option(
      "--attention", options.attention,
      "a pattern as in a config, to look at without one: \"{kind: local, stride: 128}\"");
  app.add_option("--heads", options.heads, "with --attention: number of heads (default: 1)");
  app.add_option("--head-size", options.head_size,
                 "with --attention: numbers in a head (default: 64)");
  app.add_option("--length,--n", options.length,
                 "length of the sequences looked at (default: the context)");
  app.add_option("--keys", options.keys, "number of keys, where it is not the length");
  app.add_option("--pattern", options.pattern,
                 "LAYER,HEAD: draws the pattern of one head; with --attention 0,HEAD");
  app.add_option("--tiles", options.tiles,
                 "LAYER,HEAD: order of the slots, tiles executed and skipped, counts");
  app.add_option("--explain", options.explain,
                 "LAYER,HEAD: how kernels find the keys of one query, step by step");
  app.add_option("--query", options.query, "with --explain: the position of the query");
  app.add_option("--edge", options.edge,
                 "with --tiles, --explain: slots of a tile, 64 or 16 (default: its own)");
  app.add_option("--arch", options.arch,
                 "sm_80, sm_90a, ...: the kernels of attention there; no GPU needed");
  app.add_option("--batch", options.batch,
                 "with --arch: sequences at once (default: of the config, or 1)");
  app.add_option("--position", options.position, "the position whose receptive field is drawn");
  app.add_option("--columns", options.columns,
                 "positions in a row of the receptive field (default: the stride)");
  app.add_option("--grid", options.grid, "H,W or H,W,C: draws the receptive field on an image, too")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_output(app, "--png", options.png,
             "FILE: an image of receptive field and connectivity, or of --tiles", Devices::written);
  add_output(app, "--mask-out", options.mask_out, "FILE.npy: the boolean matrix, row = query",
             Devices::written);
  add_device(app, options.device, "auto, cpu, cuda or cuda:N: whose kernels are named");
  app.footer(
      "Examples:\n"
      "  inspect --config enwik8.yaml\n"
      "  inspect --config enwik8.yaml --pattern 0,3 --png pattern.png\n"
      "  inspect --attention \"{kind: strided, stride: 32}\" --length 1024 --grid 32,32 --png "
      "strided.png\n"
      "  inspect --attention \"{kind: local, stride: 8, causal: false}\" --length 48 --keys 96\n"
      "  inspect --attention \"{kind: fixed, stride: 16, c: 4}\" --tiles 0,0 --n 64 --edge 16\n"
      "  inspect --attention \"{kind: strided, stride: 8}\" --explain 0,0 --n 64 --query 41\n"
      "  inspect --config enwik8.yaml --arch sm_90a\n"
      "  inspect --attention \"{kind: local, stride: 256}\" --n 8192 --head-size 64 --arch sm_80");
}

int main(int argc, char** argv) {
  InspectOptions options;
  const auto add_options = [&](CLI::App& app) { add_inspect_options(app, options); };
  const auto work = [&] { inspect(options, std::cout); };
  return run_program(
      {"inspect", "What a config means: parameters, memory, FLOPs, attention patterns", add_options,
       work},
      argc, argv);
}
