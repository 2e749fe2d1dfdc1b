// SPDX-License-Identifier: MIT
// Which CUDA kernel runs a pass of attention. select() is the only place that decides: attention.cu
// launches its answer, and `inspect`, `bench`, the C library and the tests print it.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/forms.h"

#include <string>
#include <string_view>

namespace weft {
const char* name_of(AttentionForm);

namespace attention {
// "automatic", "simple", "general" or "hopper"; anything else throws Error that lists them.
AttentionForm parse_form(std::string_view name);

// The CUDA kernels. All but `simple` take f16 and bf16. Those named hopper take heads of up to 128,
// tiles of 64 and no segments. "Rows" are rows of a column of a Band. select.cpp has every
// condition, and the figures behind it.
enum class Kernel {
  simple,               // simple/: every case, in f32
  general,              // ampere/: tiles of 64, heads up to 128
  general_small_tiles,  // tiles of 16, heads up to 256
  // hopper/: any tiles; backward as two kernels, query-stationary and key-stationary
  hopper,
  // hopper/fused: the backward pass as one kernel, heads up to 64, or queries and keys of 65 to
  // 128; for a problem of one pass that brings scratch memory
  hopper_fused,
  // hopper/band/forward, backward: a Band of reach 128 at most, or of 128 rows at most
  hopper_band,
  // hopper/band/head128_backward: the same backward for queries and keys of 65 to 128
  hopper_head128,
  // hopper/band/window_*: a Band of reach 129 to 257, first pass, heads up to 64, no documents
  // (AttentionPass::reaches)
  hopper_window,
  // hopper/band/column_*: at least 64 columns of 129 to 1,024 rows, each seen whole, no documents;
  // backward heads up to 64. Forward also takes windows of up to 512 rows for heads up to 64.
  hopper_column
};
constexpr int kKernels = 9;
const char* name_of(Kernel);

// How a kernel is launched. Null: it lacks that pass, or the build has no CUDA.
struct KernelLaunchers {
  void (*forward)(CudaQueue&, const AttentionForward&, const AttentionPass&) = nullptr;
  void (*backward)(CudaQueue&, const AttentionBackward&, const AttentionPass&) = nullptr;
};

// `simple` and `general` are always there. A part brings others when it registers. Without
// general_small_tiles, tables have tiles of kTile alone, and `simple` takes heads above 128.
void add_kernel(Kernel, const KernelLaunchers&);
// What a part brought for `kernel`; null: nothing.
const KernelLaunchers* added_kernel(Kernel kernel);

// What the choice depends on besides the pass and the GPU.
struct Problem {
  AttentionForm form = AttentionForm::automatic;  // the form that is asked for
  DType dtype = DType::f32;
  int64_t batch = 1, heads = 1, time = 0, qk_size = 0, v_size = 0;
  bool segments = false, backward = false;
  bool only_pass = true;               // there is no other pass
  bool scratch = false;                // AttentionBackward::scratch is there
  bool tma = true, tma_inputs = true;  // TMA takes the strides of all tensors; of q, k, v and dy

  static Problem of(const AttentionForward&);
  static Problem of(const AttentionBackward&);
};

// The kernel that runs a pass on a GPU of compute capability 80, 90, ...: the fastest of the form
// that is asked for, or of all. Throws Error where that form does not cover the case: it names what
// the form lacks (GPU, element type, edge of the tiles, head size, segments) and the forms that
// work. built_for_sm90a: whether there is machine code for Hopper, which another build may have.
Kernel select(const Problem&, const AttentionPass&, int compute_capability,
              bool built_for_sm90a = kBuiltForSm90a);
// The same on a Hopper GPU and in a build for it, for tiles of 64 or a band.
Kernel hopper_kernel(const Problem&, const AttentionPass&);

// Backward: elements of scratch that the kernel needs for a pass; 0: none.
int64_t scratch_of(Kernel, const Problem&, const AttentionPass&);
// Elements of scratch with which the passes of g run at their fastest. kWhereFaster: no more than
// select() says is worth it. kWhereUsed: whatever a kernel takes, as tests want it.
enum class Scratch { kWhereFaster, kWhereUsed };
int64_t wanted_scratch(const AttentionBackward&, int compute_capability, Scratch,
                       bool built_for_sm90a = kBuiltForSm90a);
// Whether the first backward pass writes AttentionBackward::delta; else a kernel before it does.
bool writes_delta(Kernel first, int passes);

// The kernels of all passes: "hopper/band + general", or where directions differ "hopper; backward
// ...".
std::string kernels_text(const AttentionForward&, const AttentionBackward&, int compute_capability);

// Key tiles of a residue column, at most, and those of which hopper/column keeps dQ without
// scratch.
inline constexpr int kTilesOfColumn = 16, kTilesInRegisters = 4;
}  // namespace attention
}  // namespace weft
