// SPDX-License-Identifier: MIT
// Checkpoints: one HDF5 file that any reader can open.
//   /params/<name>        f32, master weights
//   /optimizer/m/<name>   f32, and /optimizer/v/<name>
//   /ema/<name>           f32, where a moving average is kept
//   attributes            format, config (the YAML), the fields of TrainState
// It is written to a temporary file, synced and renamed, so an earlier checkpoint is never lost.
#pragma once

#include "src/parameters.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace weft {
struct Config;

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

// Of a file named step_NNNNNNNN.h5, as `train` keeps them; -1: of another name.
int64_t step_of_name(const std::string& file);

void save_checkpoint(const std::string& path, Device&, const ParameterStore&, const TrainState&,
                     const std::string& config_yaml);
// Called instead by the other processes that share a store, while the first one saves: it needs
// their parts.
void join_save_checkpoint(const ParameterStore&);

// Reads weights (`use_ema`: the EMA as such), and for training optimizer state and EMA, into
// `store`. Checks all before a weight changes: an Error names what is missing, extra, different or
// not finite.
TrainState load_checkpoint(const std::string& path, Device&, ParameterStore& store,
                           bool use_ema = false);

// The config text of a checkpoint, and whether it holds a moving average; neither reads weights.
std::string checkpoint_config(const std::string& path);
bool checkpoint_has_ema(const std::string& path);

// ---- weights that travel: those of a checkpoint without the rest of its run, or of a file that a
// part reads

struct WeightsFile {
  std::string path;
  std::string config;                     // the YAML of the model that they are of
  int64_t step = 0;                       // updates tried before
  bool ema = false;                       // they are the moving average
  std::map<std::string, Shape> shapes{};  // by name: the model's path
  std::function<std::vector<float>(const std::string& name)> read{};

  // of one array; Error where one is not finite
  std::vector<float> values(const std::string& name) const;
  std::string text() const;  // "runs/a/best.h5, the moving average of step 1600"
};

// The weights alone; the moving average where there is one, unless the `last` are wanted.
WeightsFile checkpoint_weights(const std::string& path, bool last);
// Reads a file of weights, all of which it checks against the file before any is used.
using ReadWeights = WeightsFile (*)(const std::string& path);
// For files whose names end so, ".safetensors"; a part adds its own (src/parts/parts.h).
void add_weights_format(const std::string& extension, ReadWeights);
// A file of an added format, by its name, or else a checkpoint. Of a checkpoint the moving average
// where there is one; with `last` the last weights. Throws Error for a file that is not all that it
// should be.
WeightsFile open_weights(const std::string& path, bool last = false);

// What became of the parameters of a store.
struct TakenWeights {
  std::vector<std::string> taken, drawn;  // from the file; missing there and left as they were
  std::vector<std::string> extended;      // the first rows taken, the others left as they were
  std::vector<std::string> unused;        // in the file, and no parameter
};

// Copies into an allocated store, and its moving average, what has its name and shape. Of
// position.0 a file may hold fewer rows: a longer context. Error for other shapes and position
// axes. Collective with sharing.
TakenWeights take_weights(const WeightsFile&, Device&, ParameterStore&);

// train --init: fine-tuning from the weights of another run.
// Takes what the file (see open_weights) has into an allocated store. Lines for people: what was
// taken, extended, drawn anew or left, and which keys of the model differ. Throws Error when
// nothing fits, and when heads differ in number: then weights of equal shape mean something else.
std::vector<std::string> take_initial_weights(const std::string& path, const Config&, Device&,
                                              ParameterStore&);
}  // namespace weft
