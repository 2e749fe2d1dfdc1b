// SPDX-License-Identifier: MIT
// weft::eager: attention of PyTorch's tensors and its gradient in C++, for calls that nothing
// traces. The library is reached through addresses, so that this file links PyTorch alone.
#include "src/capi/weft_attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <array>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <string>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/library.h>
#include <tuple>
#include <vector>

namespace {
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kAlignment = 16;  // bytes, of CUDA rows
constexpr int kAxes = 4;            // batch, time, heads, size
constexpr const char* kTwice =
    "weft_attention has no second derivatives: its gradient cannot be differentiated";

// What a call needs besides tensors.
struct How {
  int64_t plan;       // address of a weft_attention_plan
  int64_t functions;  // address of a Functions
  bool heads_first;   // layout "bhtd"
  double scale;
};

// Of the library that Python loaded.
struct Functions {
  decltype(&weft_attention_forward) forward;
  decltype(&weft_attention_backward) backward;
  decltype(&weft_attention_workspace_size) workspace_size;
  decltype(&weft_last_error) last_error;
};

const Functions& functions(const How& how) {
  return *reinterpret_cast<const Functions*>(how.functions);
}

const weft_attention_plan* plan(const How& how) {
  return reinterpret_cast<const weft_attention_plan*>(how.plan);
}

void check(weft_status status, const How& how) {
  if (status == WEFT_OK) return;
  const std::string text = functions(how).last_error();
  TORCH_CHECK_VALUE(status != WEFT_INVALID_ARGUMENT && status != WEFT_UNSUPPORTED, text);
  TORCH_CHECK_WITH(OutOfMemoryError, status != WEFT_OUT_OF_MEMORY, text);
  TORCH_CHECK(false, text);
}

// Position of an axis of (batch, time, heads, size) in the tensor.
int axis(int of, bool heads_first) { return heads_first && (of == 1 || of == 2) ? 3 - of : of; }

// x, or a copy of it where the library could not read x in place.
Tensor readable(const Tensor& x) {
  const int64_t step = x.is_cuda() ? kAlignment / x.element_size() : 1;
  bool fits = x.stride(3) == 1 || x.size(3) == 1;
  for (int a = 0; a < 3; ++a) fits &= x.stride(a) % step == 0 || x.size(a) <= 1;
  if (x.is_cuda()) fits &= reinterpret_cast<uintptr_t>(x.data_ptr()) % kAlignment == 0;
  return fits ? x : x.clone(at::MemoryFormat::Contiguous);
}

template <class View>
View view(const Tensor& x, bool heads_first) {
  return {x.data_ptr(), x.stride(0), x.stride(axis(1, heads_first)),
          x.stride(axis(2, heads_first))};
}

// Memory as (batch, time, heads, size), of the type of `like`.
Tensor result(const Tensor& like, int64_t size, bool heads_first) {
  const std::array<int64_t, kAxes> shape = {like.size(0), like.size(axis(1, heads_first)),
                                            like.size(axis(2, heads_first)), size};
  const Tensor x = at::empty(shape, like.options());
  return heads_first ? x.transpose(1, 2) : x;
}

int32_t dtype_of(const Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat: return WEFT_F32;
    case at::kHalf: return WEFT_F16;
    case at::kBFloat16: return WEFT_BF16;
    case at::kDouble: return WEFT_F64;
    default: TORCH_CHECK_VALUE(false, "weft::eager: q is ", x.scalar_type());
  }
}

void* stream_of(const Tensor& x) {
  if (!x.is_cuda()) return nullptr;
  const c10::impl::VirtualGuardImpl device(x.device().type());
  return device.getStream(x.device()).native_handle();
}

// What both passes read.
template <class Args>
Args arguments(const How& how, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lse,
               const OptionalTensor& q_segments, const OptionalTensor& k_segments) {
  Args a = {};
  a.size = sizeof(a);
  a.batch = q.size(0);
  a.dtype = dtype_of(q);
  a.scale = how.scale;
  a.q = view<weft_input>(q, how.heads_first);
  a.k = view<weft_input>(k, how.heads_first);
  a.v = view<weft_input>(v, how.heads_first);
  a.lse = lse.data_ptr();
  if (q_segments) a.q_segments = static_cast<const int32_t*>(q_segments->data_ptr());
  if (k_segments) a.k_segments = static_cast<const int32_t*>(k_segments->data_ptr());
  a.stream = stream_of(q);
  return a;
}

std::tuple<Tensor, Tensor> forward(const Tensor& q_given, const Tensor& k_given,
                                   const Tensor& v_given, const How& how,
                                   const OptionalTensor& q_segments,
                                   const OptionalTensor& k_segments) {
  const bool heads_first = how.heads_first;
  const Tensor q = readable(q_given), k = readable(k_given), v = readable(v_given);
  Tensor o = result(q, v.size(3), heads_first);
  Tensor lse =
      at::empty({q.size(0), q.size(axis(2, heads_first)), q.size(axis(1, heads_first))},
                q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
  auto a = arguments<weft_forward_args>(how, q, k, v, lse, q_segments, k_segments);
  a.o = view<weft_output>(o, heads_first);
  check(functions(how).forward(plan(how), &a), how);
  return {o, lse};
}

variable_list backward(const Tensor& d_o_given, const variable_list& saved, const How& how) {
  const bool heads_first = how.heads_first;
  const Tensor q = readable(saved[0]), k = readable(saved[1]), v = readable(saved[2]),
               o = readable(saved[3]), lse = saved[4].contiguous(), d_o = readable(d_o_given);
  const auto segments = [&](int i) {
    return saved[i].defined() ? OptionalTensor(saved[i]) : std::nullopt;
  };
  auto a = arguments<weft_backward_args>(how, q, k, v, lse, segments(5), segments(6));
  check(functions(how).workspace_size(plan(how), a.batch, a.dtype, &a.workspace_bytes), how);
  const Tensor scratch =
      at::empty({static_cast<int64_t>(a.workspace_bytes)}, q.options().dtype(at::kByte));
  variable_list gradients;
  for (const Tensor* x : {&q, &k, &v}) gradients.push_back(result(*x, x->size(3), heads_first));
  a.workspace = scratch.data_ptr();
  a.o = view<weft_input>(o, heads_first);
  a.d_o = view<weft_input>(d_o, heads_first);
  a.dq = view<weft_output>(gradients[0], heads_first);
  a.dk = view<weft_output>(gradients[1], heads_first);
  a.dv = view<weft_output>(gradients[2], heads_first);
  check(functions(how).backward(plan(how), &a), how);
  return gradients;
}

// Gradients that raise an error where they are differentiated.
variable_list once(variable_list gradients) {
  for (Tensor& x : gradients) x.requires_grad_();
  const auto refuses = std::make_shared<torch::autograd::DelayedError>(
      kTwice, static_cast<int64_t>(gradients.size()));
  return (*refuses)(std::move(gradients));
}

struct Eager : torch::autograd::Function<Eager> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        int64_t plan, int64_t functions, bool heads_first, double scale,
                        const OptionalTensor& q_segments, const OptionalTensor& k_segments) {
    const How how = {plan, functions, heads_first, scale};
    const auto [o, lse] = ::forward(q, k, v, how, q_segments, k_segments);
    ctx->save_for_backward(
        {q, k, v, o, lse, q_segments.value_or(Tensor()), k_segments.value_or(Tensor())});
    ctx->saved_data["plan"] = plan;
    ctx->saved_data["functions"] = functions;
    ctx->saved_data["heads_first"] = heads_first;
    ctx->saved_data["scale"] = scale;
    return o;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& d_o) {
    auto& data = ctx->saved_data;
    const How how = {data["plan"].toInt(), data["functions"].toInt(), data["heads_first"].toBool(),
                     data["scale"].toDouble()};
    variable_list gradients = [&] {
      const at::NoGradGuard none;
      return ::backward(d_o[0], ctx->get_saved_variables(), how);
    }();
    if (at::GradMode::is_enabled()) gradients = once(std::move(gradients));
    gradients.resize(9);
    return gradients;
  }
};

Tensor eager(const Tensor& q, const Tensor& k, const Tensor& v, int64_t plan, int64_t functions,
             bool heads_first, double scale, const OptionalTensor& q_segments,
             const OptionalTensor& k_segments) {
  if (at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad()))
    return Eager::apply(q, k, v, plan, functions, heads_first, scale, q_segments, k_segments);
  const at::NoGradGuard none;
  return std::get<0>(
      forward(q, k, v, {plan, functions, heads_first, scale}, q_segments, k_segments));
}
}  // namespace

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "eager(Tensor q, Tensor k, Tensor v, int plan, int functions, bool heads_first, float scale,"
      " Tensor? q_segments, Tensor? k_segments) -> Tensor",
      torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(eager)));
}
