#pragma once
#include "kernels/dtype.h"
struct __nv_bfloat16 { weft::bf16 v; };
inline float __bfloat162float(__nv_bfloat16 x) { return x.v; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {weft::bf16(x)}; }
