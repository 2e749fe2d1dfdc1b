/* SPDX-License-Identifier: MIT */
/* Sparse attention on the CPU. On a GPU the plan takes the number of the device instead of WEFT_CPU. */
#include <stdio.h>
#include "weft_attention.h"

enum { B = 1, N = 1000, H = 4, D = 64 };  /* batch, positions, heads, size of a head */
static float q[B * N * H * D], k[B * N * H * D], v[B * N * H * D], o[B * N * H * D], lse[B * H * N];

int main(void) {
  weft_pattern_spec spec;
  weft_pattern* pattern = NULL;
  weft_attention_plan* plan = NULL;
  weft_forward_args f = {0};
  weft_pattern_spec_init(&spec, sizeof spec);
  spec.kind = "fixed", spec.stride = 128, spec.c = 32;
  f.size = sizeof f, f.batch = B, f.dtype = WEFT_F32, f.lse = lse;
  f.q.data = q, f.k.data = k, f.v.data = v, f.o.data = o;
  f.q.batch_stride = f.k.batch_stride = f.v.batch_stride = f.o.batch_stride = N * H * D;
  f.q.time_stride = f.k.time_stride = f.v.time_stride = f.o.time_stride = H * D;
  f.q.head_stride = f.k.head_stride = f.v.head_stride = f.o.head_stride = D;
  if (weft_pattern_create(&spec, H, &pattern) ||
      weft_attention_plan_create(pattern, N, N, D, D, WEFT_CPU, &plan) || weft_attention_forward(plan, &f))
    return fprintf(stderr, "error: %s\n", weft_last_error()), 1;
  printf("%s: lse of the last position %g\n", weft_pattern_name(pattern), lse[B * H * N - 1]);
  weft_attention_plan_destroy(plan);
  weft_pattern_destroy(pattern);
  return 0;
}
