// SPDX-License-Identifier: MIT
// The part bench_ranks: what `bench step` measures of several ranks, where bench and ranks are both
// built.
#include "src/config/config.h"
#include "train/bench/bench.h"
#include "train/bench_ranks/exchange.h"
#include "train/ranks/data_parallel.h"

#include <memory>

namespace weft {
namespace {
struct HasLockstep {
  std::unique_ptr<Communicator> lockstep;
};

class LockstepSum : private HasLockstep, public GradientSum {
 public:
  LockstepSum(ParameterStore& store, Communicator& communicator, const TrainConfig& train)
      : HasLockstep{make_lockstep(store.device(), communicator)},
        GradientSum(store, *lockstep, train) {}
};

BenchExchange::Result measure(Device& device, DataParallel& parallel, Model& model,
                              ParameterStore& store, const Config& config, const TokenDataset& data,
                              int64_t steps) {
  auto& ranks = dynamic_cast<RankParallel&>(parallel);
  const Exchange exchange = measure_exchange(device, ranks.group(), ranks.communicator(), model,
                                             store, config, data, steps);
  return {exchange_text(exchange, config.ranks), exchange_json(exchange)};
}

std::unique_ptr<SharedStep> lockstep(DataParallel& parallel, ParameterStore& store,
                                     const TrainConfig& train) {
  auto& ranks = dynamic_cast<RankParallel&>(parallel);
  return std::make_unique<LockstepSum>(store, ranks.communicator(), train);
}
}  // namespace

void register_bench_ranks() { set_bench_exchange({measure, lockstep}); }
}  // namespace weft
