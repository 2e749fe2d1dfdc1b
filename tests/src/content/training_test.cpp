// SPDX-License-Identifier: MIT
// Training and evaluation where content decides: the memory plan, decoded bits, captured steps.
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "tests/models/model_testing.h"
#include "tests/train/evaluation/decoded_bits.h"

#include <string>
#include <vector>

namespace weft {
namespace {
TEST(ContentTraining, MemoryPlanIsWhatThePoolSees) {
  Config config = rotary_config({"local", 16, 1, 1}, {12, 16});
  config.model.context = 192;
  config.model.width = 32;
  config.model.vocab = 40;
  config.model.layers = 6;
  config.model.mlp_ratio = 4;
  config.model.dropout = 0.1;
  config.model.embedding_dropout = 0.1;
  for (const char* pattern : {"{kind: routing, clusters: 5, window: 70}", "{kind: lsh, window: 20}",
                              "{kind: topk_blocks, block: 64, blocks: 2}"})
    for (const Recompute recompute : kEveryRecompute)
      for (const bool training : {true, false}) {
        SCOPED_TRACE(str(pattern, ", recompute ", text_of(recompute), ", training ", training));
        Config content = config;
        content.model.attention = {parse_pattern(pattern, "test")};
        content.train.recompute = recompute;
        check_plan(content, 4, training);
      }
}

TEST(ContentTraining, DecodingGivesTheSameBits) {
  for (const char* pattern :
       {"{kind: heads, of: [{kind: routing, clusters: 3, window: 5}, {kind: local, stride: 8}]}",
        "{kind: lsh, rounds: 2, window: 4}", "{kind: topk_blocks, block: 64, blocks: 2}"})
    expect_decoded_bits(pattern);
}

#ifdef WEFT_CUDA
TEST(CudaContentTraining, ACapturedStepIsTheEagerStep) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 20000, 32);
  for (const char* graph : {"false", "true"}) {
    const std::vector<std::string> overrides{
        "precision=bf16", "train.accumulation=2", "model.dropout=0.3",
        "model.attention=[{kind: routing, clusters: 3, window: 20}, {kind: heads, of: [{kind: lsh, "
        "rounds: 2, window: 9}, {kind: topk_blocks, block: 64, blocks: 2}]}]",
        str("train.graph=", graph)};
    train(small_config(dir.path(), overrides), {.out = dir / graph, .device = "cuda"});
  }
  expect_same_tensors(dir / "true/latest.h5", dir / "false/latest.h5");
}
#endif
}  // namespace
}  // namespace weft
