// SPDX-License-Identifier: MIT
// How ranks share the optimizer's state and its work, and the buckets in which gradients are
// all-reduced.
#pragma once

#include "src/parameters.h"
#include "src/ranks/communicator.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {
struct TrainConfig;

// Whether a range of `size` elements is large enough to start an all-reduce. `left` elements remain
// after it, and `least` is the size aimed at. Ranges get shorter towards the end, as the last
// all-reduce overlaps with nothing.
inline bool enough(int64_t size, int64_t left, int64_t least) {
  return least > 0 && size >= std::min(least, std::max<int64_t>(left, 1));
}

// ZeRO-1 (Rajbhandari et al. 2020, arXiv 1910.02054, section 5.1): each rank keeps optimizer state
// and master weights of its own part. Decayed parameters form ranges of at least `least` elements
// (0: one range). A range is cut into one piece a rank, equal multiples of 8 elements. Biases and
// norms are kept whole by every rank.
class Sharding : public Sharing {
 public:
  // Null when the communicator is null or has one rank. The communicator must outlive the store.
  static std::shared_ptr<Sharding> make(Communicator*, int64_t least = 0);

  Sharding(Communicator& communicator, int64_t least)
      : communicator_(communicator),
        least_(least) {}

  // The ranges that are cut into pieces, ascending, from 0 to decayed().
  std::span<const GradientRange> shards() const { return shards_; }

  int64_t unit() const override { return kAlign * communicator_.size(); }

  int64_t begin_parameter(std::span<const ParamInfo>, std::size_t i, int64_t offset) override;

  int64_t end_of_decayed(int64_t offset) override { return end_range(offset); }

  // This rank's piece of each of the shards(), then the parameters that every rank has whole.
  std::vector<OwnPart> own_parts(int64_t size) const override;
  void gather(const Tensor& block) const override;
  void visit(const ParameterStore&, const Tensor& block, const Visit&) const override;
  std::string text(const ParameterStore&) const override;

 private:
  int64_t end_range(int64_t offset);

  Communicator& communicator_;
  const int64_t least_;
  std::vector<bool> starts_;  // whether each parameter begins a range
  std::vector<GradientRange> shards_;
};

// The shards() of the store's Sharding; empty without one.
std::span<const GradientRange> shards_of(const ParameterStore&);
// What state_bytes() would be without sharding.
int64_t whole_state_bytes(const ParameterStore&);
// The tensors whose bits must be equal on every rank: the weights.
std::vector<TensorView> replicated(const ParameterStore&);

// update_parameters() of several ranks. Collective: each rank updates its own parts, computes the
// directions of a share of the matrices, and gets all weights.
void update_by_ranks(Ctx&, ParameterStore&, const TrainConfig&, Communicator&);

// Divides the flat gradient block into the buckets that ranks all-reduce.
// A backward pass completes parameters from last to first. Decayed parameters lie in order, so
// those between two calls of Ctx::gradients_complete_from are one range. A bucket is the shortest
// such range of at least `least` elements. Undecayed parameters, and those before the first call,
// come last. With `least` 0 there is one bucket, at the end. With shards(), a bucket consists of
// whole shards, or of the rest.
class GradientBuckets {
 public:
  // The store must outlive this object.
  GradientBuckets(const ParameterStore& store, int64_t least)
      : store_(store),
        shards_(shards_of(store)),
        least_(least) {
    begin();
  }

  void begin() { from_ = store_.decayed(); }  // of a backward pass

  // All parameters numbered `first` and above are complete. Returns the range to reduce now, empty
  // when the next bucket is not complete yet.
  GradientRange passed(int32_t first);
  // All parameters are complete. Returns the ranges that remain, adjacent ones joined.
  std::vector<GradientRange> rest();

 private:
  const ParameterStore& store_;
  std::span<const GradientRange> shards_;
  int64_t least_, from_ = 0;  // decayed gradients before from_ are not reduced yet
};
}  // namespace weft
