// SPDX-License-Identifier: MIT
// The part hugging_face: `convert --to hf` writes a folder that the Python package transformers
// loads: weights, config.json, and the model in PyTorch (src/python/weft_attention).
#include "models/model.h"
#include "src/config/conditions.h"
#include "src/config/config.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "src/convert/safetensors.h"
#include "src/files/files.h"
#include "train/convert/hugging_face/python_files.h"
#include "train/convert/target.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <unistd.h>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace weft {
namespace {
using json = nlohmann::ordered_json;

json json_of(const YAML::Node& node) {
  json value;
  if (node.IsScalar()) {
    const bool plain = node.Tag() != "!" && json::accept(node.Scalar());
    return plain ? json::parse(node.Scalar()) : json(node.Scalar());
  }
  for (const auto& entry : node)
    if (node.IsMap())
      value[entry.first.Scalar()] = json_of(entry.second);
    else
      value.push_back(json_of(entry));
  return value;
}

void require_static(const std::string& path, const PatternSpec& spec) {
  const auto kind = std::ranges::find(patterns(), spec.kind, &PatternKind::kind);
  if (kind == patterns().end() || kind->dynamic || !spec.file.empty())
    fail(path, ": model.attention has the kind ", spec.kind, ", ",
         spec.file.empty() ? "whose keys depend on the text" : "which reads a file",
         ": the PyTorch model knows patterns of positions alone; convert to NAME.safetensors "
         "instead");
  for (const PatternSpec& one : spec.of) require_static(path, one);
}

// Throws Error for what sparse_transformer.py does not have.
void require_expressible(const std::string& path, const Config& config) {
  if (config.data.separator >= 0)
    fail(path, ": data.separator = ", config.data.separator,
         " keeps documents apart, which the PyTorch model does not; convert to NAME.safetensors "
         "instead");
  if (const auto told = conditions(config); !told.empty())
    fail(path, ": the model is told of each sequence: ", joined(told, ", ", &Condition::name),
         "; the PyTorch model starts every sequence alike; convert to NAME.safetensors instead");
  for (const PatternSpec& spec : config.model.attention) require_static(path, spec);
}

std::string config_json(const Config& config, DType dtype) {
  const json text = {
      {"architectures", {"WeftForCausalLM"}},
      {"auto_map",
       {{"AutoConfig", "modeling_weft.WeftConfig"},
        {"AutoModelForCausalLM", "modeling_weft.WeftForCausalLM"}}},
      {"model_type", "weft"},
      {"dtype", dtype == DType::bf16 ? "bfloat16" : "float32"},
      {"weft", json_of(YAML::Load(to_yaml(config))["model"])},
  };
  return text.dump(2) + "\n";
}

void write_text(const std::string& path, const std::string& text) {
  NewFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void save_for_transformers(const std::string& folder, const WeightsFile& weights, DType dtype) {
  namespace fs = std::filesystem;
  const Config config = parse_config(weights.config, weights.path);
  require_expressible(weights.path, config);
  if (fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder)))
    fail(folder, ": expected a new or an empty folder for the files of --to hf");
  const fs::path target = fs::absolute(folder) / "";
  const std::string name = target.parent_path().string(), fresh = str(name, ".", getpid(), ".new");
  try {
    make_folder(fresh);
    save_safetensors(fresh + "/model.safetensors", weights, dtype);
    write_text(fresh + "/config.json", config_json(config, dtype));
    for (const PythonFile& file : python_files) write_text(fresh + "/" + file.name, file.text);
    fs::rename(fresh, name);
  } catch (const std::exception& e) {
    std::error_code ignored;
    fs::remove_all(fresh, ignored);
    fail(folder, ": could not be written: ", e.what());
  }
}
}  // namespace

void register_hugging_face() {
  add_convert_target({
      .name = "hf",
      .about = "a folder for AutoModelForCausalLM.from_pretrained(..., trust_remote_code=True)",
      .save = save_for_transformers,
  });
}
}  // namespace weft
