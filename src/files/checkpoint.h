// SPDX-License-Identifier: MIT
// Checkpoints: one HDF5 file that any reader can open.
//   /params/<name>  f32 master weights        /optimizer/m/<name>, /optimizer/v/<name>  f32
//   /ema/<name>     f32, when one is kept     attributes: format, config (the YAML), the fields of TrainState
// Written to a temporary file, synced, renamed: an earlier checkpoint is never lost.
#pragma once

#include "src/files/weights.h"

namespace weft {
inline constexpr int64_t kCheckpointFormat = 1;

// Everything but the tensors that decides how training goes on.
struct TrainState {
  int64_t step = 0;     // updates tried: decides data, dropout, learning rate
  int64_t updates = 0;  // updates applied (f16 skips some): Adam's t
  double loss_scale = 1;
  int64_t good_steps = 0;      // since the loss scale last changed
  double best_valid_bits = 0;  // 0: none yet
  uint64_t seed = 0;
};

void save_checkpoint(const std::string& path, Device&, const ParameterStore&, const TrainState&,
                     const std::string& config_yaml);
// Called instead by the other ranks of a store with shards, while one of them saves: it needs their parts.
void join_save_checkpoint(const ParameterStore&);

// Reads weights, and for training optimizer state and EMA, into `store`. Checks every name, shape and value
// before the first weight changes: an Error names what is missing, extra, different or not finite.
// `use_ema`: EMA as the weights.
TrainState load_checkpoint(const std::string& path, Device&, ParameterStore& store, bool use_ema = false);

// The config text of a checkpoint, and whether it holds a moving average; neither reads weights.
std::string checkpoint_config(const std::string& path);
bool checkpoint_has_ema(const std::string& path);
// The weights alone; the moving average where there is one, unless the `last` are wanted.
WeightsFile checkpoint_weights(const std::string& path, bool last);
}  // namespace weft
