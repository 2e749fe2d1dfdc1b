// SPDX-License-Identifier: MIT
// bench: rows, filters and mistakes.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "kernels/view.h"
#include "src/attention_maps.h"
#include "tests/train/training.h"
#include "train/attention_spot_check.h"
#include "train/bench_attention.h"
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

TEST(Bench, TimesAttentionOfCheckedResults) {
  const auto rows = [](BenchAttentionOptions options) {
    std::ostringstream out;
    options.device = "cpu";
    options.dtype = "f32";
    bench_attention(options, out);
    return out.str();
  };
  const auto custom = [](const char* shape) {
    BenchAttentionOptions options;
    options.custom = shape;
    return options;
  };
  BenchAttentionOptions as_json = custom("2,2,130,16,24,16,4"), local = custom("1,2,65,8,8,16,4"), unknown;
  as_json.json = true;
  local.modes = "local";
  unknown.shapes = "enwik9";
  const std::string json = rows(as_json);
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 5) << json;
  EXPECT_CONTAINS(json,
                  "\"mode\": \"merged_strided\", \"B\": 2, \"H\": 2, \"N\": 130, \"D\": 16, \"Dv\": 24,");
  EXPECT_CONTAINS(rows(local), "custom        local ");
  const auto error_of = [&](const BenchAttentionOptions& options) -> std::string {
    try {
      rows(options);
    } catch (const Error& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(error_of(unknown),
            "--shapes: no shape 'enwik9'; known: paper (all), enwik8, cifar10, cifar10_half, cifar10_96, "
            "long64k, long1m");
  EXPECT_EQ(error_of(custom("1,2")), "--shape takes B,H,n,Dqk,Dv,stride,c, got '1,2'");
  EXPECT_EQ(error_of(custom("1,2,x,8,8,16,4")), "--shape: 'x' is not a positive whole number");
}

// The check behind it finds a wrong number in any of the results.
TEST(Bench, SpotCheckFindsWrongRows) {
  const auto device = make_device("cpu");
  const auto pattern = make_pattern({"local", 4, 1, 1}, 1);
  const std::int64_t n = 9;
  AttentionTensors x;
  x.heads = 1, x.qk_size = x.v_size = 8;
  const auto tensor = [&](const Shape& shape) {
    Tensor t(*device->pool, shape, DType::f32);
    for (std::int64_t i = 0; i < t.size(); ++i)
      t.view().as<float>()[i] = std::sin(1.7f * static_cast<float>(i + t.size()));
    return t;
  };
  x.qkv = tensor({1, n, 24}), x.dy = tensor({1, n, 8}), x.y = tensor({1, n, 8}), x.dqkv = tensor({1, n, 24});
  x.lse = tensor({1, 1, n});
  const Tensor delta = tensor({1, 1, n});
  const DeviceMaps maps(*device, *pattern, 1, n, 8);
  const auto part = [](const Tensor& t, std::int64_t first) { return heads_of(t, first, 1, 8); };
  launch(device->queue, AttentionForward{.y = part(x.y, 0),
                                         .lse = x.lse,
                                         .q = part(x.qkv, 0),
                                         .k = part(x.qkv, 8),
                                         .v = part(x.qkv, 16),
                                         .maps = maps.maps(),
                                         .scale = 1 / std::sqrt(8.0)});
  launch(device->queue, AttentionBackward{.dq = part(x.dqkv, 0),
                                          .dk = part(x.dqkv, 8),
                                          .dv = part(x.dqkv, 16),
                                          .delta = delta,
                                          .dy = part(x.dy, 0),
                                          .y = part(x.y, 0),
                                          .lse = x.lse,
                                          .q = part(x.qkv, 0),
                                          .k = part(x.qkv, 8),
                                          .v = part(x.qkv, 16),
                                          .maps = maps.maps(),
                                          .scale = 1 / std::sqrt(8.0)});
  const auto error = [&] { return spot_check(*device, *pattern, x, 40, 3); };
  EXPECT_LT(error(), 1e-5);
  for (const Tensor& wrong : {x.y, x.dqkv, x.dqkv.slice(8, {8}), x.dqkv.slice(16, {8}), x.lse}) {
    float& value = wrong.view().as<float>()[3 % wrong.size()];
    const float kept = value;
    value += 0.5f;
    EXPECT_GT(error(), 1e-3);
    value = kept;
  }
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
