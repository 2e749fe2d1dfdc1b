// SPDX-License-Identifier: MIT
// Attention where content decides what a head sees: labels or choices of blocks become tile maps of
// each sequence and head, for the same attention kernels. No query's set depends on a later token.
#pragma once

#include "src/attention_maps.h"
#include "src/ops.h"

#include <vector>

namespace weft {
// The heads of a layer where content decides.
struct ContentLayer {
  std::vector<ContentHeads> heads;
  int64_t context = 0;  // of the model: how many buckets there are
  uint64_t seed = 0;    // of the signs of hashes, with the number of the layer
  uint32_t layer = 0;
  bool normed = false;  // QK-norm: keys that are made of queries have it
};

// Without an order. q: of these heads; centroids (H C D), none of hashes; `memory`: labels and
// directions.
Labels labels_of(Ctx&, const ContentLayer&, const ContentHeads&, const HeadsView& q,
                 const Tensor& centroids, std::vector<Tensor>& memory);

// The maps of the heads where content decides, from queries and keys as they are projected.
// centroids: one for each of layer.heads, empty where it does not route.
std::vector<ContentMaps> content_maps(Ctx&, const ContentLayer&, MapCache&, const Tensor& qkv,
                                      const AttentionShape&, const std::vector<Var>& centroids);

// The keys of heads with labels are made of their queries, in place.
void share_keys(Ctx&, const KeptMaps&, const Tensor& qkv, const AttentionShape&);

// What a head of the first sequence saw, on a CPU.
struct SeenKeys {
  std::vector<std::vector<int32_t>> keys;         // of each query, as often as it counts them
  int64_t executed = 0;                           // pairs in the tiles that are visited
  std::vector<std::vector<int64_t>> label_sizes;  // in each round
};

SeenKeys seen_keys(const KeptMaps&, int head, int64_t time);

// Bytes that content_maps() of a batch keeps until the backward pass.
int64_t content_bytes(const AttentionPattern&, int64_t heads, int64_t qk_size, int64_t batch,
                      int64_t time, int64_t context, bool training);
}  // namespace weft
