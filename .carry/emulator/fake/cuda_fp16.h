#pragma once
#include "kernels/dtype.h"
struct __half { weft::f16 v; };
inline float __half2float(__half x) { return x.v; }
inline __half __float2half_rn(float x) { return {weft::f16(x)}; }
