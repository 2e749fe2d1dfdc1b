// SPDX-License-Identifier: MIT
// train.optimizer muon by several processes: neither their number nor pieces of weights change a
// bit.
#include "src/config/config.h"
#include "src/parts/parts.h"
#include "src/ranks/sharding.h"
#include "tests/train/ranks/rank_runs.h"
#include "tests/train/trainer/matrices.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace weft {
namespace {
TEST(MuonUpdatesOfRanks, AreTheSameBitsOnAnyNumberOfRanksAndInPieces) {
  if (const std::string absent = absent_part_text("muon"); !absent.empty()) GTEST_SKIP() << absent;
  const TrainConfig train = train_with(Optimizer::muon);
  for (const int ranks : {2, 3, 4})
    for (const int64_t least : {1, 100, 0}) {
      SCOPED_TRACE(str(ranks, " ranks, ranges of ", least));
      expect_cpu_ranks(ranks, [&](CpuRank& r) {
        ParameterStore alone, shared, cut;
        for (ParameterStore* store : {&alone, &shared, &cut}) {
          add_parameters(*store, ParamKind::matrix);
          store->allocate(*r.device, DType::bf16, 1, true, true,
                          store == &cut ? Sharding::make(r.comm.get(), least) : nullptr);
          if (store == &alone) {
            update_twice(*r.device, *store, train);
          } else {
            update_twice(*r.device, *store, train,
                         [&](Ctx& ctx) { update_by_ranks(ctx, *store, train, *r.comm); });
          }
        }
        EXPECT_FALSE(shards_of(cut).empty());
        const auto place = [&](int block, int matrix) {  // "up" or "down"
          return cut.params()[static_cast<std::size_t>(2 + 3 * block + matrix)].offset;
        };
        for (const int matrix : {0, 1})  // blocks are alike, or ranks could not share them
          EXPECT_EQ(place(1, matrix) - place(0, matrix), place(2, matrix) - place(1, matrix));
        for (std::size_t i = 0; i < alone.params().size(); ++i) {
          SCOPED_TRACE(alone.params()[i].name);
          const auto weights = [&](const ParameterStore& s) {
            return to_host(*r.device, s.var({static_cast<int32_t>(i)}).value);
          };
          EXPECT_EQ(weights(shared), weights(alone));
          EXPECT_EQ(weights(cut), weights(alone));
          const std::vector<double> m = values_of(*r.device, alone, alone.m(), i),
                                    v = values_of(*r.device, alone, alone.v(), i);
          EXPECT_EQ(values_of(*r.device, shared, shared.m(), i), m);
          EXPECT_EQ(values_of(*r.device, cut, cut.m(), i), m);
          EXPECT_EQ(values_of(*r.device, shared, shared.v(), i), v);
          EXPECT_EQ(values_of(*r.device, cut, cut.v(), i), v);
          EXPECT_GT(*std::ranges::max_element(v), 0);
        }
      });
    }
}

class MuonTrainingOfRanks : public RankRuns {
 protected:
  static std::vector<std::string> muon(std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"train.optimizer=muon", "train.batch=6"});
    return with(overrides);
  }
};

TEST_F(MuonTrainingOfRanks, RanksShareIt) {
  if (const std::string absent = absent_part_text("muon"); !absent.empty()) GTEST_SKIP() << absent;
  const auto few = muon({"train.steps=8"});
  EXPECT_EQ(run("one", 1, few), "");
  for (const int ranks : {2, 3}) {
    const std::string whole = str("whole", ranks), again = str("again", ranks),
                      pieces = str("pieces", ranks), resumed = str("resumed", ranks);
    const auto in_pieces = muon({"train.steps=8", "train.shard_optimizer=true"});
    EXPECT_EQ(run(whole, ranks, few), "") << "weights are compared before they are saved";
    EXPECT_EQ(run(again, ranks, few), "");
    EXPECT_EQ(run(pieces, ranks, in_pieces), "");
    EXPECT_EQ(run(resumed, ranks, in_pieces, {.max_steps = 3}), "");
    EXPECT_EQ(run(resumed, ranks, in_pieces, {.resume = ""}), "");
    for (const std::string& other : {again, pieces, resumed}) expect_same_latest(other, whole);
    expect_near_series(whole, "one", "loss", 1e-3);
  }
}
}  // namespace
}  // namespace weft
