// SPDX-License-Identifier: MIT
// Every key of a config, set to another value, reaches what it is for: it reads back from YAML,
// --set and a checkpoint, --resume compares it, and a run of a tiny model shows it. A new key needs
// a row in kRows.
#include "data/batch_source.h"
#include "src/config/differences.h"
#include "src/config/fields.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "src/files/checkpoint.h"
#include "tests/models/model_testing.h"
#include "tests/train/image_training.h"
#include "train/trainer/run_folder.h"
#include "train/trainer/step.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {
namespace {
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
  bool image = false;
  std::string unseen = "";  // why no run of this test can show it, and which test does
};

const std::vector<std::string> kMuon{"train.optimizer=muon"};
const std::vector<std::string> kRotated{"augment.rotation=true", "train.batch=16"};
const std::vector<std::string> kOrders{"augment.random_order=2", "train.batch=16"};
const std::vector<std::string> kRand{"augment.randaugment=2", "augment.randaugment_magnitude=9"};

const std::map<std::string, Row> kRows{
    {"name", {"other", folder}},
    {"seed", {"4"}},
    {"precision", {"bf16", dtype}},
    {"data.path", {"FOLDER/other.h5"}},
    {"data.mix", {"FOLDER/mixed.h5", weights, {"data.mix_rate=0.75"}, true}},
    {"data.mix_rate", {"0.05", weights, {"data.mix=FOLDER/mixed.h5", "data.mix_rate=0.9"}, true}},
    {"data.mix_items", {"1", weights, {"data.mix=FOLDER/mixed.h5", "data.mix_rate=0.9"}, true}},
    {"data.separator", {"7"}},
    {"data.labels", {"true", weights, {}, true}},
    {"data.classes", {"6", weights, {"data.labels=true"}, true}},
    {"augment.rotation", {"true", weights, {}, true}},
    {"augment.color", {"true", weights, {}, true}},
    {"augment.transposition", {"true", weights, {}, true}},
    {"augment.reversal", {"true", weights, {}, true}},
    {"augment.jigsaw", {"2", weights, {}, true}},
    {"augment.random_order", {"3", weights, {}, true}},
    {"augment.random_order_seeds", {"[42, 7]", weights, kOrders, true}},
    {"augment.randaugment", {"2", weights, {}, true}},
    {"augment.randaugment_magnitude", {"1", weights, kRand, true}},
    {"augment.randaugment_rate", {"0", weights, kRand, true}},
    {"augment.flip", {"true", weights, {}, true}},
    {"augment.conditional", {"false", weights, kRotated, true}},
    {"augment.permute_positions", {"false", weights, kOrders, true}},
    {"augment.unaugmented_rate", {"0.9", weights, kRotated, true}},
    {"model.kind", {"", weights, {}, false, "there is one kind; Model.UnknownKindListsWhatExists"}},
    {"model.vocab", {"40"}},
    {"model.context", {"32"}},
    {"model.layers", {"3"}},
    {"model.width", {"64"}},
    {"model.heads", {"4"}},
    {"model.qk_ratio", {"0.5"}},
    {"model.mlp_ratio", {"2"}},
    {"model.dropout", {"0.3"}},
    {"model.embedding_dropout", {"0.3"}},
    {"model.tied_output", {"true"}},
    {"model.final_norm", {"false"}},
    {"model.norm_eps", {"0.3"}},
    {"model.activation", {"relu2"}},
    {"model.positions", {"rotary"}},
    {"model.rotary_base", {"50", weights, {"model.positions=rotary"}}},
    {"model.qk_norm", {"rms"}},
    {"model.position_axes", {"[4, 16]"}},
    {"model.attention", {"[{kind: local, stride: 3}, {kind: strided, stride: 8}]"}},
    {"model.init.token_std", {"0.3"}},
    {"model.init.position_std", {"0.3"}},
    {"model.init.weight_gain", {"0.5"}},
    {"model.init.weight_rule", {"std"}},
    {"train.steps", {"4"}},
    {"train.batch", {"2"}},
    {"train.batch_tokens", {"128"}},
    {"train.accumulation", {"4"}},
    {"train.optimizer", {"muon"}},
    {"train.muon_learning_rate", {"0.05", weights, kMuon}},
    {"train.muon_momentum", {"0.5", weights, kMuon}},
    {"train.muon_weight_decay", {"10", weights, kMuon}},
    {"train.learning_rate", {"1e-3"}},
    {"train.final_learning_rate", {"0.5"}},
    {"train.warmup", {"3"}},
    {"train.schedule", {"constant"}},
    {"train.beta1", {"0.5"}},
    {"train.beta2", {"0.5"}},
    {"train.eps", {"0.1"}},
    {"train.weight_decay", {"10"}},
    {"train.clip", {"0.01"}},
    {"train.ema_decay", {"0.05", average}},
    {"train.recompute", {"block", memory}},
    {"train.context_schedule", {"[[0, 32], [2, 64]]"}},
    {"train.loss_scale", {"1024", loss_scale, {"precision=f16"}}},
    {"train.loss_scale_window", {"1", loss_scale, {"precision=f16", "train.loss_scale=16"}}},
    {"train.graph",
     {"false", weights, {}, false, "a GPU's; CudaTrainer.ACapturedStepIsTheEagerStep"}},
    {"train.reduce_dtype",
     {"bf16", weights, {}, false, "DataParallel.SumsInBf16AreCloseAndTheSameOnEveryRank"}},
    {"train.bucket_mb",
     {"0", weights, {}, false, "sizes of sums of several processes; GradientBuckets"}},
    {"train.shard_optimizer",
     {"true", weights, {}, false, "ShardedOptimizer.LossesAreThoseOfOneProcess"}},
    {"train.log_every", {"1", metrics}},
    {"train.eval_every", {"1", metrics}},
    {"train.save_every", {"1", files}},
    {"train.eval_tokens", {"64", metrics}},
    {"train.keep", {"1", files, {"train.save_every=1"}}},
};

std::map<std::string, std::string> values_of(Config config) {
  std::map<std::string, std::string> values;
  for_each_field(config, [&](const Field& f) { values[f.key] = value_text(f); });
  return values;
}

std::map<std::string, OnResume> rules() {
  Config config;
  std::map<std::string, OnResume> rule;
  for_each_field(config, [&](const Field& f) { rule[f.key] = f.on_resume; });
  return rule;
}

class EveryKey : public testing::Test {
 protected:
  EveryKey() {
    write_corpus(dir_ / "corpus.h5", 4000, 32);
    write_corpus(dir_ / "other.h5", 3000, 31);
    write_tiny_images(dir_ / "images.h5");
    write_tiny_images(dir_ / "mixed.h5", 9);
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
    return row.image ? tiny_image_config(dir_.path(), overrides)
                     : small_config(dir_.path(), overrides);
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
    std::string needs = str(row.image, row.shown == metrics || row.shown == files);
    for (const std::string& need : row.needs) needs += need;
    const auto [it, is_new] = bases_.try_emplace(needs);
    name = str("base", std::hash<std::string>{}(needs));
    if (is_new) it->second = run(config(row), name, row.shown);
    return it->second;
  }

  const TempDir dir_;
  std::map<std::string, Results> bases_;
};

TEST_F(EveryKey, HasARowHereThatIsAnotherValue) {
  for (const auto& [key, value] : values_of(Config{}))
    EXPECT_TRUE(kRows.contains(key)) << "add a row for " << key << " to kRows in " << __FILE__
                                     << ": another value, and what of a run differs with it";
  for (const auto& [key, row] : kRows) {
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

TEST_F(EveryKey, ShowsInARun) {
  const std::map<std::string, OnResume> rule = rules();
  for (const auto& entry : kRows) {
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

TEST_F(EveryKey, OfAModelReachesDecoding) {
  for (const auto& [key, row] : kRows) {
    if (!key.starts_with("model.") || !row.unseen.empty()) continue;
    SCOPED_TRACE(key);
    Config c = config(row, key + "=" + row.value);
    c.model.context = std::min<int64_t>(c.model.context, 24);
    SmallModel small(c);
    check_decoding(small, 1, c.model.context);
  }
}
}  // namespace
}  // namespace weft
