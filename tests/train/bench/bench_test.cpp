// SPDX-License-Identifier: MIT
// bench: rows, filters and mistakes.
#include "train/bench/bench.h"

#include "kernels/diagnostics/launch_profile.h"
#include "kernels/layers/pointwise.h"
#include "kernels/linear/linear.h"
#include "kernels/view.h"
#include "src/attention_maps.h"
#include "src/patterns/pattern.h"
#include "tests/train/bench/cases/bench_kernels.h"
#include "tests/train/trainer/steps.h"
#include "tests/train/training.h"
#include "train/bench/check.h"
#include "train/bench/step_breakdown.h"
#include "train/trainer/run_folder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

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
  EXPECT_NE(
      rows.find("{\"kernel\": \"mean_forward\", \"sizes\": \"49152 elements\", \"dtype\": \"f32\", "
                "\"device\": \"cpu\", "
                "\"ms\": "),
      std::string::npos)
      << rows;
}

TEST(Bench, ErrorsSayWhatExists) {
  const auto error_of = [](const BenchKernelsOptions& options) -> std::string {
    try {
      rows_of(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of({.filter = "", .dtype = "fp8"}),
            "--dtype must be f32, f16 or bf16, got 'fp8'");
  EXPECT_NE(error_of({.filter = "softmax", .dtype = "f32"})
                .find("kernels: activation_backward, activation_forward, adamw_update, add, "),
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
  BenchAttentionOptions as_json = custom("2,2,130,16,24,16,4"), local = custom("1,2,65,8,8,16,4"),
                        unknown;
  as_json.json = true;
  local.modes = "local";
  unknown.shapes = "enwik9";
  const std::string json = rows(as_json);
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 2 + 5) << "two ceilings, five patterns\n"
                                                               << json;
  EXPECT_CONTAINS(json, "{\"ceiling\": \"f32_matmul_tflops\", \"peer\": \"weft\", \"value\": ");
  EXPECT_CONTAINS(json, "\"asked\": \"automatic\", \"form\": \"cpu\", \"dtype\": \"f32\"");
  EXPECT_CONTAINS(json, "\"fwd_MHz\": 0, \"fwdbwd_MHz\": 0, \"pause_ms\": 0, ");
  // 4 of 130 * 131 / 2
  EXPECT_CONTAINS(json, "\"fwd_of_all\": 1, \"fwdbwd_of_all\": 1, \"pairs\": 34060, ");
  EXPECT_CONTAINS(
      json, "\"mode\": \"merged_strided\", \"B\": 2, \"H\": 2, \"N\": 130, \"D\": 16, \"Dv\": 24,");
  EXPECT_CONTAINS(rows(local), "custom           local          f32  ");
  const auto error_of = [&](const BenchAttentionOptions& options) -> std::string {
    try {
      rows(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(unknown),
            "--shapes: no shape 'enwik9'; known: paper (all), enwik8, cifar10, cifar10_half, "
            "cifar10_s96, "
            "cifar10_half_s96, long64k, long1m");
  EXPECT_EQ(error_of(custom("1,2")), "--shape takes B,H,n,Dqk,Dv,stride,c, got '1,2'");
  EXPECT_EQ(error_of(custom("1,2,x,8,8,16,4")), "--shape: 'x' is not a positive whole number");
}

// Rows of a shape in two lengths and two types, beside three of others, of which one did not run.
TEST(Bench, AttentionIsComparedWithOthers) {
  const char* chosen = std::getenv("WEFT_PYTHON");
  const std::string python = chosen ? chosen : "python3";
  if (std::system((python + " -c '' 2>/dev/null").c_str()) != 0) GTEST_SKIP() << "no " << python;
  const TempDir dir;
  std::ostringstream rows;
  for (const auto& [shape, modes, dtypes] : {std::tuple{"2,2,130,16,24,16,4", "", "bf16,f16"},
                                             {"2,2,260,16,24,16,4", "strided", "bf16"}}) {
    BenchAttentionOptions options;
    options.device = "cpu", options.custom = shape, options.modes = modes, options.dtype = dtypes;
    options.json = true;
    bench_attention(options, rows);
  }
  write_file(dir / "weft.jsonl", rows.str());
  const std::string shape = R"("B": 2, "H": 2, "N": 130, "D": 16, "Dv": 24, "s": 16, "c": 4)";
  write_file(dir / "peers.json",
             str("[{\"mode\": \"local\", ", shape, R"(, "peer": "slow",)",
                 R"("fwd_ms": 1e9, "fwdbwd_ms": 2e9}, {"mode": "local", )", shape,
                 R"(, "peer": "quick", "fwd_ms": 0.0, "fwdbwd_ms": 0.0},)",
                 R"({"mode": "all", "case": "a", "peer": "slow", "error": "no memory"}])"));
  const std::string table = dir / "table.md";
  const auto run = [&](const std::string& arguments) {
    return std::system((python + " " WEFT_TEST_SOURCE "/train/bench/peers/compare_attention.py " +
                        (dir / "weft.jsonl") + arguments + " > " + table)
                           .c_str());
  };
  EXPECT_EQ(run(" " + (dir / "peers.json")), 0);
  const std::string text = read_file(table);
  EXPECT_CONTAINS(text, "| B2 H2 N130 D16/24 l16 | merged_strided | f16 | **weft** (cpu) |");
  EXPECT_CONTAINS(text, "| | | | slow | 1000000000.000 | 2000000000.000 |");
  EXPECT_CONTAINS(text, "| B2 H2 N130 D16/24 l16 | local | quick | 0.00 | 0.00 |") << "the fastest";
  EXPECT_CONTAINS(text, "| B2 H2 N260 D16/24 l16 | strided | not measured |");
  EXPECT_CONTAINS(text, "slower than `all` of the same shape, of 8 rows: ");
  EXPECT_CONTAINS(text, "than bf16, of 5 rows: ");
  EXPECT_CONTAINS(text, "slow did not run all of a: no memory");
  EXPECT_EQ(run(""), 0) << "there need not be others";
  EXPECT_NE(run(" " + (dir / "peers.json") + " --at-least 0.5"), 0);
  EXPECT_EQ(run(" " + (dir / "peers.json") + " --only slow --at-least 0.5"), 0);
}

// The check behind it finds a wrong number in any of the results.
TEST(Bench, SpotCheckFindsWrongRows) {
  const auto device = make_device("cpu");
  const auto pattern = make_pattern({"local", 4, 1, 1}, 1);
  const int64_t n = 9;
  AttentionTensors x;
  x.heads = 1, x.qk_size = x.v_size = 8;
  const auto tensor = [&](const Shape& shape) {
    Tensor t(*device->pool, shape, DType::f32);
    for (int64_t i = 0; i < t.size(); ++i)
      t.view().as<float>()[i] = std::sin(1.7f * static_cast<float>(i + t.size()));
    return t;
  };
  x.qkv = tensor({1, n, 24}), x.dy = tensor({1, n, 8}), x.y = tensor({1, n, 8}),
  x.dqkv = tensor({1, n, 24});
  x.lse = tensor({1, 1, n});
  const Tensor delta = tensor({1, 1, n});
  const DeviceMaps maps(*device, *pattern, 1, n, 8);
  const auto part = [](const Tensor& t, int64_t first) { return heads_of(t, first, 1, 8); };
  launch(device->queue, AttentionForward{
                            .y = part(x.y, 0),
                            .lse = x.lse,
                            .q = part(x.qkv, 0),
                            .k = part(x.qkv, 8),
                            .v = part(x.qkv, 16),
                            .maps = maps.maps(),
                            .scale = 1 / std::sqrt(8.0),
                        });
  launch(device->queue, AttentionBackward{
                            .dq = part(x.dqkv, 0),
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
                            .scale = 1 / std::sqrt(8.0),
                        });
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

TEST(Bench, GroupsLaunchesByKernelAndShape) {
  const LaunchCost small{.bytes = 10, .flops = 4, .shape = "N 1"},
      large{.bytes = 100, .flops = 40, .shape = "N 9"};
  const auto groups = group_launches({{"linear_forward", small, 1},
                                      {"add", {.bytes = 5, .flops = 0, .shape = ""}, 2},
                                      {"linear_forward", large, 7},
                                      {"linear_forward", small, 3}});
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].shape, "N 9");
  EXPECT_EQ(groups[1].shape, "N 1");
  EXPECT_EQ(groups[1].launches, 2);
  EXPECT_EQ(groups[1].milliseconds, 4);
  EXPECT_EQ(groups[1].bytes, 20);
  EXPECT_EQ(groups[1].flops, 8);
  EXPECT_EQ(groups[2].kernel, "add");
}

// Bytes and operations of a step as counted by hand.
TEST(Bench, CountsWhatLaunchesMoveAndCompute) {
  const auto device = make_device("cpu");
  const Tensor x(*device->pool, {3, 5}, DType::f32), w(*device->pool, {7, 5}, DType::f32),
      y(*device->pool, {3, 7}, DType::f32);
  device->zero(x), device->zero(w);
  CpuQueue queue;
  const auto profile = make_launch_profile(queue);
  queue.profile = profile.get();
  Queue profiled = queue;
  launch(profiled, LinearForward{.y = y, .x = x, .w = w, .b = {}});
  launch(profiled, LinearBackward{.dx = {x}, .dw = {}, .db = {}, .dy = y, .x = x, .w = w});
  launch(profiled, Add{.out = {x}, .x = x});
  const std::vector<LaunchRecord> records = profile->take();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].kernel, std::string("linear_forward"));
  EXPECT_EQ(records[0].cost.shape, "N 3, K 5, M 7");
  EXPECT_EQ(records[0].cost.flops, 2 * 3 * 5 * 7);
  EXPECT_EQ(records[0].cost.bytes, 4 * (15 + 35 + 21));
  EXPECT_EQ(records[1].cost.flops, 2 * 3 * 5 * 7);
  EXPECT_EQ(records[1].cost.bytes, 4 * (15 + 35 + 21 + 15));
  EXPECT_EQ(records[2].cost.bytes, 4 * 30);
  EXPECT_TRUE(profile->take().empty());
}

TEST(Bench, TimesWholeSteps) {
  const TempDir dir;
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  std::ostringstream json, text;
  Processes alone;
  bench_step(
      {.config = dir / "small.yaml", .overrides = {}, .device = "cpu", .steps = 2, .json = true},
      alone, json);
  for (const char* key :
       {"\"tokens\": 256,", "\"context\": 64,", "\"dtype\": \"f32\"",
        "\"tok_s\": ", "\"peak_bytes\": ", "\"optimizer_bytes\": ", "\"update_ms\": ",
        "\"first_step_s\": ", "\"first_step_parts_s\": {\"device\": ", ", \"weights\": ",
        ", \"first step\": ", "\"ranks\": 1,"})
    EXPECT_CONTAINS(json.str(), key);
  for (const char* key :
       {"\"kernel\": \"attention_backward\", \"shape\": \"\", \"launches\": 2,",
        "\"kernel\": \"linear_forward\", \"shape\": \"N 256, K 32, M 96\", \"launches\": 2,",
        "\"gap_ms\": ", "\"roofline_ms\": ", "\"copy_tb_per_s\": "})
    EXPECT_CONTAINS(json.str(), key);
  // Kernels and gaps are the step.
  EXPECT_NEAR(*json_number(json.str(), "kernel_ms") + *json_number(json.str(), "gap_ms"),
              *json_number(json.str(), "ms"), 1e-3 * *json_number(json.str(), "ms"));
  bench_step(
      {.config = dir / "small.yaml", .overrides = {"train.batch=2"}, .device = "cpu", .steps = 1},
      alone, text);
  EXPECT_CONTAINS(text.str(), "128 tokens of context 64");
  EXPECT_THROW(
      bench_step({.config = dir / "small.yaml", .overrides = {}, .device = "cpu", .steps = 0},
                 alone, text),
      Error);
}

TEST(Bench, TimesSampling) {
  const TempDir dir;
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  BenchDecodeOptions options{
      .config = dir / "small.yaml",
      .overrides = {},
      .device = "cpu",
      .batch = 3,
      .json = true,
  };
  std::ostringstream json, text;
  bench_decode(options, json);
  for (const char* key : {"\"batch\": 3,", "\"positions\": 64,",
                          "\"kernels\": ", "\"difference\": ", "\"first_ms\": {},",
                          "\"steps\": 13,"})  // no prompt of 128 fits
    EXPECT_CONTAINS(json.str(), key);
  EXPECT_NEAR(*json_number(json.str(), "floor_ms") / *json_number(json.str(), "ms"),
              *json_number(json.str(), "bandwidth_share"),
              1e-4 * *json_number(json.str(), "bandwidth_share"));
  options.json = false;
  options.positions = 10;
  bench_decode(options, text);
  EXPECT_CONTAINS(text.str(), "3 of 10 tokens in ");
  options.prompt = 4;
  bench_decode(options, text);
  EXPECT_CONTAINS(text.str(), "3 of 6 tokens in ");
  options.positions = 65;
  EXPECT_THROW(bench_decode(options, text), Error);
}

// Of a training step two thirds of attention are backward; the roofline is the slower of memory and
// arithmetic.
TEST(Bench, BreakdownCountsAttentionAndTheRoofline) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  Steps steps(small_config(dir.path()), "cpu");
  const StepBreakdown b =
      measure_breakdown(*steps.device, *steps.model, steps.store, steps.config, steps.source);
  double forward = 0, backward = 0;
  for (const KernelGroup& g : b.groups) {
    if (g.kernel == "attention_forward") forward += g.flops;
    if (g.kernel == "attention_backward") backward += g.flops;
    EXPECT_DOUBLE_EQ(g.roofline_ms * 1e-3,
                     std::max(g.bytes / b.copy_bandwidth, g.flops / b.peak_flops));
  }
  const auto tokens = static_cast<double>(step_shape(steps.config, 0).tokens());
  EXPECT_NEAR(forward + backward, attention_flops_per_token(steps.config.model, 64) * tokens, 1);
  EXPECT_NEAR(backward, 2 * forward, 1);
}
}  // namespace
}  // namespace weft
