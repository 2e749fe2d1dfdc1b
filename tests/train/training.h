// SPDX-License-Identifier: MIT
// Small runs for tests: a corpus, a config, training through the library, and the programs as
// processes.
#pragma once

#include "tests/temp_dir.h"
#include "train/trainer/options.h"

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace weft {
// `count` tokens of a repetitive made-up language below `vocab`, with 80, 10 and 10 percent in the
// three splits.
void write_corpus(const std::string& path, int64_t count, int64_t vocab);
void write_tokens(const std::string& path, const std::vector<uint16_t>& tokens, int64_t vocab,
                  const std::vector<double>& split);

// Two layers (local, strided) of width 32, context 64, batch 4, dropout, f32; reads
// <folder>/corpus.h5.
std::string small_yaml(const std::string& folder);

// A config to pass on. Tests that read its keys copy it into a Config and include config.h.
class RunConfig {
 public:
  RunConfig(const Config& config);  // NOLINT: the same, passed on

  operator const Config&() const { return *config_; }  // NOLINT

 private:
  std::shared_ptr<const Config> config_;
};

// The config of small_yaml after "a.b=c" overrides.
RunConfig small_config(const std::string& folder, const std::vector<std::string>& overrides = {});

// Trains, with what a person would read as the result.
std::string train(const Config&, const TrainOptions&);

// The values under `key` of the lines of a metrics.jsonl that have it.
std::vector<double> metric(const std::string& metrics_path, const std::string& key);
// All datasets of two checkpoints are the same bytes; their attributes (the config) may differ.
void expect_same_tensors(const std::string& checkpoint, const std::string& other);
// metrics.jsonl without what time decides (tokens_per_s, mfu, elapsed_s).
std::string timeless_metrics(const std::string& metrics_path);

struct ProcessOptions {
  int64_t limit_bytes = 0;                    // > 0: no file may grow beyond it
  std::vector<std::string> environment = {};  // "NAME=value", added to this one
  std::string name = "";                      // of the files of its output; "": that of the program
};

// A program of this build as a process, its output in files. A path is a program of this machine.
class Process {
 public:
  Process(const TempDir&, const std::string& program, const std::vector<std::string>& arguments,
          const ProcessOptions& = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void signal(int number) const;

  pid_t pid() const { return pid_; }  // -1 when it was waited for

  int wait();  // exit code, or 128 + signal

  std::string out() const { return read_file(out_); }

  std::string err() const { return read_file(err_); }

 private:
  std::string out_, err_;
  pid_t pid_ = -1;
};

// The one line that a Process (or what has its wait() and err()) leaves on stderr; its exit code
// must be 1.
template <class Program>
std::string error_line_of(Program& program) {
  EXPECT_EQ(program.wait(), 1) << program.out() << program.err();
  const std::string text = program.err();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_EQ(text.find("error: "), 0u) << text;
  return text;
}
}  // namespace weft
