// SPDX-License-Identifier: MIT
// bench: rows, filters and mistakes.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "kernels/view.h"
#include "tests/train/training.h"
#include "train/bench_kernels.h"
#include "train/bench_step.h"

namespace weft {
namespace {

std::string rows_of(BenchKernelsOptions options) {
  options.device = "cpu";
  std::ostringstream out, notes;
  bench_kernels(options, out, notes);
  return out.str();
}

TEST(Bench, PrintsJsonRowsOfTheFilter) {
  const std::string rows =
      rows_of({.filter = "mean_", .device = "cpu", .dtype = "f32", .json = true, .verify = true});
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 2) << rows;
  EXPECT_NE(rows.find("{\"kernel\": \"mean_forward\", \"sizes\": \"49152 elements\", \"dtype\": \"f32\", "
                      "\"device\": \"cpu\", "
                      "\"ms\": "),
            std::string::npos)
      << rows;
}

TEST(Bench, ErrorsSayWhatExists) {
  const auto error_of = [](const BenchKernelsOptions& options) -> std::string {
    try {
      rows_of(options);
    } catch (const Error& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(error_of({.filter = "", .dtype = "fp8"}), "--dtype must be f32, f16 or bf16, got 'fp8'");
  EXPECT_NE(error_of({.filter = "softmax", .dtype = "f32"}).find("kernels: adamw_update, add, "),
            std::string::npos);
}

TEST(Bench, TimesWholeSteps) {
  const TempDir dir;
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  std::ostringstream json, text;
  bench_step({.config = dir / "small.yaml", .overrides = {}, .device = "cpu", .steps = 2, .json = true},
             json);
  for (const char* key : {"\"tokens\": 256,", "\"context\": 64,", "\"dtype\": \"f32\"",
                          "\"tok_s\": ", "\"peak_bytes\": ", "\"first_step_s\": "})
    EXPECT_CONTAINS(json.str(), key);
  bench_step({.config = dir / "small.yaml", .overrides = {"train.batch=2"}, .device = "cpu", .steps = 1},
             text);
  EXPECT_CONTAINS(text.str(), "128 tokens of context 64");
  EXPECT_THROW(bench_step({.config = dir / "small.yaml", .overrides = {}, .device = "cpu", .steps = 0}, text),
               Error);
}

}  // namespace
}  // namespace weft
