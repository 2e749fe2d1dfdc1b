// SPDX-License-Identifier: MIT
// A few hundred cases of `selftest`, and what it says of patterns and kernels that are wrong.
#include "src/device.h"
#include "src/patterns/pattern.h"
#include "tests/cases/random_case.h"
#include "tests/temp_dir.h"

#include <gtest/gtest.h>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
void expect_cases_pass(const std::string& name, int64_t cases) {
  const std::unique_ptr<Device> device = make_device(name);
  std::ostringstream notes;
  Progress progress(notes, false);
  SelftestOptions options;
  options.cases = cases;
  options.minutes = 60;
  const SelftestResult result = run_selftest(*device, options, progress);
  EXPECT_EQ(result.cases, cases);
  for (const std::string& failure : result.failures) ADD_FAILURE() << failure;
  for (const PatternKind& kind : patterns())
    EXPECT_TRUE(kind.dynamic || result.ran.contains(kind.kind)) << kind.kind;
}

TEST(Selftest, RandomCasesAgree) { expect_cases_pass("cpu", 250); }
#ifdef WEFT_CUDA
TEST(CudaSelftest, RandomCasesAgree) { expect_cases_pass("cuda", 400); }

TEST(CudaSelftest, RunsTheFormThatIsAskedFor) {
  const std::unique_ptr<Device> device = make_device("cuda");
  std::ostringstream notes;
  Progress progress(notes, false);
  SelftestOptions options;
  options.cases = 40;
  options.form = "general";
  const SelftestResult result = run_selftest(*device, options, progress);
  for (const std::string& failure : result.failures) ADD_FAILURE() << failure;
  EXPECT_EQ(result.ran.at("general"), 40);
  EXPECT_EQ(result.ran.count("simple") + result.ran.count("hopper") + result.ran.count("f32"), 0u);
}
#endif

// local(5), with one thing said wrongly.
struct Wrong : AttentionPattern {
  std::unique_ptr<AttentionPattern> right = make_pattern({.kind = "local", .stride = 5}, 1);
  bool runs = false, predicate = false, causality = false;

  std::string name() const override { return "wrong"; }

  bool causal() const override { return true; }

  bool attends(int head, int64_t i, int64_t j) const override {
    if (causality && i == 3 && j == 4) return true;
    return !(predicate && i == 17 && j == 15) && right->attends(head, i, j);
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& out) const override {
    right->key_runs(head, i, out);
    if (runs && i == 9) out.push_back({7, 8, 1});
    if (causality && i == 3) out.push_back({4, 5, 1});
  }
};

SelftestCase case_of(std::unique_ptr<AttentionPattern> pattern) {
  SelftestCase c;
  c.pattern = std::move(pattern);
  c.size = {1, 40, 1, 8, 8};
  return c;
}

TEST(Selftest, NamesWhatDisagrees) {
  const auto wrong = [](bool Wrong::*what) {
    auto pattern = std::make_unique<Wrong>();
    pattern.get()->*what = true;
    return case_of(std::move(pattern));
  };
  EXPECT_CONTAINS(error_of([&] { check_enumeration(wrong(&Wrong::runs)); }),
                  "pair (9, 7) is there twice");
  EXPECT_CONTAINS(error_of([&] { check_enumeration(wrong(&Wrong::predicate)); }),
                  "query 17 has key 15");
  EXPECT_CONTAINS(error_of([&] { check_enumeration(wrong(&Wrong::causality)); }),
                  "query 3 sees key 4");
  EXPECT_CONTAINS(error_of([&] { check_tile_maps(wrong(&Wrong::predicate)); }), "tiles of queries");
  EXPECT_EQ(error_of([&] { check_enumeration(case_of(std::make_unique<Wrong>())); }), "");
  // A kernel that computes something else than the definition: the tables know what the predicate
  // does not.
  const std::unique_ptr<Device> cpu = make_device("cpu");
  EXPECT_CONTAINS(error_of([&] { check_case(*cpu, wrong(&Wrong::predicate)); }), "has key 15");
}

TEST(Selftest, SaysWhichCaseFailedAndRunsItAlone) {
  std::ostringstream out, notes;
  Progress progress(notes, false);
  SelftestOptions options;
  options.device = "cpu";
  options.only = 7;
  selftest(options, out, progress);
  EXPECT_CONTAINS(out.str(), "selftest passed on CPU");
  EXPECT_CONTAINS(out.str(), ": 1 cases");
  EXPECT_CONTAINS(notes.str(), "case 7: ");
  options.form = "hopper";
  EXPECT_CONTAINS(error_of([&] { selftest(options, out, progress); }),
                  "--form hopper: cpu has no CUDA kernels");
  options.form = "hoper";
  EXPECT_CONTAINS(error_of([&] { selftest(options, out, progress); }), "hoper");
  options.device = "cuda:99";
  EXPECT_NE(error_of([&] { selftest(options, out, progress); }), "");
}
}  // namespace
}  // namespace weft
