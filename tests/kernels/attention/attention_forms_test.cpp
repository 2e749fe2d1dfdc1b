// SPDX-License-Identifier: MIT
// Which CUDA form runs what: chosen on the host, so that it is tested without a GPU.
#include "kernels/attention/select.h"
#include "kernels/forms.h"
#include "kernels/view.h"
#include "tests/kernels/attention/attention_case.h"
#include "tests/temp_dir.h"

#include <gtest/gtest.h>
#include <string>

namespace weft {
namespace {
using attention::Kernel, attention::parse_form, attention::Problem;

struct Case {
  AttentionForm form = AttentionForm::automatic;
  DType dtype = DType::bf16;
  int edge = kTile;
  int64_t size = 64, v_size = 0;  // 0: as qk
  bool segments = false;
  int compute_capability = 90;
  Band band{};
};

Kernel selected(const Case& c) {
  const Problem problem{
      .form = c.form,
      .dtype = c.dtype,
      .time = 1 << 20,
      .qk_size = c.size,
      .v_size = c.v_size ? c.v_size : c.size,
      .segments = c.segments,
  };
  AttentionPass pass = attention_test::pass_of(c.band);
  pass.edge = c.edge;
  return attention::select(problem, pass, c.compute_capability);
}

std::string refusal(AttentionForm wanted, DType dtype) {
  try {
    selected({.form = wanted, .dtype = dtype, .compute_capability = 80});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(AttentionForms, AutomaticTakesTheFastestThatCovers) {
  EXPECT_EQ(selected({.dtype = DType::f32}), Kernel::simple);
  EXPECT_EQ(selected({.size = 128, .v_size = 8, .compute_capability = 80}), Kernel::general);
  EXPECT_EQ(selected({.dtype = DType::f16, .size = 8, .v_size = 136, .compute_capability = 80}),
            Kernel::simple);
}

TEST(AttentionForms, TheTextNamesPassesAndDirections) {
  AttentionBackward g = attention_test::problem_of(300, 64, 64);
  AttentionForward f;
  f.q = g.q, f.k = g.k, f.v = g.v, f.y = g.y;
  f.maps.passes = g.maps.passes = 1;
  EXPECT_EQ(attention::kernels_text(f, g, 80), "general");
  f.form = AttentionForm::simple;
  EXPECT_EQ(attention::kernels_text(f, g, 80), "simple; backward general");
  g.maps.passes = 2;
  EXPECT_EQ(attention::kernels_text(f, g, 80), "simple; backward general + general");
}

TEST(AttentionForms, AForcedFormRunsOrIsRefusedByName) {
  EXPECT_EQ(selected({.form = AttentionForm::simple, .dtype = DType::f16, .segments = true}),
            Kernel::simple);
  const std::string message = refusal(AttentionForm::general, DType::f32);
  EXPECT_NE(message.find("'general'"), std::string::npos) << message;
  EXPECT_NE(message.find("f32"), std::string::npos) << message;
  EXPECT_NE(message.find("simple and automatic work"), std::string::npos) << message;
  EXPECT_NE(refusal(AttentionForm::hopper, DType::f16).find("'hopper'"), std::string::npos);
}

// Whether this build has kernels for Hopper GPUs.
bool takes_hopper() { return attention::added_kernel(Kernel::hopper) && kBuiltForSm90a; }

TEST(AttentionForms, HopperIsForItsGpuItsTypesAndItsTiles) {
  if (takes_hopper()) {
    EXPECT_EQ(selected({}), Kernel::hopper);
    EXPECT_EQ(selected({.dtype = DType::f16, .size = 128}), Kernel::hopper);
  } else {
    EXPECT_EQ(selected({}), Kernel::general);
  }
  EXPECT_CONTAINS(refusal(AttentionForm::hopper, DType::f16),
                  !attention::added_kernel(Kernel::hopper) ? "this build leaves its kernels out"
                  : kBuiltForSm90a                         ? "9.0, got 8.0"
                                                           : "90a");
  EXPECT_EQ(selected({.segments = true}), Kernel::general);
  EXPECT_EQ(selected({.dtype = DType::f32}), Kernel::simple);
  EXPECT_EQ(selected({.dtype = DType::f16, .size = 136}), Kernel::simple);
  EXPECT_EQ(selected({.compute_capability = 100}), Kernel::general);
}

TEST(AttentionForms, BandsOfAShortReachHaveAKernelOfTheirOwn) {
  const auto of = [](int32_t stride, int32_t reach, int64_t n) {
    return attention::hopper_kernel({.time = n, .qk_size = 64, .v_size = 64},
                                    attention_test::pass_of({stride, reach, 0}));
  };
  EXPECT_EQ(of(1, 128, 1 << 20), Kernel::hopper_band);
  EXPECT_EQ(of(1, 129, 1 << 20), Kernel::hopper_window);
  EXPECT_EQ(of(128, 128, 128 * 128), Kernel::hopper_band);
  EXPECT_EQ(of(128, 129, 129 * 128), Kernel::hopper_column);
  EXPECT_EQ(of(8, 1000, 128 * 8), Kernel::hopper_band);  // there are no more rows than 128
  EXPECT_EQ(of(0, 0, 128), Kernel::hopper);
  // With documents: the kernels that take reaches.
  const auto with_documents = [](int32_t reach, int64_t size, bool backward) {
    AttentionPass pass = attention_test::pass_of({1, reach, 0});
    const int32_t reaches = 1;
    pass.reaches = &reaches;
    return attention::hopper_kernel(
        {.time = 1 << 20, .qk_size = size, .v_size = size, .backward = backward}, pass);
  };
  EXPECT_EQ(with_documents(128, 64, true), Kernel::hopper_band);
  EXPECT_EQ(with_documents(128, 128, true), Kernel::hopper_head128);
  for (const bool backward : {false, true})
    EXPECT_EQ(with_documents(129, 64, backward), Kernel::hopper);
  if (takes_hopper()) {
    EXPECT_EQ(selected({.edge = kSmallTile, .band = {1, 128, 0}}), Kernel::hopper_band);
  }
}

// A kernel that no test of select() names would never be missed.
TEST(AttentionForms, EveryKernelHasAName) {
  ASSERT_EQ(attention::kKernels, static_cast<int>(Kernel::hopper_column) + 1);
  for (int k = 0; k < attention::kKernels; ++k)
    EXPECT_STRNE(attention::name_of(static_cast<Kernel>(k)), "?");
}

TEST(AttentionForms, TheFirstKernelWritesDeltaWhereItSeesEveryQuery) {
  EXPECT_TRUE(attention::writes_delta(Kernel::hopper_band, 2));
  EXPECT_TRUE(attention::writes_delta(Kernel::hopper, 1));
  EXPECT_FALSE(attention::writes_delta(Kernel::hopper, 2));
  EXPECT_FALSE(attention::writes_delta(Kernel::general, 1));
}

TEST(AttentionForms, NamesAreRead) {
  for (const AttentionForm form : {AttentionForm::automatic, AttentionForm::simple,
                                   AttentionForm::general, AttentionForm::hopper})
    EXPECT_EQ(parse_form(name_of(form)), form);
  EXPECT_THROW(parse_form("fast"), Error);
}
}  // namespace
}  // namespace weft
