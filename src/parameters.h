// SPDX-License-Identifier: MIT
// ParameterStore: all weights of a model in flat blocks (master, compute copy, gradients, m, v,
// EMA), so that clipping, the optimizer, checkpoints and reductions over GPUs are each one call.
#pragma once

#include "src/ranks/communicator.h"
#include "src/tape.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

namespace weft {
// How a parameter starts: N(0, std^2) from Philox with (seed, parameter number, element), or a
// constant.
struct Init {
  double std = 0, value = 0;

  static Init normal(double std) { return {std, 0}; }

  static Init constant(double value) { return {0, value}; }
};

struct Param {  // a handle: the number of the parameter in its store
  int32_t index = -1;
};

enum class ParamKind : uint8_t {
  compute,  // read by kernels in the compute type (weights, biases, embeddings)
  muon,     // the same, a matrix that Muon updates; all of them are neighbours in the flat blocks
  wide,     // read in wide(T), straight from the master copy (layernorm)
};

struct ParamInfo {
  std::string name;  // "blocks.3.attention.qkv.weight": the path in a checkpoint too
  Shape shape;
  Init init;
  ParamKind kind = ParamKind::compute;
  bool decay = false;  // weight decay: tensors of rank >= 2
  // in the flat blocks, in elements, a multiple of 8; decayed parameters come first
  int64_t offset = 0;
  int64_t size = 0;
};

// elements of the flat gradient block, and of the weights as kernels read them
struct GradientRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }

  bool operator==(const GradientRange&) const = default;
};

// Whether `size` elements start an all-reduce, with `left` to come and at least `least` wanted.
// Ranges shrink towards the end: the last all-reduce overlaps with nothing.
inline bool enough(int64_t size, int64_t left, int64_t least) {
  return least > 0 && size >= std::min(least, std::max<int64_t>(left, 1));
}

// Elements of the flat blocks that this process updates, and their place in blocks that hold own
// parts alone.
struct OwnPart {
  int64_t begin = 0, size = 0, state = 0;
  bool operator==(const OwnPart&) const = default;
};

// ZeRO-1 (Rajbhandari et al. 2020, arXiv 1910.02054, section 5.1): each rank keeps optimizer state
// and master weights of its own part. Decayed parameters form ranges of at least `least` elements
// (0: one range), cut into equal pieces of eights, one a rank. Every rank has biases and norms
// whole.
struct Sharding {
  Communicator* communicator = nullptr;  // null, or of one rank: no sharding
  int64_t least = 0;
};

class ParameterStore {
 public:
  // Called by constructors of layers; rank >= 2 is decayed. Names must be new.
  Param add(std::string name, Shape shape, Init init, ParamKind kind = ParamKind::compute);

  // Once, after all add(): lays out and allocates the blocks, draws initial values. `compute` f64
  // makes all f64 (tests). Without `training`: no gradients, no optimizer state. Collective with
  // `sharding`.
  void allocate(Device&, DType compute, uint64_t seed, bool training, bool ema, Sharding = {});

  // The ranges that are cut into pieces, ascending, from 0 to decayed(); none without sharding.
  std::span<const GradientRange> shards() const { return shards_; }

  // What this process updates: its piece of each of the shards(), then the rest; without sharding
  // all.
  std::vector<OwnPart> own_parts() const;

  // The elements that Muon updates: n blocks of matrices, alike and at equal distances; none
  // without it.
  GradientRange muon() const { return muon_; }

  // The slice of `block` (any of those below) that holds a part.
  Tensor slice_of(const Tensor& block, const OwnPart&) const;
  // Calls `visit` for every parameter with all its values in `block`. With sharding it is
  // collective and gathers in the place of the gradients, which are lost.
  using Visit = std::function<void(const ParamInfo&, const TensorView&)>;
  void visit_whole(const Tensor& block, const Visit& visit) const;
  // Copies from the host what this process keeps of a parameter in `block`.
  void upload(const Tensor& block, const ParamInfo&, const void* values) const;
  // Bytes of master weights apart from compute(), m, v and ema: on this process, and without
  // sharding.
  int64_t state_bytes() const;
  int64_t whole_state_bytes() const;
  // What must be the same bits on every rank: the weights.
  std::vector<TensorView> replicated() const;

  // Marks all gradients "not written": the first backward kernel of a step stores, later ones add.
  void begin_step();
  // Zeroes gradients that nothing has written: all, or those whose slices begin in [begin, end).
  void finish_gradients(Ctx&);
  void finish_gradients(int64_t begin, int64_t end);
  // Makes compute of master; after load, init, or a switch to the EMA weights. Collective with
  // sharding.
  void refresh_compute(Ctx&) const;

  std::span<const ParamInfo> params() const { return params_; }

  // elements of all parameters; the blocks add padding
  int64_t size() const { return size_; }

  // elements of a block with weight decay: the first ones
  int64_t decayed() const { return decayed_; }

  DType compute_dtype() const { return compute_dtype_; }

  // Flat blocks; null views where absent. compute() is master() when the compute type is wide. With
  // sharding m(), v() and ema() are own_parts() alone, and so is master() where compute() is
  // another block.
  const Tensor& master() const { return master_; }

  const Tensor& compute() const { return compute_; }

  const Tensor& gradients() const { return gradients_; }

  const Tensor& m() const { return m_; }

  const Tensor& v() const { return v_; }

  const Tensor& ema() const { return ema_; }

  // The weight as kernels read it, with its slice of the gradients (none without training).
  Var var(Param) const;

 private:
  void lay_out(int64_t least);

  bool is_part(const Tensor& block) const { return block.size() != size_of_block_; }

  void draw_initial_values(uint64_t seed);

  Device* device_ = nullptr;              // given by allocate()
  Communicator* communicator_ = nullptr;  // with sharding
  std::vector<ParamInfo> params_;
  std::unordered_set<std::string> names_;
  std::vector<GradientRange> shards_;
  std::vector<std::shared_ptr<Gradient>> gradient_of_;  // by parameter: its slice of gradients_
  int64_t size_ = 0, decayed_ = 0, size_of_block_ = 0;
  GradientRange muon_;
  DType compute_dtype_ = DType::f32;
  Tensor master_, compute_, gradients_, m_, v_, ema_;
};

// The flat gradient block in the parts in which processes that train together all-reduce it.
// Backward passes complete parameters from last to first. Decayed parameters lie in order, so those
// between two marks (Ctx::mark) are one range. A bucket is the shortest such range of `least`
// elements, or of as many as are left to come. Undecayed parameters and those before the first mark
// come last. `least` 0: one range, last. With shards(), a bucket is whole shards, or what they
// leave out.
class GradientBuckets {
 public:
  // The store outlives it.
  GradientBuckets(const ParameterStore& store, int64_t least)
      : store_(store),
        least_(least) {
    begin();
  }

  void begin() { from_ = store_.decayed(); }  // of a backward pass

  // All parameters numbered `first` and above are complete: what there is to reduce now; empty:
  // nothing yet.
  GradientRange passed(int32_t first);
  // All are: the ranges that remain.
  std::vector<GradientRange> rest();  // neighbours as one

 private:
  const ParameterStore& store_;
  int64_t least_, from_ = 0;  // from_: what lies before it in the decayed part waits
};
}  // namespace weft
