#pragma once
#include <cstdint>
#include <cstddef>
#include <cmath>
#include <cstring>
#include <algorithm>
#include <vector>
#include <functional>
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(x)
#define __shared__
#define __restrict__
struct uint4 { unsigned x, y, z, w; };
struct int4 { int x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct dim3 { unsigned x, y, z; dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
namespace emu {
struct Thread { dim3 thread, block; };
extern Thread* current();
void yield();
void block_sync();
std::uint64_t exchange(std::uint64_t mine, int from);  // warp
unsigned ballot(bool);
void warp_sync();
}
#define threadIdx (emu::current()->thread)
#define blockIdx (emu::current()->block)
inline void __syncthreads() { emu::block_sync(); }
inline void __syncwarp(unsigned = 0xffffffffu) { emu::warp_sync(); }
template <class T> inline T emu_bits(T v, int from) {
  std::uint64_t b = 0; std::memcpy(&b, &v, sizeof v); b = emu::exchange(b, from); std::memcpy(&v, &b, sizeof v); return v;
}
template <class T> inline T __shfl_xor_sync(unsigned, T v, int m, int = 32) { return emu_bits(v, int(threadIdx.x % 32) ^ m); }
template <class T> inline T __shfl_sync(unsigned, T v, int from, int = 32) { return emu_bits(v, from & 31); }
inline unsigned __ballot_sync(unsigned, bool p) { return emu::ballot(p); }
template <class T> inline T __ldg(const T* p) { return *p; }
inline void __nanosleep(unsigned) { emu::yield(); }
[[noreturn]] inline void __trap() { std::abort(); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline float __uint_as_float(unsigned u) { float f; std::memcpy(&f, &u, 4); return f; }
inline unsigned __float_as_uint(float f) { unsigned u; std::memcpy(&u, &f, 4); return u; }
using std::max; using std::min;
using cudaError_t = int; enum { cudaSuccess = 0 };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor, cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin };
inline const char* cudaGetErrorString(int) { return "?"; }
inline const char* cudaGetErrorName(int) { return "?"; }
inline int cudaGetDevice(int* d) { *d = 0; return 0; }
extern int emu_blocks, emu_shared;
inline int cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
  *v = a == cudaDevAttrComputeCapabilityMajor ? 9 : a == cudaDevAttrComputeCapabilityMinor ? 0 : a == cudaDevAttrMultiProcessorCount ? emu_blocks : emu_shared; return 0;
}
typedef struct CUstream_st* cudaStream_t;
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone };
inline int cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* s) { *s = cudaStreamCaptureStatusNone; return 0; }
inline int cudaMemsetAsync(void* p, int v, std::size_t n, cudaStream_t) { std::memset(p, v, n); return 0; }
enum { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaLaunchAttributeCooperative, cudaLaunchAttributeProgrammaticStreamSerialization, cudaLaunchAttributeClusterDimension };
template <class F> inline int cudaFuncSetAttribute(F, int, int) { return 0; }
struct cudaLaunchAttribute { int id; union { int cooperative; int programmaticStreamSerializationAllowed; struct { unsigned x, y, z; } clusterDim; } val; };
struct cudaLaunchConfig_t { dim3 gridDim, blockDim; std::size_t dynamicSmemBytes = 0; cudaStream_t stream = nullptr; cudaLaunchAttribute* attrs = nullptr; unsigned numAttrs = 0; };
namespace emu { void run(unsigned blocks, unsigned threads, std::size_t shared, const std::function<void()>& kernel); unsigned char* shared_memory(); }
template <class... P, class... V> inline int cudaLaunchKernelEx(const cudaLaunchConfig_t* c, void (*kernel)(P...), V&&... v) {
  emu::run(c->gridDim.x, c->blockDim.x, c->dynamicSmemBytes, [&] { kernel(v...); }); return 0;
}
