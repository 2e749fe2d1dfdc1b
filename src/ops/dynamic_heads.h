// SPDX-License-Identifier: MIT
// Heads of a layer with dynamic sparsity: their queries and keys decide what they see, so a part
// makes their tile maps for each batch. A pattern says which heads these are
// (AttentionPattern::dynamic).
#pragma once

#include "kernels/sampling/decode_blocks.h"
#include "src/attention_maps.h"
#include "src/ops.h"
#include "src/parameters.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft {
// What a head of the first sequence saw, on a CPU.
struct SeenKeys {
  std::vector<std::vector<int32_t>> keys;  // of each query, as often as it counts them
  int64_t executed = 0;                    // pairs in the tiles that are visited
  std::string notes;                       // lines of the part that made the maps
};

SeenKeys seen_keys(const KeptMaps&, int head, int64_t time);
// Adds the pairs in map number `map` of each pass.
void add_seen(const AttentionMaps&, int64_t map, SeenKeys&);

// Heads that are attended in one launch a pass, and their log-sum-exps.
struct AttendedHeads {
  AttentionForward forward;
  Tensor lse;
};

struct HeadGradients {
  HeadsView dq, dk, dv;  // written
  HeadsView dy;
};

// Launches `forward` with an lse of its own.
AttendedHeads attend(Ctx&, const AttentionForward& forward);
void attend_backward(Ctx&, const AttendedHeads&, const HeadGradients&);

// Maps of one batch for some heads of a layer.
class DynamicMaps {
 public:
  virtual ~DynamicMaps() = default;

  // The backward pass of attend(), with the gradients of all heads. The maps must live until then.
  using Backward = std::function<void(Ctx&, const HeadGradients& all)>;

  // Attends with its heads out of `all`, whose maps are empty.
  virtual Backward attend(Ctx&, const AttentionForward& all) const = 0;
  // Adds what `head` saw, if it is one of these.
  virtual void add_seen(int head, SeenKeys&) const = 0;
};

// What sampling keeps of the dynamic heads of a layer, for B texts.
class DynamicCache {
 public:
  virtual ~DynamicCache() = default;

  // Sets own_list, own_count, list_keys and longest of the block.
  virtual void set(Ctx&, const ParameterStore&, DecodeBlock&) const = 0;
  // The state behind a text from position 0 on, which was sought; q | k | v (1, positions, columns)
  // as projected. Of the sequences first .. first + texts - 1.
  virtual void fill(Ctx&, const ParameterStore&, const TensorView& packed, int64_t first,
                    int64_t texts) const = 0;
  virtual int64_t bytes() const = 0;
};

class DynamicHeads {
 public:
  virtual ~DynamicHeads() = default;

  // The maps of a batch, from q | k | v as projected, before norm and rotation.
  virtual std::vector<std::shared_ptr<const DynamicMaps>> maps(Ctx&, const ParameterStore&,
                                                               MapCache&,
                                                               const Tensor& packed) const = 0;
  // May change q | k | v as rotated, in place.
  virtual void rotated(Ctx&, const Tensor& packed) const = 0;
  // Bytes that maps() of a batch keeps until the backward pass.
  virtual int64_t bytes(int64_t batch, int64_t time, bool training) const = 0;
  // position: of the step, in the queue's memory.
  virtual std::unique_ptr<DynamicCache> make_cache(Device&, int64_t batch, int64_t length,
                                                   const int32_t* position) const = 0;
};

// A layer that may have such heads.
struct DynamicLayer {
  const AttentionPattern* pattern = nullptr;
  AttentionShape shape;
  int64_t context = 0;  // of the model
  uint64_t seed = 0;    // of the config
  uint32_t number = 0;  // of the layer
  bool normed = false;  // queries and keys have a norm
};

// null where no head of the layer is dynamic. Parameters get names that begin with `name`.
using MakeDynamicHeads = std::unique_ptr<DynamicHeads> (*)(ParameterStore&, const std::string& name,
                                                           const DynamicLayer&);
std::unique_ptr<DynamicHeads> make_dynamic_heads(ParameterStore&, const std::string& name,
                                                 const DynamicLayer&);
// For the part that brings patterns with dynamic heads.
void set_dynamic_heads(MakeDynamicHeads);
}  // namespace weft
