// SPDX-License-Identifier: MIT
// The heads of a layer where content decides, as models see them; and their cache in sampling.
#pragma once

#include "src/content/content.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace weft {
// For set_dynamic_heads().
std::unique_ptr<DynamicHeads> content_heads(ParameterStore&, const std::string& name,
                                            const DynamicLayer&);

class ContentHeads : public DynamicHeads {
 public:
  ContentHeads(ParameterStore&, const std::string& name, const DynamicLayer&);

  std::vector<std::shared_ptr<const DynamicMaps>> maps(Ctx&, const ParameterStore&, MapCache&,
                                                       const Tensor& packed) const override;
  void rotated(Ctx&, const Tensor& packed) const override;
  int64_t bytes(int64_t batch, int64_t time, bool training) const override;
  std::unique_ptr<DynamicCache> make_cache(Device&, int64_t batch, int64_t length,
                                           const int32_t* position) const override;

  const ContentLayer& layer() const { return layer_; }

  const AttentionShape& shape() const { return shape_; }

  // Of each of layer().heads, (heads * clusters * Dqk); empty where it does not route.
  std::vector<Var> centroids(const ParameterStore&) const;

 private:
  ContentLayer layer_;
  AttentionShape shape_;
  std::vector<Param> centroids_;
};

// Members of labels, or sums of blocks.
class ContentCache : public DynamicCache {
 public:
  // heads: outlive the cache.
  ContentCache(Device&, const ContentHeads&, int64_t batch, int64_t length,
               const int32_t* position);

  void set(Ctx&, const ParameterStore&, DecodeBlock&) const override;
  void fill(Ctx&, const ParameterStore&, const TensorView& packed, int64_t first,
            int64_t texts) const override;
  int64_t bytes() const override;

 private:
  // Of a range of heads and some sequences: with labels, or with blocks. Queries and keys come with
  // the packed rows.
  struct Lists {
    HeadRange heads;
    Labels labels{};
    LabelList list{};
    BlockList blocks{};
    std::vector<Tensor> memory{};  // of labels
  };

  // Of q.batch sequences from `first` on.
  Lists lists(Ctx&, std::size_t i, const Var& centroids, HeadsView q, int64_t first) const;
  // Of packed (B, positions, q | k | v) as projected; or, to share keys, as rotated.
  void list_keys(Queue, const TensorView& packed, Lists, bool rotated) const;

  const ContentHeads& heads_;
  std::vector<Tensor> memory_;
  std::vector<Lists> of_heads_;  // each of layer().heads, of all sequences, without labels
  TensorView list_, count_;
};
}  // namespace weft
