// SPDX-License-Identifier: MIT
#include "src/capi/weft_attention.h"

#include "src/capi/handles.h"
#include "src/patterns/pattern.h"

#include <cstddef>

namespace {
using namespace weft::capi;

constexpr const char* kPlanIsNull = "plan is NULL";
}  // namespace

int weft_attention_version(void) { return WEFT_ATTENTION_VERSION; }

const char* weft_status_name(weft_status status) {
  switch (status) {
    case WEFT_OK: return "WEFT_OK";
    case WEFT_INVALID_ARGUMENT: return "WEFT_INVALID_ARGUMENT";
    case WEFT_UNSUPPORTED: return "WEFT_UNSUPPORTED";
    case WEFT_OUT_OF_MEMORY: return "WEFT_OUT_OF_MEMORY";
    case WEFT_CUDA_ERROR: return "WEFT_CUDA_ERROR";
    case WEFT_INTERNAL_ERROR: return "WEFT_INTERNAL_ERROR";
  }
  return "unknown status";
}

const char* weft_last_error(void) { return weft::capi::last_error(); }

weft_status weft_pattern_spec_init(weft_pattern_spec* spec, size_t size) {
  return guarded(WEFT_INVALID_ARGUMENT, [&] {
    require(spec != nullptr, "spec is NULL");
    require(size == sizeof(*spec), "size must be sizeof(weft_pattern_spec) = ", sizeof(*spec),
            ", got ", size);
    const weft::PatternSpec defaults;
    *spec = {};
    spec->size = size;
    spec->stride = defaults.stride;
    spec->c = defaults.c;
    spec->num_verts = defaults.num_verts;
    spec->vertsize = defaults.vertsize;
    spec->causal = defaults.causal;
    spec->step = defaults.step;
  });
}

weft_status weft_pattern_create(const weft_pattern_spec* spec, int32_t heads,
                                weft_pattern** pattern) {
  return create("pattern", pattern, [&] { return make_named(spec, heads); });
}

weft_status weft_pattern_create_layout(const weft_layout* layout, int32_t heads,
                                       weft_pattern** pattern) {
  return create("pattern", pattern, [&] { return make_layout(layout, heads); });
}

void weft_pattern_destroy(weft_pattern* pattern) { delete pattern; }

const char* weft_pattern_name(const weft_pattern* pattern) {
  return pattern ? pattern->name.c_str() : "";
}

weft_status weft_pattern_mask(const weft_pattern* pattern, int32_t head, int64_t n_q, int64_t n_k,
                              uint8_t* mask) {
  return guarded(WEFT_INVALID_ARGUMENT, [&] {
    require(pattern != nullptr, "pattern is NULL");
    write_mask(*pattern, head, n_q, n_k, mask);
  });
}

weft_status weft_attention_plan_create(const weft_pattern* pattern, int64_t n_q, int64_t n_k,
                                       int64_t d_qk, int64_t d_v, int32_t device,
                                       weft_attention_plan** plan) {
  return create("plan", plan, [&] { return make_plan(pattern, {n_q, n_k}, d_qk, d_v, device); });
}

void weft_attention_plan_destroy(weft_attention_plan* plan) { delete plan; }

weft_status weft_attention_plan_info(const weft_attention_plan* plan, weft_plan_info* info) {
  return guarded(WEFT_INVALID_ARGUMENT, [&] {
    require(plan != nullptr, kPlanIsNull);
    checked_struct("info", info);
    *info = {info->size,           plan->bytes,       plan->pairs.needed,
             plan->pairs.executed, plan->maps.passes, plan->heads};
  });
}

weft_status weft_attention_plan_form(const weft_attention_plan* plan, int32_t dtype, int32_t form,
                                     int32_t has_segments, const char** name) {
  return guarded(WEFT_UNSUPPORTED, [&] {
    require(plan != nullptr, kPlanIsNull);
    require(name != nullptr, "name is NULL");
    *name = kernel_names(*plan, problem_of(*plan, checked_dtype(*plan, dtype), checked_form(form),
                                           has_segments != 0));
  });
}

weft_status weft_attention_workspace_size(const weft_attention_plan* plan, int64_t batch,
                                          int32_t dtype, size_t* bytes) {
  return guarded(WEFT_INVALID_ARGUMENT, [&] {
    require(plan != nullptr, kPlanIsNull);
    require(bytes != nullptr, "bytes is NULL");
    *bytes = workspace_bytes(*plan, batch, checked_dtype(*plan, dtype));
  });
}

weft_status weft_attention_forward(const weft_attention_plan* plan, const weft_forward_args* args) {
  return guarded(WEFT_UNSUPPORTED, [&] {
    require(plan != nullptr, kPlanIsNull);
    const weft_forward_args& checked = checked_struct("args", args);
    const weft::AttentionForward forward = checked_forward(*plan, checked);
    if (forward.q.batch > 0) plan->backend->run(forward, checked.stream);
  });
}

weft_status weft_attention_backward(const weft_attention_plan* plan,
                                    const weft_backward_args* args) {
  return guarded(WEFT_UNSUPPORTED, [&] {
    require(plan != nullptr, kPlanIsNull);
    const weft_backward_args& checked = checked_struct("args", args);
    const weft::AttentionBackward backward = checked_backward(*plan, checked);
    if (backward.q.batch > 0) plan->backend->run(backward, checked.stream);
  });
}
