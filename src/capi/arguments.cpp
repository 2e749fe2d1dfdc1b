// SPDX-License-Identifier: MIT
// The arguments of a launch: what a kernel could stumble over is refused here, by name.
#include "src/capi/handles.h"
#include "src/patterns/pattern.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace weft::capi {
namespace {
constexpr int64_t kLargest = int64_t{1} << 60;  // bytes a tensor may span
constexpr std::uintptr_t kCudaAlignment = 16;

// a * b * c, or an error: sizes of buffers.
int64_t product(const char* name, int64_t a, int64_t b, int64_t c) {
  __int128 p = static_cast<__int128>(a) * b;
  require(p <= kLargest, name, " is too large: ", a, " * ", b, " rows");
  p *= c;
  require(p <= kLargest, name, " is too large: ", a, " * ", b, " * ", c);
  return static_cast<int64_t>(p);
}

// One axis of a tensor: how many, and how far apart.
struct Axis {
  const char* name;
  int64_t count, stride;
};

class Checker {
 public:
  Checker(const weft_attention_plan& plan, int64_t batch, int32_t dtype)
      : plan_(plan),
        batch_(batch),
        dtype_(checked_dtype(plan, dtype)) {
    require(batch >= 0 && batch <= kMaxPositions, "batch must be 0 to ", kMaxPositions, ", got ",
            batch);
  }

  DType dtype() const { return dtype_; }

  HeadsView input(const char* name, const weft_input& x, bool queries, int64_t size) const {
    const int64_t time = queries ? plan_.n.queries : plan_.n.keys, bytes = size_of(dtype_);
    const bool cuda = plan_.backend->is_cuda();
    pointer(name, x.data, cuda ? kCudaAlignment : static_cast<std::uintptr_t>(bytes));
    __int128 span = size;
    for (const Axis& axis :
         {Axis{"batch", batch_, x.batch_stride}, Axis{"time", time, x.time_stride},
          Axis{"head", plan_.heads, x.head_stride}}) {
      require(axis.stride >= 0, name, ".", axis.name, "_stride must not be negative, got ",
              axis.stride);
      require(axis.stride <= kLargest / bytes, name, ".", axis.name,
              "_stride is too large: ", axis.stride);
      require(!cuda || axis.stride * bytes % static_cast<int64_t>(kCudaAlignment) == 0 ||
                  axis.count <= 1,
              name, ".", axis.name, "_stride must be a multiple of 16 bytes on CUDA, got ",
              axis.stride, " elements of ", bytes, " bytes");
      if (axis.count > 1) span += static_cast<__int128>(axis.count - 1) * axis.stride;
    }
    require(span <= kLargest / bytes, name, " is too large: its strides span more than 2^60 bytes");
    // The stride of an axis with one entry is never used: kernels are given one that they take.
    return {const_cast<void*>(x.data),
            dtype_,
            batch_,
            time,
            plan_.heads,
            size,
            batch_ > 1 ? x.batch_stride : 0,
            time > 1 ? x.time_stride : 0,
            plan_.heads > 1 ? x.head_stride : 0};
  }

  HeadsView output(const char* name, const weft_output& x, bool queries, int64_t size) const {
    const weft_input same{x.data, x.batch_stride, x.time_stride, x.head_stride};
    const HeadsView view = input(name, same, queries, size);
    check_apart(name, view);
    return view;
  }

  // (batch, heads, n_q) contiguous.
  TensorView rows(const char* name, const void* data) const {
    const DType type = wide(dtype_);
    pointer(name, data, static_cast<std::uintptr_t>(size_of(type)));
    product(name, batch_, plan_.heads, plan_.n.queries * size_of(type));
    return {const_cast<void*>(data), type, 3, {batch_, plan_.heads, plan_.n.queries}};
  }

  Segments segments(const int32_t* queries, const int32_t* keys) const {
    require((queries == nullptr) == (keys == nullptr), queries ? "k_segments" : "q_segments",
            " is NULL and the other is not: both or neither");
    if (!queries) return {};
    pointer("q_segments", queries, sizeof(int32_t));
    pointer("k_segments", keys, sizeof(int32_t));
    return {{const_cast<int32_t*>(queries), DType::i32, 2, {batch_, plan_.n.queries}},
            {const_cast<int32_t*>(keys), DType::i32, 2, {batch_, plan_.n.keys}}};
  }

  AttentionForm form(int32_t form, bool segments) const {
    const attention::Problem problem = problem_of(plan_, dtype_, checked_form(form), segments);
    for (int p = 0; p < plan_.maps.passes; ++p)
      static_cast<void>(plan_.backend->kernel_name(problem, plan_.maps.pass[p]));
    return problem.form;
  }

  double scale(double scale) const {
    require(scale >= 0 && scale <= std::numeric_limits<float>::max(),
            "scale must be positive and finite, or 0 for 1 / sqrt(d_qk), got ", scale);
    return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(plan_.d_qk));
  }

  void pointer(const char* name, const void* data, std::uintptr_t alignment) const {
    if (batch_ == 0) return;
    require(data != nullptr, name, " is NULL");
    require(reinterpret_cast<std::uintptr_t>(data) % alignment == 0, name, " must be aligned to ",
            alignment, " bytes, got ", data);
    plan_.backend->check_memory(name, data);
  }

 private:
  // Rows of an output do not share elements: each axis, the finest first, steps over all that is
  // below it.
  static void check_apart(const char* name, const HeadsView& x) {
    std::array<Axis, 3> axes = {Axis{"batch", x.batch, x.batch_stride},
                                Axis{"time", x.time, x.time_stride},
                                Axis{"head", x.heads, x.head_stride}};
    std::ranges::sort(axes, {}, &Axis::stride);
    int64_t below = x.size;
    for (const Axis& axis : axes) {
      if (axis.count <= 1) continue;
      require(axis.stride >= below, name, ".", axis.name, "_stride is ", axis.stride,
              ": its rows overlap, it must be at least ", below);
      below = axis.stride * (axis.count - 1) + below;
    }
  }

  const weft_attention_plan& plan_;
  const int64_t batch_;
  const DType dtype_;
};

struct NamedView {
  const char* name;
  const void* data;
};

void check_distinct(std::initializer_list<NamedView> outputs,
                    std::initializer_list<NamedView> inputs) {
  for (const NamedView& out : outputs) {
    for (const NamedView& in : inputs)
      require(!out.data || out.data != in.data, out.name, " must not be the memory of ", in.name);
    for (const NamedView& other : outputs)
      require(&other == &out || !out.data || out.data != other.data, out.name,
              " must not be the memory of ", other.name);
  }
}

// What both passes read.
template <class Args, class Kernel>
void set_shared(const Checker& check, const weft_attention_plan& plan, const Args& a, Kernel& k) {
  k.q = check.input("q", a.q, true, plan.d_qk);
  k.k = check.input("k", a.k, false, plan.d_qk);
  k.v = check.input("v", a.v, false, plan.d_v);
  k.lse = check.rows("lse", a.lse);
  k.maps = plan.maps;
  k.segments = check.segments(a.q_segments, a.k_segments);
  k.form = check.form(a.form, static_cast<bool>(k.segments));
  k.scale = check.scale(a.scale);
}
}  // namespace

DType checked_dtype(const weft_attention_plan& plan, int32_t dtype) {
  require(dtype >= WEFT_F32 && dtype <= WEFT_F64,
          "dtype must be WEFT_F32, WEFT_F16, WEFT_BF16 or WEFT_F64, got ", dtype);
  if (dtype == WEFT_F64 && plan.backend->is_cuda())
    unsupported("dtype: WEFT_F64 runs on the CPU only");
  constexpr std::array kTypes = {DType::f32, DType::f16, DType::bf16, DType::f64};
  return kTypes[dtype - WEFT_F32];
}

AttentionForm checked_form(int32_t form) {
  require(form >= WEFT_AUTOMATIC && form <= WEFT_HOPPER,
          "form must be WEFT_AUTOMATIC, WEFT_SIMPLE, WEFT_GENERAL or WEFT_HOPPER, got ", form);
  constexpr std::array kForms = {AttentionForm::automatic, AttentionForm::simple,
                                 AttentionForm::general, AttentionForm::hopper};
  return kForms[form];
}

std::size_t workspace_bytes(const weft_attention_plan& plan, int64_t batch, DType dtype) {
  require(batch >= 0 && batch <= kMaxPositions, "batch must be 0 to ", kMaxPositions, ", got ",
          batch);
  return static_cast<std::size_t>(
      product("batch", batch, plan.heads, plan.n.queries * size_of(wide(dtype))));
}

AttentionForward checked_forward(const weft_attention_plan& plan, const weft_forward_args& a) {
  const Checker check(plan, a.batch, a.dtype);
  AttentionForward f;
  set_shared(check, plan, a, f);
  f.y = check.output("o", a.o, true, plan.d_v);
  check_distinct({{"o", a.o.data}, {"lse", a.lse}},
                 {{"q", a.q.data}, {"k", a.k.data}, {"v", a.v.data}});
  return f;
}

AttentionBackward checked_backward(const weft_attention_plan& plan, const weft_backward_args& a) {
  const Checker check(plan, a.batch, a.dtype);
  AttentionBackward g;
  set_shared(check, plan, a, g);
  g.y = check.input("o", a.o, true, plan.d_v);
  g.dy = check.input("d_o", a.d_o, true, plan.d_v);
  g.dq = check.output("dq", a.dq, true, plan.d_qk);
  g.dk = check.output("dk", a.dk, false, plan.d_qk);
  g.dv = check.output("dv", a.dv, false, plan.d_v);
  const std::size_t needed = workspace_bytes(plan, a.batch, check.dtype());
  require(a.workspace_bytes >= needed, "workspace_bytes is ", a.workspace_bytes, ", ", needed,
          " are needed: weft_attention_workspace_size()");
  check.pointer("workspace", a.workspace, kCudaAlignment);
  g.delta = check.rows("workspace", a.workspace);
  const NamedView q{"q", a.q.data}, k{"k", a.k.data}, v{"v", a.v.data}, o{"o", a.o.data};
  check_distinct(
      {{"dq", a.dq.data}, {"dk", a.dk.data}, {"dv", a.dv.data}, {"workspace", a.workspace}},
      {q, k, v, o, {"d_o", a.d_o.data}, {"lse", a.lse}});
  return g;
}
}  // namespace weft::capi
