// SPDX-License-Identifier: MIT
// Sampling: one position of each sequence through consecutive residual blocks (Child et al. 2019,
// arXiv 1904.10509, section 5.2), in the steps of DecodeLinear and AttentionDecode, each rounded to
// T:
//   x' = x + proj(attention(qkv(norm(x))))    after key and value have joined the block's cache
//   y  = x' + down(f(up(norm(x'))))           each sequence alone, to the last bit
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/layers/activation.h"
#include "kernels/layers/rotary.h"

#include <functional>
#include <vector>

namespace weft {
struct DecodeNorm {
  TensorView w, b;  // (C)  wide(T)
  double eps = 1e-5;
};

struct DecodeAffine {
  TensorView w, b;  // (M, K), (M)  T
};

struct DecodeBlock {
  DecodeNorm attention_norm;
  DecodeAffine qkv, proj;  // C -> q | k | v, H * Dv -> C
  DecodeNorm mlp_norm;
  DecodeAffine up, down;  // C -> M, M -> C
  TensorView k, v;        // (B, R, Dqk), (B, R, Dv)  T: the cache, rows of all heads
  // As in AttentionDecode, in the queue's memory.
  const int32_t *keys = nullptr, *key_start = nullptr, *key_positions = nullptr,
                *group_of_head = nullptr, *first_row = nullptr, *own_row = nullptr;
  int64_t longest = 0;  // no list is longer; 0: not known
  TensorView own_list{}, own_count{};
  // Launches what writes own_list and own_count. Called with q | k | v of the new positions, (B, 1,
  // columns), as projected, then as rotated, which it may change. CUDA takes steps where it is set.
  std::function<void(Queue, const TensorView& packed, bool rotated)> list_keys{};
};

struct DecodeBlocks {
  static constexpr const char* kName = "decode_blocks";
  TensorView y;  // (B, C)  T; any leading axes
  TensorView x;  // (B, C)  T
  std::vector<DecodeBlock> blocks;
  int64_t heads = 1, qk_size = 0, v_size = 0;  // H, Dqk, Dv
  double scale = 1;
  QkForm qk;  // of the queries and the new keys
  Activation f = Activation::gelu;
  // (B)  i32: as in AttentionDecode, or absent
  TensorView first_key;
  // Scratch: (B, H * (2 Dqk + Dv)), (B, H * Dv), (B, M)  T. Of no meaning afterwards.
  TensorView packed, attended, hidden;
  // What prepare() has made of the weights for this batch, or absent.
  TensorView prepared{};  // (prepared_bytes())  u8

  std::vector<TensorView> outputs() const { return {y}; }
};

WEFT_KERNEL(DecodeBlocks);

// Bytes of `prepared` that a form wants for this model and batch; 0: none does. Of `blocks`, sizes,
// weights and caches are read, and the shape of x.
int64_t prepared_bytes(const CpuQueue&, const DecodeBlocks& blocks);
int64_t prepared_bytes(const CudaQueue&, const DecodeBlocks& blocks);
// Fills `prepared`, which has these bytes: weights in the order in which the form reads them.
// Needed again when weights change. Wait for the queue after it: a form may read them before
// launches ahead of it have ended.
void prepare(CpuQueue&, const DecodeBlocks& blocks);  // no form of the CPU wants any: Error
void prepare(CudaQueue&, const DecodeBlocks& blocks);

// A faster CUDA form of DecodeBlocks, which a part adds. compute() of a CudaQueue takes the first
// that covers the case, else five launches a block.
struct BlocksDecoder {
  // Depends on the model, the lengths of texts and `prepared`: forms differ in rounding.
  bool (*covers)(const DecodeBlocks&);
  void (*compute)(CudaQueue&, const DecodeBlocks&);
  // Null: the form reads weights as they are.
  int64_t (*prepared_bytes)(const DecodeBlocks&) = nullptr;
  void (*prepare)(CudaQueue&, const DecodeBlocks&) = nullptr;
};

// Called by a part when it registers.
void add_blocks_decoder(const BlocksDecoder&);
const std::vector<BlocksDecoder>& blocks_decoders();
}  // namespace weft
