// SPDX-License-Identifier: MIT
// convert: the weights of a checkpoint to safetensors, and back. See train/README.md.
#include "src/config/config.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/convert/safetensors.h"
#include "src/files/files.h"
#include "src/files/overwrites.h"
#include "train/convert/target.h"
#include "train/program/loaded_model.h"
#include "train/program/options.h"
#include "train/program/program.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace weft;

struct ConvertArguments {
  std::string from, to, dtype = "f32", weights, format;
};

static bool is_safetensors(const std::string& path) { return path.ends_with(".safetensors"); }

static void add_convert_options(CLI::App& app, ConvertArguments& a) {
  app.add_option("FROM,--checkpoint", a.from,
                 "a checkpoint or run folder, or weights in NAME.safetensors")
      ->required();
  app.add_option("TO", a.to,
                 "NAME.safetensors, or a checkpoint for evaluate, sample and train --init; a "
                 "folder with --to")
      ->required();
  std::vector<std::string> formats;
  for (const ConvertTarget& target : convert_targets()) formats.push_back(target.name);
  if (!formats.empty())
    app.add_option("--to", a.format,
                   joined(convert_targets(), "; ",
                          [](const ConvertTarget& t) { return t.name + ": " + t.about; }))
        ->check(CLI::IsMember(formats));
  add_shown(app, "--dtype", a.dtype, "of the numbers in a safetensors file; bf16 rounds")
      ->check(CLI::IsMember({"f32", "bf16"}));
  add_weights(app, a.weights);
  app.footer(
      "Names are those of the model, \"blocks.3.attention.qkv.weight\"; metadata: weft.config "
      "(YAML), "
      "weft.step, "
      "weft.weights. Optimizer state does not travel.\n"
      "Examples:\n"
      "  convert runs/tiny tiny.safetensors\n"
      "  convert tiny.safetensors tiny.h5\n"
      "  convert runs/tiny tiny_hf --to hf");
}

// The arrays must be exactly those of the model of its config.
static void save_as_checkpoint(const std::string& path, const WeightsFile& weights) {
  const Config config = parse_config(weights.config, weights.path);
  const std::unique_ptr<Device> device = make_device("cpu");
  ParameterStore store;
  const std::unique_ptr<Model> model = make_model(config, store, *device);
  store.allocate(*device, DType::f32, config.seed, false, false);
  const TakenWeights result = take_weights(weights, *device, store);
  for (const auto& [names, what] : {std::pair{result.drawn, "is missing"},
                                    {result.extended, "has too few rows"},
                                    {result.unused, "is no parameter of the model of its config"}})
    if (!names.empty()) fail(weights.path, ": ", names[0], " ", what);
  save_checkpoint(path, *device, store,
                  {.step = weights.step, .updates = weights.step, .seed = config.seed},
                  weights.config);
}

static void run_convert(ConvertArguments a) {
  a.from = choose_checkpoint(a.from).path;
  const ConvertTarget* target = nullptr;
  for (const ConvertTarget& one : convert_targets())
    if (one.name == a.format) target = &one;
  if (!target) check_output(a.to);
  check_overwrites({{"TO", a.to}}, {a.from});
  check_run_is_kept({{"TO", a.to}}, std::filesystem::path(a.to).parent_path().string());
  if (!target && is_safetensors(a.from) == is_safetensors(a.to))
    fail("expected a checkpoint and a name that ends in .safetensors, found ", a.from, " and ",
         a.to);
  if (is_safetensors(a.from) && (!a.weights.empty() || (!target && a.dtype != "f32")))
    fail(
        "--weights and --dtype choose what goes into a safetensors file; a checkpoint gets what "
        "one holds, "
        "in f32");
  const WeightsFile weights = open_weights(a.from, weights_from(a.weights) == Weights::last);
  if (weights_from(a.weights) == Weights::ema && !weights.ema)
    fail(a.from, ": holds no moving average of the weights");
  const DType dtype = a.dtype == "bf16" ? DType::bf16 : DType::f32;
  if (target)
    target->save(a.to, weights, dtype);
  else if (is_safetensors(a.from))
    save_as_checkpoint(a.to, weights);
  else
    save_safetensors(a.to, weights, dtype);
  std::cout << a.to << ": " << weights.shapes.size() << " arrays of " << weights.text() << "\n";
}

int main(int argc, char** argv) {
  ConvertArguments arguments;
  const auto add_options = [&](CLI::App& app) { add_convert_options(app, arguments); };
  const auto work = [&] { run_convert(arguments); };
  return run_program(
      {"convert", "Takes weights to safetensors, and back.", add_options, work, true}, argc, argv);
}
