// SPDX-License-Identifier: MIT
// DecodeBlocks as one persistent kernel over all multiprocessors (sm_90a): what its parts share.
//
// Thread blocks exchange activations through buffers in global memory, two elements a word. There
// is no barrier and no flag: a word is kAbsent until it is written, and its readers repeat their
// load until it is not. Why that is enough:
//   - Before each launch, in stream order, all words are set to kAbsent. During the launch each
//   word is
//     written once, by one thread, and never reset: every layer has buffers of its own. So no
//     writer can overtake a reader, in any launch or replay of a graph.
//   - A word is its own flag, so no order between words is needed: relaxed loads and stores of 32
//   bits do.
//   - Payloads never equal kAbsent: that pair of NaNs is replaced by another.
//   - All thread blocks are resident (cooperative launch), and each takes the phases of the layers
//   in order.
//     The words of a phase depend on earlier phases alone, so the least unfinished phase always
//     proceeds.
//   - Inputs and outputs of the launch, caches and lists are ordinary memory: nobody waits for
//   them. A row of
//     the cache that this launch writes is read by later launches alone.
// A thread that waits about two seconds traps: an error is better than a hang.
#pragma once

#include "kernels/device/global_memory.cuh"
#include "kernels/device/tma.cuh"
#include "kernels/device/vector8.cuh"
#include "kernels/layers/rotary.cuh"
#include "kernels/sampling/decode/plan.h"
#include "kernels/sampling/decode_blocks.h"

namespace weft::decode_persistent {
inline constexpr uint32_t kAbsent = 0xffffffffu, kOtherNan = 0x7fff7fffu;

// The arguments of a layer, 128 bytes; the kernel copies those of all layers to shared memory.
template <class T>
struct Block {
  const T *w[4], *b[4];  // as enum Matrix
  const float *norm_w[2], *norm_b[2];
  T *k, *v;
  float eps[2];
  int32_t rows, layout;  // R; of Arguments::layouts
};

static_assert(sizeof(Block<uint16_t>) == 128);

struct Layout {
  const int32_t *keys, *key_start, *group_of_head, *first_row, *own_row;
};

template <class T>
struct Arguments {
  T* y;
  const T* x;
  uint32_t* exchange;
  Exchange plan{Sizes{}, 1};
  Sizes sizes;
  Memory memory;
  Groups groups{1, 1, 1};
  int32_t layers, layout_count, first_sequence;  // of x and y in the caches and places
  float scale;
  QkAngles qk;
  Activation f;
  Layout layouts[kMostLayouts];
  Block<T> blocks[kMostLayers];
};

// Of a head.
struct List {
  int begin, count, first_row, own;  // own: row of the head's cache that gets the new key, -1: none
};

// What a thread block knows of itself, in shared memory: registers are for what is at hand.
struct Place {
  int rank, group;      // of the group
  int first_row, rows;  // sequences of the group
  int first[kBuffers];  // its tiles of each GEMM, then its pairs
  int count[kBuffers];
};

// A thread's place in the block. Volatile: nothing derived from it lives on in registers of other
// phases.
struct Thread {
  int warp, lane;
};

__device__ __forceinline__ Thread this_thread() {
  const int thread = device::this_thread();
  return {thread / kWarp, thread % kWarp};
}

template <class T>
struct Scene {
  const Arguments<T>& a;
  unsigned char* memory;  // shared
  // which buffer of partial sums is next: those before are still being read
  unsigned sums_parity = 0;

  template <class W>
  __device__ __forceinline__ W* at(int offset) const {
    return reinterpret_cast<W*>(memory + offset);
  }

  __device__ __forceinline__ const Block<T>& block(int layer) const {
    return at<const Block<T>>(a.memory.blocks)[layer];
  }

  __device__ __forceinline__ const Place& place() const { return *at<const Place>(a.memory.place); }

  __device__ __forceinline__ uint32_t address(int offset) const {
    return device::shared_address(memory) + offset;
  }

  // The words of a row of the group in an exchange buffer: where this thread block reads them.
  __device__ __forceinline__ const uint32_t* words(int layer, int buffer, int row) const {
    return a.exchange + a.plan.at(layer, buffer, place().first_row + row) +
           a.plan.to_copy(buffer, place().rank);
  }

  // Writes one of them, to all copies.
  __device__ __forceinline__ void publish(int layer, int buffer, int row, int at,
                                          uint32_t word) const {
    uint32_t* to = a.exchange + a.plan.at(layer, buffer, place().first_row + row) + at;
    word = word == kAbsent ? kOtherNan : word;
    const int copies = a.plan.copies_of(buffer), stride = a.plan.batch * a.plan.row[buffer];
#pragma unroll 1
    for (int copy = 0; copy < copies; ++copy, to += stride) device::st_relaxed_gpu(to, word);
  }

  // What a GEMM reads: rows of the group, which may be absent but for the first layer's x.
  __device__ __forceinline__ const uint32_t* input(int layer, int matrix) const {
    if (matrix == kQkv && layer == 0)
      return reinterpret_cast<const uint32_t*>(a.x) + place().first_row * a.plan.row[kDown];
    const int buffer = matrix == kProj ? kAttended : matrix == kQkv ? kDown : matrix - 1;
    return words(matrix == kQkv ? layer - 1 : layer, buffer, 0);
  }
};

// ---- the exchange ----

__device__ __forceinline__ void look(uint32_t& word, const uint32_t* p) {
  word = device::ld_relaxed_gpu(p);
}

__device__ __forceinline__ void look(uint4& v, const uint32_t* p) {
  v = device::ld_relaxed_gpu_16(p);
}

__device__ __forceinline__ bool is_absent(uint32_t word) { return word == kAbsent; }

__device__ __forceinline__ bool is_absent(const uint4& v) {
  return is_absent(v.x) || is_absent(v.y) || is_absent(v.z) || is_absent(v.w);
}

// Loads `count` values, `stride` words apart, all in flight together.
template <int kMost, class Value>
__device__ __forceinline__ void ask(Value (&v)[kMost], const uint32_t* from, int stride,
                                    int count) {
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    v[i] = {};  // a register that is only written under a condition would live through all phases
    if (i < count) look(v[i], from + i * stride);
  }
}

// Loads what was asked for again until all is there. Many rows are waited for with pauses: repeated
// loads take bandwidth from other thread blocks.
template <int kMost, class Value>
__device__ __forceinline__ void await(Value (&v)[kMost], const uint32_t* from, int stride,
                                      int count, bool pauses) {
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

template <int kMost, class Value>
__device__ __forceinline__ void receive(Value (&v)[kMost], const uint32_t* from, int stride,
                                        int count, bool pauses = false) {
  ask(v, from, stride, count);
  await(v, from, stride, count, pauses);
}

// By one warp: brings this thread block's share of the weights of a layer, and a share of what is
// small, to the L2 cache, one layer ahead. The groups take turns.
template <class T>
__device__ __forceinline__ void prefetch_layer(const Scene<T>& s, int layer) {
  const Place& place = s.place();
  if (layer >= s.a.layers || layer % s.a.groups.groups != place.group) return;
  const Sizes& z = s.a.sizes;
  const Block<T>& block = s.block(layer);
  const int lane = this_thread().lane, matrix = lane % 4, what = lane / 4;
  if (what == 0 && place.count[matrix] > 0) {
    const int64_t of_tile = kTileColumns * z.inner(matrix);
    device::bulk_prefetch_l2(block.w[matrix] + place.first[matrix] * of_tile,
                             place.count[matrix] * of_tile * 2);
  }
  if (what == 0 || what > 2 || lane % s.a.groups.ranks != place.rank) return;
  if (what == 1)
    device::bulk_prefetch_l2(block.b[matrix], z.columns(matrix) * 2);
  else
    device::bulk_prefetch_l2(matrix < 2 ? block.norm_w[matrix] : block.norm_b[matrix - 2],
                             z.width * 4);
}
}  // namespace weft::decode_persistent
