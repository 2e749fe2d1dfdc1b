// SPDX-License-Identifier: MIT
// What every key of a config is held to: tests of the core and of parts list the keys, each with a
// Row.
#pragma once

#include "data/batch_source.h"
#include "src/config/differences.h"
#include "src/config/fields.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "src/files/checkpoint.h"
#include "src/parts/parts.h"
#include "tests/models/model_testing.h"
#include "tests/train/training.h"
#include "train/trainer/run_folder.h"
#include "train/trainer/step.h"

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
// What a run shows. `weights` and `average`: the bits in latest.h5.
enum Shown : uint8_t {
  weights,
  average,
  loss_scale,
  metrics,
  files,
  memory,
  folder,
  dtype,
  kShown
};

using Results = std::array<std::string, kShown>;

struct Row {
  std::string value;
  Shown shown = weights;                // differs when the key does
  std::vector<std::string> needs = {};  // overrides with which the key matters
  std::string unseen = "";              // why no run of this test can show it, and which test does
};

using Rows = std::map<std::string, Row>;

inline std::map<std::string, std::string> values_of(Config config) {
  std::map<std::string, std::string> values;
  for_each_field(config, [&](const Field& f) { values[f.key] = value_text(f); });
  return values;
}

inline std::map<std::string, OnResume> rules() {
  Config config;
  std::map<std::string, OnResume> rule;
  for_each_field(config, [&](const Field& f) { rule[f.key] = f.on_resume; });
  return rule;
}

// The part that brings this key, built or not; "": the core.
inline std::string part_of_key(const std::string& key) {
  for (const Part& part : parts()) {
    std::istringstream holds{std::string(part.holds)};
    for (std::string word; holds >> word;)
      if (word == key || word == key.substr(0, key.find('.'))) return std::string(part.name);
  }
  return "";
}

class EveryKey : public testing::Test {
 protected:
  EveryKey() {
    write_corpus(dir_ / "corpus.h5", 4000, 32);
    write_corpus(dir_ / "other.h5", 3000, 31);
  }

  virtual Config config_with(const std::vector<std::string>& overrides) const {
    return small_config(dir_.path(), overrides);
  }

  Config config(const Row& row, const std::string& set = "") const {
    std::vector<std::string> overrides{"train.steps=3",      "train.warmup=1",
                                       "train.log_every=9",  "train.eval_every=0",
                                       "train.save_every=0", "train.eval_tokens=0"};
    overrides.insert(overrides.end(), row.needs.begin(), row.needs.end());
    if (!set.empty()) overrides.push_back(set);
    for (std::string& text : overrides)
      if (const std::size_t at = text.find("FOLDER"); at != std::string::npos)
        text.replace(at, 6, dir_.path());
    return config_with(overrides);
  }

  // A run that leaves <dir>/<name>/latest.h5: of the trainer where its files count, else of its
  // steps alone.
  Results run(const Config& config, const std::string& name, Shown what) const {
    Results shown;
    shown[memory] =
        str(plan_memory(config, config.train.batch, config.model.context, true).activations);
    shown[folder] = RunFolder(config, "", std::nullopt).path("");
    shown[dtype] = name_of(config.precision);
    if (what == metrics || what == files) {
      train(config, {.out = dir_ / name, .device = "cpu"});
      shown[metrics] = timeless_metrics(dir_ / name + "/metrics.jsonl");
      for (const auto& entry : std::filesystem::directory_iterator(dir_ / name))
        shown[files] += entry.path().filename().string() + " ";
    } else {
      std::filesystem::create_directories(dir_ / name);
      train_steps(config, name, shown);
    }
    return shown;
  }

  void train_steps(const Config& config, const std::string& name, Results& shown) const {
    const auto device = make_device("cpu");
    ParameterStore store;
    const auto model = make_model(config, store, *device);
    const bool is_f16 = config.precision == DType::f16;
    store.allocate(*device, is_f16 ? DType::f16 : DType::f32, config.seed, true,
                   config.train.ema_decay > 0);
    const TokenDataset data(config.data.path, "train", config.model.vocab);
    std::optional<TokenDataset> mixed;
    if (!config.data.mix.empty()) mixed.emplace(config.data.mix, "train", config.model.vocab);
    const BatchSource source(config, data, mixed ? &*mixed : nullptr);
    TrainStep step(*device, *model, store, config);
    if (is_f16) step.set_loss_scale({.scale = config.train.loss_scale});
    for (int64_t i = 0; i < config.train.steps; ++i) step.run(source, i), step.results();
    for (const Shown of : {weights, average})
      if (const Tensor values = of == weights ? store.master() : store.ema(); values)
        for (const double x : to_host(*device, values))
          shown[of].append(reinterpret_cast<const char*>(&x), sizeof x);
    if (is_f16) shown[loss_scale] = str(step.loss_scale().scale);
    save_checkpoint(
        dir_ / name + "/latest.h5", *device, store,
        {.step = config.train.steps, .updates = config.train.steps, .seed = config.seed},
        to_yaml(config));
  }

  // The run without the key set, made once for all keys with these needs.
  const Results& base(const Row& row, std::string& name) {
    std::string needs = str(row.shown == metrics || row.shown == files);
    for (const std::string& need : row.needs) needs += need;
    const auto [it, is_new] = bases_.try_emplace(needs);
    name = str("base", std::hash<std::string>{}(needs));
    if (is_new) it->second = run(config(row), name, row.shown);
    return it->second;
  }

  // Each key takes another value, which reads back.
  void expect_other_values(const Rows& rows) {
    for (const auto& [key, row] : rows) {
      SCOPED_TRACE(key);
      const std::map<std::string, std::string> before = values_of(config(row));
      ASSERT_TRUE(before.contains(key)) << "no such key";
      if (row.value.empty()) continue;
      const Config set = config(row, key + "=" + row.value);
      const std::string read_as = key == "train.batch_tokens" ? "train.batch" : key;
      EXPECT_NE(values_of(set).at(read_as), before.at(read_as));
      for (const bool documented : {false, true})
        EXPECT_EQ(values_of(parse_config(to_yaml(set, documented), "a.yaml")), values_of(set));
      const std::vector<KeyDifference> differences = config_differences(config(row), set);
      ASSERT_EQ(differences.size(), 1u);
      EXPECT_EQ(differences[0].key, read_as);
    }
  }

  // Each key changes what a run shows, and is compared when it is resumed.
  void expect_shown_in_a_run(const Rows& rows) {
    const std::map<std::string, OnResume> rule = rules();
    for (const auto& entry : rows) {
      const std::string& key = entry.first;
      const Row& row = entry.second;
      if (!row.unseen.empty()) continue;
      SCOPED_TRACE(key);
      std::string base_name;
      const Results& before = base(row, base_name);
      const Config set = config(row, key + "=" + row.value);
      const std::string error = error_of([&] {
        const Results after = run(set, key, row.shown);
        EXPECT_TRUE(after[row.shown] != before[row.shown]) << "the key changes nothing";
        if (rule.at(key) == OnResume::free)
          expect_same_tensors(dir_ / key + "/latest.h5", dir_ / base_name + "/latest.h5");
      });
      ASSERT_EQ(error, "");
      const std::string kept = checkpoint_config(dir_ / key + "/latest.h5");
      EXPECT_EQ(values_of(parse_config(kept, "a.yaml")), values_of(set));
      const auto resume = [&](const std::string& allowed) {
        return error_of([&] { RunFolder(set, dir_ / base_name, "", allowed); });
      };
      const bool same = rule.at(key) == OnResume::same, asked = rule.at(key) == OnResume::asked;
      const std::string read_as = key == "train.batch_tokens" ? "train.batch" : key;
      EXPECT_EQ(resume("").find(read_as + ": ") != std::string::npos, same || asked) << resume("");
      EXPECT_EQ(resume("*").empty(), !same) << resume("*");
    }
  }

  const TempDir dir_;
  std::map<std::string, Results> bases_;
};
}  // namespace weft
