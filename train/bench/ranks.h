// SPDX-License-Identifier: MIT
// What `bench step` measures of several ranks: how the time of an update is made up of each rank's own work,
// of waiting for each other, and of all-reduces of gradients.
#pragma once

#include <memory>
#include <string>

#include "data/batch_source.h"
#include "data/dataset.h"
#include "models/model.h"
#include "src/config/config.h"
#include "src/ranks/communicator.h"

namespace weft {

// A kind of update that is timed in turn with others, one of several in a row; medians over the rows.
struct KindTimes {
  double ms = 0;  // mean over the ranks, as the following, but for the last
  // Cycles of a multiprocessor over time, mean over the multiprocessors; 0 on the CPU.
  double clock_mhz = 0;
  // In which the queue is stalled for collectives: at joins, and where they do not overlap with it; and that
  // of the rank that waits least, for which the others wait.
  double join_wait_ms = 0, least_join_wait_ms = 0;
};

// together.ms = alone.ms + wait_ms + exposed_ms, up to medians.
struct Exchange {
  std::int64_t collectives = 0, bytes = 0;  // of an update, of each rank
  // As trained; in lockstep without all-reduces; and each rank by itself, all at once, with its share of the
  // update.
  KindTimes together, without, alone;
  double exposed_ms = 0;  // communication: median of together - without
  double wait_ms = 0;     // for the slowest rank of each step: median of without - alone
  // Cycles that communication takes, as time at the clock of `without`: median. The rest of exposed_ms is
  // that the clock is another one. 0 on the CPU.
  double exposed_cycles_ms = 0;
  double scaling() const { return alone.ms / together.ms; }
};

// Rows of `steps` updates of the three kinds, in turn. Collective.
Exchange measure_exchange(Device&, ProcessGroup&, Communicator&, Model&, ParameterStore&, const Config&,
                          const TokenDataset&, std::int64_t steps);

// A communicator that sums eight numbers in place of gradients: with it the ranks of a step wait for each
// other as they do anyway, and communication takes next to no time. Other ranks' weights stay as they were.
// Device and communicator outlive it.
std::unique_ptr<Communicator> make_lockstep(Device&, Communicator&);

// The same collectives; *nanoseconds, in the queue's memory, counts (count_time) how long the queue is
// stalled for them. On the CPU collectives do not overlap with the queue: all of them count. All outlive it.
std::unique_ptr<Communicator> make_timed(Device&, Communicator&, std::int64_t* nanoseconds);

std::string exchange_json(const Exchange&);  // fields of an object, each with a comma before it
std::string exchange_text(const Exchange&, std::int64_t ranks);

}  // namespace weft
