// SPDX-License-Identifier: MIT
// The C library: right calls against the definition, mistakes by their texts, threads, and its
// example.
#include "src/patterns/more/layout.h"
#include "src/patterns/pattern.h"
#include "tests/kernels/attention/attention_case.h"
#include "tests/src/capi/capi_calls.h"
#include "tests/temp_dir.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {
using attention_test::Data;

struct PatternDeleter {
  void operator()(weft_pattern* p) const { weft_pattern_destroy(p); }
};

struct PlanDeleter {
  void operator()(weft_attention_plan* p) const { weft_attention_plan_destroy(p); }
};

using PatternHandle = std::unique_ptr<weft_pattern, PatternDeleter>;
using PlanHandle = std::unique_ptr<weft_attention_plan, PlanDeleter>;

void expect_ok(weft_status status) { ASSERT_EQ(status, WEFT_OK) << weft_last_error(); }

weft_pattern_spec spec_of(const char* kind) {
  weft_pattern_spec spec;
  expect_ok(weft_pattern_spec_init(&spec, sizeof(spec)));
  spec.kind = kind;
  return spec;
}

PatternHandle pattern_of(const weft_pattern_spec& spec, int heads) {
  weft_pattern* pattern = nullptr;
  expect_ok(weft_pattern_create(&spec, heads, &pattern));
  return PatternHandle(pattern);
}

PlanHandle plan_of(const weft_pattern* pattern, Lengths n, int64_t qk, int64_t v) {
  weft_attention_plan* plan = nullptr;
  expect_ok(weft_attention_plan_create(pattern, n.queries, n.keys, qk, v, WEFT_CPU, &plan));
  return PlanHandle(plan);
}

template <class View>
View as(const HeadsView& x) {
  return {x.data, x.batch_stride, x.time_stride, x.head_stride};
}

constexpr int32_t number_of(DType t) {
  return t == DType::f32    ? WEFT_F32
         : t == DType::f16  ? WEFT_F16
         : t == DType::bf16 ? WEFT_BF16
                            : WEFT_F64;
}

// Both passes through the C interface.
template <class T>
void run(const weft_attention_plan* plan, Data<T>& x) {
  const AttentionBackward b = x.backward({});
  const Segments segments = x.segments();
  weft_forward_args f{};
  f.size = sizeof(f);
  f.batch = x.size.batch;
  f.dtype = number_of(dtype_of<T>);
  f.q = as<weft_input>(b.q), f.k = as<weft_input>(b.k), f.v = as<weft_input>(b.v);
  f.o = as<weft_output>(b.y);
  f.lse = x.lse.data();
  f.q_segments = static_cast<const int32_t*>(segments.queries.data);
  f.k_segments = static_cast<const int32_t*>(segments.keys.data);
  expect_ok(weft_attention_forward(plan, &f));
  weft_backward_args g{};
  g.size = sizeof(g);
  g.batch = f.batch, g.dtype = f.dtype;
  g.q = f.q, g.k = f.k, g.v = f.v, g.o = as<weft_input>(b.y), g.d_o = as<weft_input>(b.dy),
  g.lse = f.lse;
  g.dq = as<weft_output>(b.dq), g.dk = as<weft_output>(b.dk), g.dv = as<weft_output>(b.dv);
  g.q_segments = f.q_segments, g.k_segments = f.k_segments;
  expect_ok(weft_attention_workspace_size(plan, g.batch, g.dtype, &g.workspace_bytes));
  EXPECT_EQ(g.workspace_bytes, x.delta.size() * sizeof(x.delta[0]));
  std::vector<double> workspace(g.workspace_bytes / sizeof(double) + 3);
  g.workspace = workspace.data() + reinterpret_cast<std::uintptr_t>(workspace.data()) / 8 % 2;
  expect_ok(weft_attention_backward(plan, &g));
}

// Masks, and both passes in f64 and f32, against the C++ pattern and the definition.
void expect_definition(const weft_pattern* handle, const AttentionPattern& pattern, Lengths n,
                       int heads, bool documents) {
  SCOPED_TRACE(str(pattern.name(), ", ", n.queries, " queries, ", n.keys, " keys"));
  EXPECT_EQ(weft_pattern_name(handle), pattern.name());
  std::vector<uint8_t> mask(static_cast<std::size_t>(n.queries * n.keys));
  for (int h = 0; h < heads; ++h) {
    expect_ok(weft_pattern_mask(handle, h, n.queries, n.keys, mask.data()));
    for (int64_t i = 0; i < n.queries; ++i)
      for (int64_t j = 0; j < n.keys; ++j)
        ASSERT_EQ(mask[i * n.keys + j] != 0, pattern.attends(h, i, j))
            << h << ", " << i << ", " << j;
  }
  Data<double> exact({2, n.queries, heads, 12, 20, n.keys});
  if (documents) exact.pack_documents();
  Data<double> x(exact);
  Data<float> single(exact);
  attention_test::by_definition(exact.forward({}), pattern);
  attention_test::by_definition(exact.backward({}), pattern);
  const PlanHandle plan = plan_of(handle, n, 12, 20);
  run(plan.get(), x);
  run(plan.get(), single);
  const auto expect_near = [&](const auto& got, double tolerance) {
    EXPECT_LT(difference(got.y, exact.y), tolerance);
    EXPECT_LT(difference(got.lse, exact.lse), tolerance);
    EXPECT_LT(difference(got.dq, exact.dq), tolerance);
    EXPECT_LT(difference(got.dk, exact.dk), tolerance);
    EXPECT_LT(difference(got.dv, exact.dv), tolerance);
  };
  expect_near(x, 1e-12);
  expect_near(single, 1e-5);
}

TEST(CApi, NamedPatternsRunAsDefined) {
  for (const char* kind : {"all", "local", "strided", "fixed"})
    for (const bool documents : {false, true}) {
      weft_pattern_spec spec = spec_of(kind);
      spec.stride = 6, spec.c = 2, spec.num_verts = 2;
      PatternSpec same;
      same.kind = kind;
      same.stride = 6, same.c = 2, same.num_verts = 2;
      expect_definition(pattern_of(spec, 4).get(), *make_pattern(same, 4), 67, 4, documents);
      expect_definition(pattern_of(spec, 4).get(), *make_pattern(same, 4), {19, 40}, 4, documents);
    }
}

int32_t keep_odd(void* user, int32_t head, int64_t query, int64_t key) {
  ++*static_cast<int*>(user);
  return (query + key + head) % 2;
}

TEST(CApi, LayoutsWithAPredicateRunAsDefined) {
  BlockLayout layout;
  layout.heads = 2;
  layout.query_blocks = 3;
  layout.key_blocks = 5;
  layout.block = 8;
  layout.active.resize(30);
  for (std::size_t i = 0; i < layout.active.size(); ++i) layout.active[i] = i % 3 != 1;
  layout.keep = [](int head, int64_t i, int64_t j) { return (i + j + head) % 2 != 0; };
  layout.source = "layout";
  for (const int32_t causal : {0, 1}) {
    layout.causal = causal != 0;
    int asked = 0;
    const weft_layout given{sizeof(given), layout.active.data(), 2, 3, 5, 8, causal, keep_odd,
                            &asked};
    weft_pattern* made = nullptr;
    expect_ok(weft_pattern_create_layout(&given, 2, &made));
    const PatternHandle pattern(made);
    EXPECT_GT(asked, 0);
    expect_definition(pattern.get(), *layout_pattern(layout, 2), {21, 39}, 2, false);
    expect_definition(pattern.get(), *layout_pattern(layout, 2), {24, 40}, 2, true);
  }
}

TEST(CApi, LayoutsHaveBlocksOfFourSizes) {
  const uint8_t active = 1;
  for (int block = 1; block <= 128; ++block) {
    const weft_layout layout{sizeof(layout), &active, 1, 1, 1, block, 1, nullptr, nullptr};
    weft_pattern* made = nullptr;
    const bool fits = block == 8 || block == 16 || block == 32 || block == 64;
    EXPECT_EQ(weft_pattern_create_layout(&layout, 1, &made), fits ? WEFT_OK : WEFT_INVALID_ARGUMENT)
        << block;
    const PatternHandle pattern(made);
  }
}

TEST(CApi, LowPrecisionAndAxesInAnyOrder) {
  const weft_pattern_spec spec = spec_of("all");
  const PatternHandle pattern = pattern_of(spec, 3);
  const PlanHandle plan = plan_of(pattern.get(), 33, 8, 8);
  Data<double> exact({2, 33, 3, 8, 8});
  Data<bf16> x(exact);
  exact = Data<double>(x);
  attention_test::by_definition(exact.forward({}), *make_pattern({.kind = "all"}, 3));
  run(plan.get(), x);
  EXPECT_LT(difference(x.y, exact.y), 0.01);
  // (head, time, batch, size), as a caller may have it.
  const auto moved = [](const std::vector<bf16>& from) {
    std::vector<bf16> to(from.size());
    for (int b = 0; b < 2; ++b)
      for (int t = 0; t < 33; ++t)
        for (int h = 0; h < 3; ++h)
          for (int d = 0; d < 8; ++d)
            to[((h * 33 + t) * 2 + b) * 8 + d] = from[((b * 33 + t) * 3 + h) * 8 + d];
    return to;
  };
  const std::vector<bf16> q = moved(x.q), k = moved(x.k), v = moved(x.v), want = moved(x.y);
  std::vector<bf16> o(q.size());
  const auto view = [](const std::vector<bf16>& data) {
    return weft_input{data.data(), 8, 16, 33 * 16};
  };
  weft_forward_args f{};
  f.size = sizeof(f), f.batch = 2, f.dtype = WEFT_BF16;
  f.q = view(q), f.k = view(k), f.v = view(v), f.o = {o.data(), 8, 16, 33 * 16};
  f.lse = x.lse.data();
  expect_ok(weft_attention_forward(plan.get(), &f));
  EXPECT_EQ(std::memcmp(o.data(), want.data(), o.size() * sizeof(bf16)), 0);
}

void expect_reported(void* count, const char* call, weft_status got, weft_status want,
                     const char* message, const char* word) {
  ++*static_cast<int*>(count);
  EXPECT_EQ(got, want) << call << ": " << weft_status_name(got) << ", " << message;
  EXPECT_TRUE(want == WEFT_OK || std::strstr(message, word)) << call << ": " << message;
}

TEST(CApi, MistakesAreNamed) {
  int count = 0;
  const weft_call_report report{&count, expect_reported};
  weft_call_bad_patterns(&report);
  weft_call_bad_layouts(&report);
  weft_call_bad_plans(&report);
  weft_call_bad_launches(&report);
  EXPECT_GT(count, 100);
}

TEST(CApi, MeansWorkedOutByHand) { EXPECT_EQ(weft_call_means(), 0); }

TEST(CApi, SaysWhatItIs) {
  EXPECT_EQ(weft_attention_version(), WEFT_ATTENTION_VERSION);
  EXPECT_STREQ(weft_status_name(WEFT_OUT_OF_MEMORY), "WEFT_OUT_OF_MEMORY");
  EXPECT_STREQ(weft_status_name(static_cast<weft_status>(7)), "unknown status");
  weft_pattern_spec spec = spec_of("local");
  spec.stride = 5;
  const PatternHandle pattern = pattern_of(spec, 3);
  const PlanHandle plan = plan_of(pattern.get(), 100, 16, 16);
  weft_plan_info info{};
  info.size = sizeof(info);
  expect_ok(weft_attention_plan_info(plan.get(), &info));
  EXPECT_EQ(info.heads, 3);
  EXPECT_EQ(info.passes, 1);
  EXPECT_EQ(info.needed_pairs, 3 * (100 * 5 - 10));
  EXPECT_GE(info.executed_pairs, info.needed_pairs);
  EXPECT_GT(info.bytes, 0);
  const char* form = nullptr;
  expect_ok(weft_attention_plan_form(plan.get(), WEFT_F16, WEFT_AUTOMATIC, 0, &form));
  EXPECT_STREQ(form, "cpu");
}

TEST(CApi, ThreadsShareAPlanAndKeepTheirErrors) {
  const weft_pattern_spec spec = spec_of("strided");
  const PatternHandle pattern = pattern_of(spec, 2);
  const PlanHandle plan = plan_of(pattern.get(), 130, 8, 8);
  Data<float> want({1, 130, 2, 8, 8});
  run(plan.get(), want);
  std::vector<Data<float>> results(4, Data<float>({1, 130, 2, 8, 8}));
  std::vector<std::string> errors(results.size());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&, t] {
      weft_pattern* none = nullptr;
      weft_pattern_spec wrong = spec_of("local");
      wrong.stride = -1 - static_cast<int64_t>(t);
      EXPECT_EQ(weft_pattern_create(&wrong, 2, &none), WEFT_INVALID_ARGUMENT);
      for (int i = 0; i < 3; ++i) run(plan.get(), results[t]);
      errors[t] = weft_last_error();
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < results.size(); ++t) {
    EXPECT_NE(errors[t].find(str("got -", t + 1)), std::string::npos) << errors[t];
    EXPECT_EQ(results[t].dq, want.dq);
    EXPECT_EQ(results[t].y, want.y);
  }
}

TEST(CApi, TheExampleRuns) {
  const TempDir dir;
  const std::string source = WEFT_TEST_SOURCE "/src/capi/example.c", program = dir / "example";
  for (const std::string& library :
       {std::string("-L" WEFT_TEST_LIB " -lweft_attention -Wl,-rpath," WEFT_TEST_LIB),
        std::string(WEFT_TEST_LIB "/libweft_attention.a " WEFT_TEST_STATIC_LIBRARIES)}) {
    const std::string compile =
        WEFT_TEST_CC " -std=c99 -pedantic -Wall -Wextra -Werror -I" WEFT_TEST_SOURCE "/src/capi " +
        source + " -o " + program + " " + library;
    ASSERT_EQ(std::system(compile.c_str()), 0) << compile;
    ASSERT_EQ(std::system((program + " > " + dir / "out").c_str()), 0);
    std::string line;
    std::getline(std::ifstream(dir / "out"), line);
    EXPECT_NE(line.find("fixed(stride 128, c 32"), std::string::npos) << line;
  }
}

TEST(CApi, ASpecBeginsWithTheDefaultsOfAConfig) {
  const weft_pattern_spec spec = spec_of("fixed");
  const PatternSpec defaults;
  EXPECT_EQ(spec.size, sizeof spec);
  EXPECT_EQ(spec.stride, defaults.stride);
  EXPECT_EQ(spec.c, defaults.c);
  EXPECT_EQ(spec.num_verts, defaults.num_verts);
  EXPECT_EQ(spec.vertsize, defaults.vertsize);
  EXPECT_EQ(spec.causal, defaults.causal);
  EXPECT_EQ(spec.step, defaults.step);
}
}  // namespace
}  // namespace weft
