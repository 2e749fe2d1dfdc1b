// SPDX-License-Identifier: MIT
// The part replay: `train --verify-every`.
#include "train/program/options.h"
#include "train/replay/replay.h"

#include <memory>
#include <optional>

namespace weft {
void register_replay() {
  add_train_options([](CLI::App& app) -> HooksAsked {
    const auto every = std::make_shared<int64_t>(0);
    app.add_option("--verify-every", *every,
                   "run every N-th update twice and compare the bits of gradients and weights: a "
                   "device that computes wrongly ends the run; takes memory for another copy of "
                   "weights and optimizer")
        ->check(at_least(1));
    return [every] { return *every > 0 ? std::optional(replay_every(*every)) : std::nullopt; };
  });
}
}  // namespace weft
