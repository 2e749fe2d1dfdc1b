// SPDX-License-Identifier: MIT
// What `bench step` measures of several ranks: each rank's own work, waiting for each other,
// all-reduces.
#pragma once

#include "data/dataset.h"
#include "models/model.h"
#include "src/ranks/process_group.h"
#include "train/ranks/data_parallel.h"

#include <memory>
#include <string>

namespace weft {
// One kind of update: medians over rows of several, each the mean over the ranks; or one such row.
struct KindTimes {
  double ms = 0;
  double clock_mhz = 0;  // mean over the multiprocessors; 0 on the CPU
  // the queue is stalled for collectives: at joins, and where none overlaps
  double join_wait_ms = 0;
  double least_join_wait_ms = 0;  // of the rank that waits least, for which the others wait
};

// together.ms = alone.ms + wait_ms + exposed_ms, up to medians.
struct Exchange {
  int64_t collectives = 0, bytes = 0;  // of an update, of each rank
  KindTimes together;                  // as trained
  KindTimes without;                   // in lockstep, without all-reduces
  // each rank by itself, all at once, with its share of the update
  KindTimes alone;
  double exposed_ms = 0;  // communication: median of together - without
  // for the slowest rank of each step: median of without - alone
  double wait_ms = 0;
  // The part of exposed_ms that is cycles, at the clock of `without`; the rest is the clock. 0 on
  // the CPU.
  double exposed_cycles_ms = 0;

  double scaling() const { return alone.ms / together.ms; }
};

// Rows of `steps` updates of the three kinds, in turn, so that clocks and temperatures are alike.
// Collective.
Exchange measure_exchange(Device&, ProcessGroup&, Communicator&, Model&, ParameterStore&,
                          const Config&, const TokenDataset&, int64_t steps);

// A communicator that sums eight numbers in place of gradients: ranks wait for each other as in
// training, and communication takes next to no time. Other ranks' weights stay. Device and
// communicator outlive it.
std::unique_ptr<Communicator> make_lockstep(Device&, Communicator&);

// The same collectives; *nanoseconds, in the queue's memory, counts how long the queue is stalled
// for them. On the CPU none overlaps with the queue: all of them count. All outlive it.
std::unique_ptr<Communicator> make_timed(Device&, Communicator&, int64_t* nanoseconds);

std::string exchange_json(const Exchange&);  // fields of an object, each with a comma before it
std::string exchange_text(const Exchange&, int64_t ranks);
}  // namespace weft
