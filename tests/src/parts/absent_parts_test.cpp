// SPDX-License-Identifier: MIT
// What a person asks of a part that is not built is one line that names the switch.
#include "src/parts/parts.h"
#include "tests/train/shell_test.h"

#include <string>
#include <utility>

namespace weft {
namespace {
using AbsentParts = ShellTest;

TEST_F(AbsentParts, AreNamedWithTheirSwitch) {
  const std::string train = "train --config small.yaml --device cpu ";
  for (const auto& [asked, line] : {
           std::pair<std::string, std::string>{"--gpus", train + "--gpus 2"},
           {"--gpus", "evaluate --checkpoint x --gpus 2"},
           {"--rank-log", train + "--rank-log"},
           {"WORLD_SIZE", "RANK=1 WORLD_SIZE=2 " + train},
           {"WORLD_SIZE", "WORLD_SIZE=2 evaluate --checkpoint x"},
           {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE=2 sample --checkpoint x"},
           {"train.reduce_dtype", train + "--set train.reduce_dtype=bf16"},
           {"train.bucket_mb", train + "--set train.bucket_mb=7"},
           {"train.shard_optimizer", train + "--set train.shard_optimizer=true"},
           {"--verify-every", train + "--verify-every 2"},
           {"routing", train + "--set 'model.attention={kind: routing}'"},
           {".safetensors", train + "--init x.safetensors"},
           {"muon", train + "--set train.optimizer=muon"},
           {"longformer",
            train + "--set 'model.attention={kind: heads, of: [{kind: longformer}]}'"},
       }) {
    const std::string absent = absent_part_text(asked);
    if (absent.empty()) continue;
    EXPECT_CONTAINS(refused(line), absent);
  }
}

// Defaults, written out, are no wish for a part.
TEST_F(AbsentParts, DefaultsOfTheirKeysAreAccepted) {
  EXPECT_EQ(shell("WORLD_SIZE=1 RANK=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 train --config small.yaml "
                  "--device cpu --out run --max-steps 1 --set train.reduce_dtype=f32 "
                  "--set train.bucket_mb=25 --set train.shard_optimizer=false"),
            0)
      << err_;
}
}  // namespace
}  // namespace weft
