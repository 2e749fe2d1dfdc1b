// SPDX-License-Identifier: MIT
// Kernels named for GPUs that are not there: what a build for them selects.
#include "train/inspect/arch.h"

#include "kernels/attention/select.h"
#include "kernels/forms.h"
#include "src/attention_maps.h"
#include "src/patterns/pattern.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
// What training launches on a GPU (src/ops/attention.cpp), selected by this build.
std::vector<PassKernels> selected(int compute_capability, const PackedMaps& packed, int heads,
                                  Lengths n, const ArchProblem& x) {
  static constexpr int32_t kSomeReach = 1;
  static char base[16];
  std::vector<char> image(packed.bytes());
  const int64_t columns = heads * (2 * x.qk_size + x.v_size);
  const TensorView qkv{base, x.dtype, 3, {x.batch, n.queries, columns}},
      out{base, x.dtype, 3, {x.batch, n.queries, heads * x.v_size}};
  const auto [q, k, v] = packed_heads(qkv, heads, x.qk_size, x.v_size);
  AttentionForward f;
  f.q = q, f.k = k, f.v = v, f.y = heads_of(out, 0, heads, x.v_size);
  f.maps = packed.write(image.data(), image.data());
  for (int p = 0; p < f.maps.passes; ++p)
    if (x.documents && f.maps.pass[p].band) f.maps.pass[p].reaches = &kSomeReach;
  AttentionBackward g = backward_of(f, q, k, v, {}, f.y);
  using namespace attention;
  if (wanted_scratch(g, compute_capability, Scratch::kWhereFaster) > 0) g.scratch.data = base;
  std::vector<PassKernels> kernels;
  for (int p = 0; p < f.maps.passes; ++p)
    kernels.push_back({name_of(select(Problem::of(f), f.maps.pass[p], compute_capability)),
                       name_of(select(Problem::of(g), g.maps.pass[p], compute_capability))});
  return kernels;
}

struct ArchCase {
  PatternSpec spec;
  int64_t n = 0;
};

std::vector<ArchCase> cases() {
  PatternSpec merged{"merged"}, heads{"heads"};
  merged.of = {{"local", 128}, {"strided", 128}};
  heads.of = {{"local", 128}, {"fixed", 64, 16}};
  return {{{"all"}, 1024},          {{"all"}, 4096},
          {{"local", 128}, 1024},   {{"local", 200}, 1024},
          {{"local", 257}, 1000},   {{"local", 500}, 2048},
          {{"local", 700}, 2048},   {{"strided", 8}, 4096},
          {{"strided", 64}, 12288}, {{"strided", 16}, 8192},
          {{"strided", 7}, 1000},   {{"fixed", 128, 32}, 4096},
          {{"fixed", 16, 4}, 333},  {{"local", 4}, 64},
          {merged, 2048},           {heads, 1024}};
}

// On Hopper in builds with code for it; on other GPUs in every build.
TEST(InspectArch, NamesWhatABuildForTheGpuSelects) {
  for (const ArchCase& c : cases())
    for (const int64_t size : {32, 64, 128, 160})
      for (const ArchProblem& x :
           {ArchProblem{DType::bf16, 1, size, size}, ArchProblem{DType::bf16, 16, size, size},
            ArchProblem{DType::f16, 2, size, 64}, ArchProblem{DType::f32, 2, size, size},
            ArchProblem{DType::bf16, 8, size, size, true}}) {
        const auto pattern = make_pattern(c.spec, 4);
        const PackedMaps maps(*pattern, 4, c.n, size);
        SCOPED_TRACE(str(pattern->name(), ", n ", c.n, ", ", name_of(x.dtype), ", head size ", size,
                         ", batch ", x.batch));
        for (const int capability : {80, 89, 90, 100}) {
          if (capability == 90 && !kBuiltForSm90a) continue;
          EXPECT_EQ(kernels_on(capability, maps, 4, c.n, x), selected(capability, maps, 4, c.n, x))
              << capability;
        }
      }
}

// In every build, by the table in kernels/README.md.
TEST(InspectArch, NamesTheKernelsOfHopper) {
  if (!attention::added_kernel(attention::Kernel::hopper))
    GTEST_SKIP() << "the part hopper is left out";
  const auto kernels = [](const PatternSpec& spec, int64_t n, int64_t size, int64_t batch,
                          bool documents = false) {
    const auto pattern = make_pattern(spec, 4);
    const PackedMaps maps(*pattern, 4, n, size);
    return kernels_on(90, maps, 4, n, {DType::bf16, batch, size, size, documents}).at(0);
  };
  const auto both = [](const char* name) { return PassKernels{name, name}; };
  EXPECT_EQ(kernels({"local", 128}, 1024, 64, 1), both("hopper/band"));
  EXPECT_EQ(kernels({"local", 128}, 1024, 64, 1, true), both("hopper/band"));
  EXPECT_EQ(kernels({"local", 128}, 1024, 128, 1), (PassKernels{"hopper/band", "hopper/head128"}));
  EXPECT_EQ(kernels({"local", 200}, 1024, 64, 1), both("hopper/window"));
  EXPECT_EQ(kernels({"local", 200}, 1024, 64, 1, true), both("hopper"));
  EXPECT_EQ(kernels({"strided", 16}, 8192, 64, 1), both("hopper/column"));
  EXPECT_EQ(kernels({"all"}, 2048, 64, 1), (PassKernels{"hopper", "hopper/fused"}));
  EXPECT_EQ(kernels({"all"}, 2048, 64, 17), both("hopper")) << "B H over 64";
  EXPECT_EQ(kernels({"all"}, 1024, 64, 1), both("hopper")) << "fewer than 13 key tiles";
  EXPECT_EQ(kernels({"all"}, 4096, 128, 17), (PassKernels{"hopper", "hopper/fused"}));
  EXPECT_EQ(kernels({"all"}, 1024, 128, 17), both("hopper")) << "fewer than 28 key tiles";
}

TEST(InspectArch, MistakesListWhatWorks) {
  EXPECT_EQ(capability_of("sm_80"), 80);
  EXPECT_EQ(capability_of("sm_90a"), 90);
  for (const char* wrong : {"", "sm_70", "80", "sm_90", "SM_80"}) {
    try {
      capability_of(wrong);
      FAIL() << wrong << " is taken";
    } catch (const Error& e) {
      EXPECT_CONTAINS(e.what(), "--arch: expected sm_80 (A100), sm_86 (");
      EXPECT_CONTAINS(e.what(), str("got '", wrong, "'"));
    }
  }
}
}  // namespace
}  // namespace weft
