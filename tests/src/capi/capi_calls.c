// SPDX-License-Identifier: MIT
// The C library as a C99 program uses and misuses it.
#include "tests/src/capi/capi_calls.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { B = 2, NQ = 3, NK = 3, H = 2, D = 8 };
typedef float tensor[B * NQ * H * D];

static void tell(const weft_call_report* to, const char* call, weft_status got, weft_status want,
                 const char* word) {
  to->report(to->user, call, got, want, weft_last_error(), word);
}

static weft_pattern_spec spec_of(const char* kind) {
  weft_pattern_spec spec;
  weft_pattern_spec_init(&spec, sizeof spec);
  spec.kind = kind;
  return spec;
}

#define BAD_PATTERN(want, word, change)                                         \
  do {                                                                          \
    weft_pattern_spec spec = spec_of("fixed");                                  \
    weft_pattern* pattern = NULL;                                               \
    int32_t heads = H;                                                          \
    change;                                                                     \
    tell(to, #change, weft_pattern_create(&spec, heads, &pattern), want, word); \
    weft_pattern_destroy(pattern);                                              \
  } while (0)

void weft_call_bad_patterns(const weft_call_report* to) {
  weft_pattern_spec good = spec_of("all"), cycle = spec_of("merged");
  const weft_pattern_spec* children[] = {&cycle, &good};
  const weft_pattern_spec* absent[] = {NULL};
  weft_pattern* pattern = NULL;
  uint8_t mask[9];
  cycle.of = children;
  cycle.of_count = 2;

  tell(to, "spec NULL", weft_pattern_create(NULL, H, &pattern), WEFT_INVALID_ARGUMENT, "spec is NULL");
  tell(to, "pattern NULL", weft_pattern_create(&good, H, NULL), WEFT_INVALID_ARGUMENT, "pattern is NULL");
  tell(to, "init NULL", weft_pattern_spec_init(NULL, sizeof good), WEFT_INVALID_ARGUMENT, "spec is NULL");
  tell(to, "init size", weft_pattern_spec_init(&cycle, 8), WEFT_INVALID_ARGUMENT, "sizeof");
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "spec.size", spec.size = 0);
  BAD_PATTERN(WEFT_UNSUPPORTED, "newer version", spec.size += 8);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "spec.kind is NULL", spec.kind = NULL);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "did you mean 'fixed'", spec.kind = "fxied");
  BAD_PATTERN(WEFT_UNSUPPORTED, "weft_pattern_create_layout", spec.kind = "layout");
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "stride", spec.stride = 0);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "stride", spec.stride = INT64_MIN);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "stride", spec.stride = INT64_MAX);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "c", spec.c = INT64_MAX);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "num_verts", spec.num_verts = -1);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "heads", heads = 0);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "heads", heads = -3);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "heads", heads = INT32_MAX);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "spec.documents is NULL", spec.documents_count = 2);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "spec.globals_count", spec.globals_count = SIZE_MAX);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "spec.of is NULL", spec.of_count = 1);
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "spec.of[0] is NULL", (spec.of = absent, spec.of_count = 1));
  BAD_PATTERN(WEFT_INVALID_ARGUMENT, "nested",
              (spec = spec_of("merged"), spec.of = children, spec.of_count = 2));

  tell(to, "mask of nothing", weft_pattern_mask(NULL, 0, 3, 3, mask), WEFT_INVALID_ARGUMENT,
       "pattern is NULL");
  weft_pattern_create(&good, H, &pattern);
  tell(to, "mask head", weft_pattern_mask(pattern, H, 3, 3, mask), WEFT_INVALID_ARGUMENT, "head must be");
  tell(to, "mask n_q", weft_pattern_mask(pattern, 0, -1, 3, mask), WEFT_INVALID_ARGUMENT, "n_q must be");
  tell(to, "mask n_k", weft_pattern_mask(pattern, 0, 3, 0, mask), WEFT_INVALID_ARGUMENT, "n_k must be");
  tell(to, "mask NULL", weft_pattern_mask(pattern, 0, 3, 3, NULL), WEFT_INVALID_ARGUMENT, "mask is NULL");
  weft_pattern_destroy(pattern);
  weft_pattern_destroy(NULL);
}

#define BAD_LAYOUT(want, word, change)                                               \
  do {                                                                               \
    uint8_t active[4] = {1, 0, 1, 1};                                                \
    weft_layout layout = {sizeof layout, NULL, 1, 2, 2, 8, 0, NULL, NULL};           \
    weft_pattern* pattern = NULL;                                                    \
    layout.active = active;                                                          \
    change;                                                                          \
    tell(to, #change, weft_pattern_create_layout(&layout, H, &pattern), want, word); \
    weft_pattern_destroy(pattern);                                                   \
  } while (0)

void weft_call_bad_layouts(const weft_call_report* to) {
  weft_pattern* pattern = NULL;
  weft_attention_plan* plan = NULL;
  uint8_t one = 1;
  weft_layout good = {sizeof good, NULL, 1, 1, 1, 8, 0, NULL, NULL};
  good.active = &one;
  tell(to, "layout NULL", weft_pattern_create_layout(NULL, H, &pattern), WEFT_INVALID_ARGUMENT,
       "layout is NULL");
  tell(to, "out NULL", weft_pattern_create_layout(&good, H, NULL), WEFT_INVALID_ARGUMENT, "pattern is NULL");
  BAD_LAYOUT(WEFT_INVALID_ARGUMENT, "layout.size", layout.size = 1);
  BAD_LAYOUT(WEFT_INVALID_ARGUMENT, "layout.active is NULL", layout.active = NULL);
  BAD_LAYOUT(WEFT_INVALID_ARGUMENT, "layout.block", layout.block = 7);
  BAD_LAYOUT(WEFT_INVALID_ARGUMENT, "layout.heads", layout.heads = 3);
  BAD_LAYOUT(WEFT_INVALID_ARGUMENT, "layout.q_blocks", layout.q_blocks = -1);
  BAD_LAYOUT(WEFT_INVALID_ARGUMENT, "layout.k_blocks", layout.k_blocks = INT64_MAX);
  BAD_LAYOUT(WEFT_INVALID_ARGUMENT, "2^40", (layout.q_blocks = 1 << 27, layout.k_blocks = 1 << 27));
  BAD_LAYOUT(WEFT_INVALID_ARGUMENT, "7", active[2] = 7);
  weft_pattern_create_layout(&good, H, &pattern);
  tell(to, "n_q", weft_attention_plan_create(pattern, 9, 8, D, D, WEFT_CPU, &plan), WEFT_INVALID_ARGUMENT,
       "n_q is 9");
  tell(to, "n_k", weft_attention_plan_create(pattern, 8, 9, D, D, WEFT_CPU, &plan), WEFT_INVALID_ARGUMENT,
       "n_k is 9");
  weft_pattern_destroy(pattern);
}

#define BAD_PLAN(want, word, n_q, n_k, d_qk, d_v, device)            \
  tell(to, "plan " #n_q ", " #n_k ", " #d_qk ", " #d_v ", " #device, \
       weft_attention_plan_create(pattern, n_q, n_k, d_qk, d_v, device, &plan), want, word)

void weft_call_bad_plans(const weft_call_report* to) {
  weft_pattern_spec all = spec_of("all");
  weft_pattern* pattern = NULL;
  weft_attention_plan* plan = NULL;
  weft_plan_info info = {0};
  const char* name = NULL;
  size_t bytes = 0;
  weft_pattern_create(&all, H, &pattern);
  BAD_PLAN(WEFT_INVALID_ARGUMENT, "n_q must be", 0, 3, D, D, WEFT_CPU);
  BAD_PLAN(WEFT_INVALID_ARGUMENT, "n_q must be", -5, 3, D, D, WEFT_CPU);
  BAD_PLAN(WEFT_INVALID_ARGUMENT, "n_k must be", 3, INT64_MAX, D, D, WEFT_CPU);
  BAD_PLAN(WEFT_INVALID_ARGUMENT, "n_k must be", 3, INT64_MIN, D, D, WEFT_CPU);
  BAD_PLAN(WEFT_OUT_OF_MEMORY, "n_q, n_k", 1 << 30, 1 << 30, D, D, WEFT_CPU);
  BAD_PLAN(WEFT_INVALID_ARGUMENT, "d_qk must be", 3, 3, 0, D, WEFT_CPU);
  BAD_PLAN(WEFT_INVALID_ARGUMENT, "d_v must be", 3, 3, D, INT64_MAX, WEFT_CPU);
  BAD_PLAN(WEFT_INVALID_ARGUMENT, "device", 3, 3, D, D, -2);
  BAD_PLAN(WEFT_UNSUPPORTED, "nearest is 16", 3, 3, 9, D, 0);
  BAD_PLAN(WEFT_UNSUPPORTED, "nearest is 256", 3, 3, D, 264, 0);
  tell(to, "no pattern", weft_attention_plan_create(NULL, 3, 3, D, D, WEFT_CPU, &plan), WEFT_INVALID_ARGUMENT,
       "pattern is NULL");
  tell(to, "no place", weft_attention_plan_create(pattern, 3, 3, D, D, WEFT_CPU, NULL), WEFT_INVALID_ARGUMENT,
       "plan is NULL");
  tell(to, "info", weft_attention_plan_info(NULL, &info), WEFT_INVALID_ARGUMENT, "plan is NULL");
  tell(to, "form", weft_attention_plan_form(NULL, WEFT_F32, 0, 0, &name), WEFT_INVALID_ARGUMENT,
       "plan is NULL");
  tell(to, "workspace", weft_attention_workspace_size(NULL, 1, WEFT_F32, &bytes), WEFT_INVALID_ARGUMENT,
       "plan is NULL");
  weft_attention_plan_create(pattern, NQ, NK, D, D, WEFT_CPU, &plan);
  tell(to, "info NULL", weft_attention_plan_info(plan, NULL), WEFT_INVALID_ARGUMENT, "info is NULL");
  tell(to, "info.size", weft_attention_plan_info(plan, &info), WEFT_INVALID_ARGUMENT, "info.size");
  tell(to, "name NULL", weft_attention_plan_form(plan, WEFT_F32, 0, 0, NULL), WEFT_INVALID_ARGUMENT,
       "name is NULL");
  tell(to, "hopper", weft_attention_plan_form(plan, WEFT_F32, WEFT_HOPPER, 0, &name), WEFT_UNSUPPORTED,
       "form");
  tell(to, "bytes NULL", weft_attention_workspace_size(plan, 1, WEFT_F32, NULL), WEFT_INVALID_ARGUMENT,
       "bytes is NULL");
  tell(to, "batch", weft_attention_workspace_size(plan, -1, WEFT_F32, &bytes), WEFT_INVALID_ARGUMENT,
       "batch");
  tell(to, "dtype", weft_attention_workspace_size(plan, 1, 0, &bytes), WEFT_INVALID_ARGUMENT, "dtype");
  weft_attention_plan_destroy(plan);
  weft_attention_plan_destroy(NULL);
  weft_pattern_destroy(pattern);
}

// Buffers of a right call, aligned for every check.
typedef struct buffers {
  tensor q, k, v, o, d_o, dq, dk, dv;
  float lse[B * H * NQ], workspace[B * H * NQ + 4];
  int32_t q_segments[B * NQ], k_segments[B * NK];
} buffers;

static weft_input in(const float* data) {
  weft_input x = {data, NQ * H * D, H * D, D};
  return x;
}
static weft_output out(float* data) {
  weft_output x = {data, NQ * H * D, H * D, D};
  return x;
}

static weft_forward_args forward_of(buffers* x) {
  weft_forward_args f;
  memset(&f, 0, sizeof f);
  f.size = sizeof f;
  f.batch = B;
  f.dtype = WEFT_F32;
  f.q = in(x->q), f.k = in(x->k), f.v = in(x->v);
  f.o = out(x->o);
  f.lse = x->lse;
  return f;
}

static weft_backward_args backward_of(buffers* x) {
  weft_backward_args g;
  memset(&g, 0, sizeof g);
  g.size = sizeof g;
  g.batch = B;
  g.dtype = WEFT_F32;
  g.q = in(x->q), g.k = in(x->k), g.v = in(x->v), g.o = in(x->o), g.d_o = in(x->d_o);
  g.lse = x->lse;
  g.dq = out(x->dq), g.dk = out(x->dk), g.dv = out(x->dv);
  g.workspace = x->workspace + (4 - (uintptr_t)x->workspace / 4 % 4) % 4;
  g.workspace_bytes = B * H * NQ * sizeof(float);
  return g;
}

static weft_attention_plan* plan_of_all(void) {
  weft_pattern_spec all = spec_of("all");
  weft_pattern* pattern = NULL;
  weft_attention_plan* plan = NULL;
  weft_pattern_create(&all, H, &pattern);
  weft_attention_plan_create(pattern, NQ, NK, D, D, WEFT_CPU, &plan);
  weft_pattern_destroy(pattern);
  return plan;
}

#define BAD_FORWARD(want, word, change)                              \
  do {                                                               \
    weft_forward_args f = forward_of(&x);                            \
    change;                                                          \
    tell(to, #change, weft_attention_forward(plan, &f), want, word); \
  } while (0)
#define BAD_BACKWARD(want, word, change)                              \
  do {                                                                \
    weft_backward_args g = backward_of(&x);                           \
    change;                                                           \
    tell(to, #change, weft_attention_backward(plan, &g), want, word); \
  } while (0)

static void bad_forward(const weft_call_report* to, const weft_attention_plan* plan) {
  static buffers x;
  BAD_FORWARD(WEFT_OK, "", f.batch = B);
  BAD_FORWARD(WEFT_OK, "", f.batch = 0);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "args.size", f.size = 12);
  BAD_FORWARD(WEFT_UNSUPPORTED, "newer version", f.size += 1);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "batch", f.batch = -1);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "batch", f.batch = INT64_MAX);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "dtype", f.dtype = 0);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "dtype", f.dtype = 77);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "form", f.form = -1);
  BAD_FORWARD(WEFT_UNSUPPORTED, "form", f.form = WEFT_GENERAL);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "scale", f.scale = -1);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "scale", f.scale = (double)NAN);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "scale", f.scale = (double)INFINITY);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "q is NULL", f.q.data = NULL);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "k is NULL", f.k.data = NULL);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "v is NULL", f.v.data = NULL);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "o is NULL", f.o.data = NULL);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "lse is NULL", f.lse = NULL);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "q must be aligned", f.q.data = (const char*)x.q + 1);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "lse must be aligned", f.lse = (char*)x.lse + 2);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "k.time_stride", f.k.time_stride = -8);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "v.batch_stride", f.v.batch_stride = INT64_MAX);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "v.head_stride", f.v.head_stride = INT64_MIN);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "q is too large",
              (f.batch = 1 << 20, f.q.batch_stride = (int64_t)1 << 50));
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "o.time_stride", f.o.time_stride = 0);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "rows overlap", f.o.head_stride = D - 1);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "o must not be the memory of q", f.o.data = x.q);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "o must not be the memory of lse", f.lse = x.o);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "k_segments", f.q_segments = x.q_segments);
  BAD_FORWARD(WEFT_INVALID_ARGUMENT, "q_segments", f.k_segments = x.k_segments);
  tell(to, "args NULL", weft_attention_forward(plan, NULL), WEFT_INVALID_ARGUMENT, "args is NULL");
  tell(to, "plan NULL", weft_attention_forward(NULL, NULL), WEFT_INVALID_ARGUMENT, "plan is NULL");
}

static void bad_backward(const weft_call_report* to, const weft_attention_plan* plan) {
  static buffers x;
  BAD_BACKWARD(WEFT_OK, "", g.batch = B);
  BAD_BACKWARD(WEFT_OK, "", g.batch = 0);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "args.size", g.size = 0);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "batch", g.batch = -7);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "dtype", g.dtype = -1);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "form", g.form = 4);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "scale", g.scale = -0.5);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "q is NULL", g.q.data = NULL);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "o is NULL", g.o.data = NULL);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "d_o is NULL", g.d_o.data = NULL);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "lse is NULL", g.lse = NULL);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "dq is NULL", g.dq.data = NULL);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "dk is NULL", g.dk.data = NULL);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "dv is NULL", g.dv.data = NULL);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "dv.head_stride", g.dv.head_stride = -1);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "rows overlap", g.dk.batch_stride = D);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "dq must not be the memory of dk", g.dk.data = x.dq);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "dv must not be the memory of v", g.dv.data = x.v);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "workspace is NULL", g.workspace = NULL);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "workspace_bytes", g.workspace_bytes -= 1);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "workspace must be aligned", g.workspace = (char*)g.workspace + 4);
  BAD_BACKWARD(WEFT_INVALID_ARGUMENT, "k_segments", g.q_segments = x.q_segments);
  tell(to, "args NULL", weft_attention_backward(plan, NULL), WEFT_INVALID_ARGUMENT, "args is NULL");
  tell(to, "plan NULL", weft_attention_backward(NULL, NULL), WEFT_INVALID_ARGUMENT, "plan is NULL");
}

void weft_call_bad_launches(const weft_call_report* to) {
  weft_attention_plan* plan = plan_of_all();
  bad_forward(to, plan);
  bad_backward(to, plan);
  weft_attention_plan_destroy(plan);
}

// q = 0: each position weighs what it sees equally, so that o_i is the mean of v_0 .. v_i and lse_i ln(i +
// 1).
int weft_call_means(void) {
  static buffers x;
  weft_attention_plan* plan = plan_of_all();
  weft_forward_args f = forward_of(&x);
  int wrong = 0, i;
  for (i = 0; i < B * NQ * H * D; ++i) x.k[i] = 1.0f, x.v[i] = (float)(i / (H * D) % NQ);
  if (weft_attention_forward(plan, &f) != WEFT_OK) wrong = 1;
  for (i = 0; i < B * NQ * H * D; ++i)
    if (fabsf(x.o[i] - 0.5f * (float)(i / (H * D) % NQ)) > 1e-6f) wrong = 2;
  for (i = 0; i < B * H * NQ; ++i)
    if (fabsf(x.lse[i] - logf((float)(i % NQ + 1))) > 1e-6f) wrong = 3;
  weft_attention_plan_destroy(plan);
  return wrong;
}
