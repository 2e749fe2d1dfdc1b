// SPDX-License-Identifier: MIT
// Every key of a config, set to another value, reaches what it is for: it reads back from YAML,
// --set and a checkpoint, --resume compares it, and a run of a tiny model shows it. A new key needs
// a row in kRows.
#include "tests/train/keys_testing.h"

#include <algorithm>
#include <string>
#include <vector>

namespace weft {
namespace {
const Rows kRows{
    {"name", {"other", folder}},
    {"seed", {"4"}},
    {"precision", {"bf16", dtype}},
    {"data.path", {"FOLDER/other.h5"}},
    {"data.separator", {"7"}},
    {"model.kind", {"", weights, {}, "there is one kind; Model.UnknownKindListsWhatExists"}},
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
    {"model.previous_token", {"true"}},
    {"model.canon", {"true"}},
    {"model.unet", {"true"}},
    {"model.norm_eps", {"0.3"}},
    {"model.activation", {"relu2"}},
    {"model.positions", {"rotary"}},
    {"model.rotary_base", {"50", weights, {"model.positions=rotary"}}},
    {"model.qk_norm", {"rms"}},
    {"model.qk_learnt", {"true", weights, {"model.qk_norm=rms"}}},
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
    {"train.optimizer", {"", weights, {}, "parts bring others than AdamW, and their rows"}},
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
    {"train.graph", {"false", weights, {}, "a GPU's; CudaTrainer.ACapturedStepIsTheEagerStep"}},
    {"train.log_every", {"1", metrics}},
    {"train.eval_every", {"1", metrics}},
    {"train.save_every", {"1", files}},
    {"train.eval_tokens", {"64", metrics}},
    {"train.keep", {"1", files, {"train.save_every=1"}}},
};

TEST_F(EveryKey, HasARowHereThatIsAnotherValue) {
  for (const auto& [key, value] : values_of(Config{}))
    EXPECT_TRUE(kRows.contains(key) || !part_of_key(key).empty())
        << "add a row for " << key << " to kRows in " << __FILE__
        << ": another value, and what of a run differs with it";
  expect_other_values(kRows);
}

TEST_F(EveryKey, ShowsInARun) { expect_shown_in_a_run(kRows); }

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
