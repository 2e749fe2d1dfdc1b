// SPDX-License-Identifier: MIT
// DecodeBlocks as one persistent kernel over all multiprocessors (sm_90a): what its parts share.
//
// Thread blocks exchange activations through buffers in global memory, two elements a word. There is no
// barrier and no flag: a word is kAbsent until it is written, and its readers repeat their load until it is
// not. Why that is enough:
//   - Before each launch, in stream order, all words are set to kAbsent. During the launch each word is
//     written once, by one thread, and never reset: every layer has buffers of its own. So no writer can
//     overtake a reader, in any launch or replay of a graph.
//   - A word is its own flag, so no order between words is needed: relaxed loads and stores of 32 bits do.
//   - Payloads never equal kAbsent: that pair of NaNs is replaced by another.
//   - All thread blocks are resident (cooperative launch), and each takes the phases of the layers in order.
//     The words of a phase depend on earlier phases alone, so the least unfinished phase always proceeds.
//   - Inputs and outputs of the launch, caches and lists are ordinary memory: nobody waits for them. A row of
//     the cache that this launch writes is read by later launches alone.
// A thread that waits about two seconds traps: an error is better than a hang.
#pragma once

#include "kernels/device/vector8.cuh"
#include "kernels/layers/rotary.cuh"
#include "kernels/sampling/decode_blocks.h"
#include "kernels/sampling/decode_persistent.h"

namespace weft::decode_persistent {

inline constexpr std::uint32_t kAbsent = 0xffffffffu, kOtherNan = 0x7fff7fffu;

// The arguments of a layer, 128 bytes; the kernel copies those of all layers to shared memory.
template <class T>
struct Block {
  const T *w[4], *b[4];  // as enum Matrix
  const float *norm_w[2], *norm_b[2];
  T *k, *v;
  float eps[2];
  std::int32_t rows, layout;  // R; of Arguments::layouts
};
static_assert(sizeof(Block<std::uint16_t>) == 128);

struct Layout {
  const std::int32_t *keys, *key_start, *group_of_head, *first_row, *own_row;
};

template <class T>
struct Arguments {
  T* y;
  const T* x;
  std::uint32_t* exchange;
  Sizes sizes;
  Memory memory;
  Groups groups{1, 1};
  std::int32_t layers, layout_count, first_sequence;  // of x and y in the caches and places
  float scale;
  QkAngles qk;
  Activation f;
  Layout layouts[kMostLayouts];
  Block<T> blocks[kMostLayers];
};

// What a thread block knows.
template <class T>
struct Scene {
  const Arguments<T>& a;
  unsigned char* memory;     // shared
  int group, rank;           // of the group
  int first_row, rows;       // sequences of the group
  int warp, lane;            // of this thread
  unsigned sums_parity = 0;  // which buffer of partial sums is next: those before are still being read

  __device__ __forceinline__ Scene(const Arguments<T>& arguments, unsigned char* shared)
      : a(arguments),
        memory(shared),
        group(static_cast<int>(blockIdx.x) / a.groups.ranks),
        rank(static_cast<int>(blockIdx.x) % a.groups.ranks),
        first_row(a.groups.first_row(group, a.sizes.batch)),
        rows(a.groups.first_row(group + 1, a.sizes.batch) - first_row),
        warp(threadIdx.x / kWarp),
        lane(threadIdx.x % kWarp) {}

  __device__ __forceinline__ const Block<T>& block(int layer) const {
    return reinterpret_cast<const Block<T>*>(memory + a.memory.blocks)[layer];
  }
  __device__ __forceinline__ std::uint32_t address(int offset) const {
    return device::shared_address(memory) + offset;
  }
  // The words of a row of the group in an exchange buffer.
  __device__ __forceinline__ std::uint32_t* words(int layer, int buffer, int row) const {
    return a.exchange + layer * a.sizes.words_of_layer() + a.sizes.words_before(buffer) +
           static_cast<std::int64_t>(first_row + row) * (a.sizes.columns(buffer) / 2);
  }
  // What a GEMM reads: rows of the group, and whether they may be absent.
  __device__ __forceinline__ const std::uint32_t* input(int layer, int matrix) const {
    if (matrix == kProj) return words(layer, kAttended, 0);
    if (matrix == kUp || matrix == kDown) return words(layer, matrix - 1, 0);
    if (layer > 0) return words(layer - 1, kDown, 0);
    return reinterpret_cast<const std::uint32_t*>(a.x) +
           static_cast<std::int64_t>(first_row) * (a.sizes.width / 2);
  }
};

// ---- the exchange ----

__device__ __forceinline__ void publish(std::uint32_t* p, std::uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(word == kAbsent ? kOtherNan : word)
               : "memory");
}
__device__ __forceinline__ void look(std::uint32_t& word, const std::uint32_t* p) {
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(p) : "memory");
}
__device__ __forceinline__ void look(uint4& v, const std::uint32_t* p) {
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
}
__device__ __forceinline__ bool is_absent(std::uint32_t word) { return word == kAbsent; }
__device__ __forceinline__ bool is_absent(const uint4& v) {
  return is_absent(v.x) || is_absent(v.y) || is_absent(v.z) || is_absent(v.w);
}

// Loads `count` values, `stride` words apart, all in flight together; where they are awaited, until all are
// there. Many rows are waited for with pauses: repeated loads take bandwidth from other thread blocks.
template <int kMost, class Value>
__device__ __forceinline__ void receive(Value (&v)[kMost], const std::uint32_t* from, int stride, int count,
                                        bool awaited, bool pauses) {
#pragma unroll
  for (int i = 0; i < kMost; ++i)
    if (i < count) look(v[i], from + i * stride);
  if (!awaited) return;
  for (int tries = 0;; ++tries) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < kMost; ++i)
      if (i < count && is_absent(v[i])) look(v[i], from + i * stride), all = false;
    if (all) return;
    if (pauses) __nanosleep(40);
    if (tries > 1 << 22) __trap();
  }
}

// ---- other instructions ----

__device__ __forceinline__ void st_shared_16(std::uint32_t address, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}
__device__ __forceinline__ void st_shared_4(std::uint32_t address, std::uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
// Weights, which a thread block reads once.
__device__ __forceinline__ void load_once(uint4& v, const void* p) {
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
}
// cp_async_16() of what leaves the L2 cache first.
__device__ __forceinline__ void cp_async_16_once(std::uint32_t to, const void* from, bool valid,
                                                 std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0), "l"(policy)
               : "memory");
}
__device__ __forceinline__ std::uint64_t evict_first() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// To the L2 cache; address and bytes are multiples of 16.
__device__ __forceinline__ void prefetch_bulk(const void* p, std::int64_t bytes) {
  WEFT_SM90_ASM("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(static_cast<int>(bytes))
                : "memory");
}

// By one warp: brings this thread block's share of the weights of a layer, and a share of what is small, to
// the L2 cache, one layer ahead. The groups take turns.
template <class T>
__device__ __forceinline__ void prefetch_layer(const Scene<T>& s, int layer) {
  const Sizes& z = s.a.sizes;
  if (layer >= s.a.layers || layer % s.a.groups.groups != s.group) return;
  const Block<T>& block = s.block(layer);
  const int ranks = s.a.groups.ranks, matrix = s.lane % 4, small = s.lane / 4;
  if (small == 0) {
    const int tiles = z.columns(matrix) / kTileColumns, first = first_of(s.rank, tiles, ranks),
              count = first_of(s.rank + 1, tiles, ranks) - first;
    const std::int64_t of_tile = kTileColumns * z.inner(matrix);
    if (count > 0) prefetch_bulk(block.w[matrix] + first * of_tile, count * of_tile * 2);
  } else if (small <= 2 && s.lane % ranks == s.rank) {
    if (small == 1)
      prefetch_bulk(block.b[matrix], z.columns(matrix) * 2);
    else
      prefetch_bulk(matrix < 2 ? block.norm_w[matrix] : block.norm_b[matrix - 2], z.width * 4);
  }
}

}  // namespace weft::decode_persistent
