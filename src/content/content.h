// SPDX-License-Identifier: MIT
// Attention where content decides what a head sees: labels or choices of blocks become tile maps of
// each sequence and head, for the same attention kernels. No query's set depends on a later token.
#pragma once

#include "kernels/attention/content/content.h"
#include "src/content/patterns.h"
#include "src/ops/dynamic_heads.h"

#include <memory>
#include <vector>

namespace weft {
// The heads of a layer where content decides.
struct ContentLayer {
  std::vector<DynamicRange> heads;
  int64_t context = 0;  // of the model: how many buckets there are
  uint64_t seed = 0;    // of the signs of hashes, with the number of the layer
  uint32_t layer = 0;
  bool normed = false;  // QK-norm: keys that are made of queries have it
};

// Of a range of heads: maps of each sequence and head.
struct ContentMaps : DynamicMaps {
  HeadRange heads;
  AttentionMaps maps;
  std::vector<Tensor> memory{};
  bool shared_qk = false, normed = false;  // keys are made of queries, which have a QK-norm
  Tensor labels{}, directions{};           // of Labels, without a tape
  Var centroids{};                         // whose gradient the backward pass passes on
  Tensor moved{};                          // that gradient, like centroids

  Backward attend(Ctx&, const AttentionForward& all) const override;
  void add_seen(int head, SeenKeys&) const override;
};

// Without an order. q: of these heads; centroids (H C D), none of hashes; `memory`: labels and
// directions.
Labels labels_of(Ctx&, const ContentLayer&, const DynamicRange&, const HeadsView& q,
                 const Tensor& centroids, std::vector<Tensor>& memory);

// The maps of each of layer.heads, from queries and keys as they are projected. centroids: one for
// each of them, empty where it does not route.
std::vector<std::shared_ptr<ContentMaps>> content_maps(Ctx&, const ContentLayer&, MapCache&,
                                                       const Tensor& qkv, const AttentionShape&,
                                                       const std::vector<Var>& centroids);

// The keys of heads with labels are made of their queries, in place.
void share_keys(Ctx&, const ContentLayer&, const Tensor& qkv, const AttentionShape&);

// Bytes that content_maps() of a batch keeps until the backward pass.
int64_t content_bytes(const ContentLayer&, const AttentionShape&, int64_t batch, int64_t time,
                      bool training);
}  // namespace weft
