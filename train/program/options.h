// SPDX-License-Identifier: MIT
// Command lines of the programs, and the work of evaluate, sample and prepare.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "data/prepare/prepare.h"
#include "train/attention/attention_file.h"
#include "train/bench/attention.h"
#include "train/bench/decode.h"
#include "train/bench/kernels.h"
#include "train/bench/step.h"
#include "train/inspect/report.h"
#include "train/sampling/sampler.h"
#include "train/selftest/run.h"
#include "train/trainer/trainer.h"

namespace CLI {
class App;
}

namespace weft {

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;  // "a.b=c"
  int gpus = 0;                        // processes to start (train/ranks/ranks.h); so below
  TrainOptions options;
};
void add_train_options(CLI::App&, TrainArguments&);

struct EvaluateArguments {
  std::string checkpoint, data, split = "test", device = "auto";  // data "": the file named in the checkpoint
  int gpus = 0;
  std::int64_t min_context = 0;
  std::int64_t batch = 0;       // 0: that of training
  std::string weights;          // "ema", "last"; "": ema where it was kept
  std::string augmentations;    // "all", or one combination: "rotation=1,color=2"
  std::string heatmap, losses;  // files to write
};
void add_evaluate_options(CLI::App&, EvaluateArguments&);
// A JSON line for each evaluation to `out`; progress, and a line for people, to `progress`. Every rank of the
// group calls it; rank 0 writes the files.
void run_evaluate(const EvaluateArguments&, ProcessGroup&, std::ostream& out, Progress& progress);

struct SampleArguments {
  std::string checkpoint, prompt, prompt_file, out, device = "auto";  // out: text, .png or .wav
  std::string weights;  // "ema", "last"; "": ema where it was kept
  SampleOptions options;
  int gpus = 0;
  std::int64_t batch = 0;  // 0: 8 texts, or images of about 800,000 tokens
  bool stats = false;
  // Images.
  std::string singles, augmentation;   // a folder; "rotation=1"
  bool upright = false;                // augmented images are shown as they were before
  std::vector<std::string> complete;   // PNG files, or one data file
  std::string split = "test";          // of the data file
  std::int64_t first = 0, images = 4;  // of that split
  std::int64_t rows = -1;              // given of each; -1: half
  std::int64_t rate = 12000;           // of a WAV file
};
void add_sample_options(CLI::App&, SampleArguments&);
// Text to `text` (or to the file that --out names), images and sound to files; the rest to `notes`. Every
// rank of the group calls it; rank 0 writes the files.
void run_sample(SampleArguments, ProcessGroup&, std::ostream& text, Progress& notes);

struct PrepareArguments {
  std::string command;  // name of one of them
  PrepareText text;
  PrepareAudio audio;
  PrepareEnwik8 enwik8;
  PrepareCopy copy;
  PrepareCifar10 cifar10;
  PrepareImagenet imagenet64{.side = 64}, imagenet32{.side = 32};
  PrepareImages images;
};
void add_prepare_commands(CLI::App&, PrepareArguments&);
std::string run_prepare(const PrepareArguments&);

void add_selftest_options(CLI::App&, SelftestOptions&);
void add_inspect_options(CLI::App&, InspectOptions&);
void add_attention_options(CLI::App&, AttentionFileOptions&);

struct BenchArguments {
  std::string command;  // kernels, attention, decode or step
  BenchAttentionOptions attention;
  BenchDecodeOptions decode;
  BenchKernelsOptions kernels;
  BenchStepOptions step;
  int gpus = 0;  // of step
};
void add_bench_commands(CLI::App&, BenchArguments&);
void run_bench(const BenchArguments&, std::ostream& out, std::ostream& notes);

}  // namespace weft
