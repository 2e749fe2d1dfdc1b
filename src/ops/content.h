// SPDX-License-Identifier: MIT
// Attention where content decides what a head sees: labels or choices of blocks become tile maps of each
// sequence and head, for the same attention kernels. No query's set depends on a later token.
#pragma once

#include "src/attention_maps.h"
#include "src/ops.h"
#include "src/patterns/more/content.h"

namespace weft {

// The heads of a layer where content decides.
struct ContentLayer {
  std::vector<ContentHeads> heads;
  std::int64_t context = 0;  // of the model: how many buckets there are
  std::uint64_t seed = 0;    // of the signs of hashes, with the number of the layer
  std::uint32_t layer = 0;
};

// What sampling keeps of a prompt, of each of ContentLayer::heads.
struct ContentState {
  Tensor labels;        // (R, B, H, T)  i32
  Tensor chosen, sums;  // of BlockChoice
};

struct ContentOptions {
  MapCache* maps = nullptr;                     // of the model
  Tensor documents{};                           // (B, T) i32: document_starts(); or empty
  std::vector<ContentState>* states = nullptr;  // filled, if there
  std::int64_t count = 0;                       // positions that are summed for it; 0: all
};

// What queries of these heads are compared with (LabelDirections). centroids: (H C D), or empty of hashes.
Tensor label_directions(Ctx&, const ContentLayer&, const ContentHeads&, const Tensor& centroids,
                        std::int64_t qk_size);

// The maps of a layer: those of `fixed`, then those of the heads where content decides, from queries and keys
// as they are projected. centroids: one for each of layer.heads, empty where it does not route.
KeptMaps content_maps(Ctx&, const ContentLayer&, const KeptMaps& fixed, const Tensor& qkv,
                      const AttentionShape&, const std::vector<Var>& centroids, const ContentOptions&);

// The keys of heads with labels are made of their queries, in place.
void share_keys(Ctx&, const KeptMaps&, const Tensor& qkv, const AttentionShape&);

// Of one head of the first sequence, on a CPU: each query's keys, appended to the lists; gives the pairs that
// visited tiles have. And how often each label is there, in each round.
std::int64_t append_keys(const AttentionMaps&, int head, std::int64_t time,
                         std::vector<std::vector<std::int32_t>>& keys);
void append_label_sizes(const ContentHeads&, const ContentState&, std::int64_t context, int head,
                        std::vector<std::vector<std::int64_t>>& sizes);

// Bytes of content_maps() for a batch, of which `kept` live until the backward pass.
struct ContentBytes {
  std::int64_t kept = 0, scratch = 0;
};
ContentBytes content_bytes(const AttentionPattern&, std::int64_t heads, std::int64_t qk_size,
                           std::int64_t batch, std::int64_t time, std::int64_t context, bool training);

}  // namespace weft
