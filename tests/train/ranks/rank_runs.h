// SPDX-License-Identifier: MIT
// Training runs of several processes of the CPU, forked by the test itself, and what they leave.
#pragma once

#include "tests/src/ranks/ranks.h"
#include "tests/train/ranks/ranks_testing.h"
#include "tests/train/runs.h"
#include "train/trainer/trainer.h"

#include <chrono>
#include <gtest/gtest.h>
#include <omp.h>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
class RankRuns : public Runs {
 protected:
  // Trains in <dir>/<name> on `ranks` processes; what rank 0 throws, or "".
  std::string run(const std::string& name, int ranks, const std::vector<std::string>& overrides,
                  TrainOptions options = {}) {
    options.out = dir / name;
    options.device = "cpu";
    Ranks processes(ranks, [&](const World& world) {
      omp_set_num_threads(1);  // a pool of threads does not survive fork()
      ProcessGroup group(world, "test");
      std::ostringstream text;
      Progress progress(text, false);
      Trainer(small_config(dir.path(), overrides), options, progress, group).run();
      write_file(text_file(name, world.rank), text.str());
    });
    EXPECT_TRUE(processes.end({}, std::chrono::seconds(300)));
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(processes.code(r), processes.code(0)) << "rank " << r;
    return processes.code(0) == 0 ? "" : processes.errors(0);
  }

  // What a rank of a run printed.
  std::string text_of(const std::string& name, int rank) const {
    return read_file(text_file(name, rank));
  }

 private:
  std::string text_file(const std::string& name, int rank) const {
    return dir / str(name, ".", rank, ".txt");
  }
};
}  // namespace weft
