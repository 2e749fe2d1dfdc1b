// SPDX-License-Identifier: MIT
// `bench kernels`: rows, filters and mistakes.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "kernels/view.h"
#include "train/bench_kernels.h"

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

}  // namespace
}  // namespace weft
