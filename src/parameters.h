// SPDX-License-Identifier: MIT
// ParameterStore: all weights of a model in five flat blocks (master, compute copy, gradients, m, v; a sixth
// for EMA), so that clipping, the optimizer, checkpoints and reductions over GPUs are each one call.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/communicator.h"
#include "src/device.h"
#include "src/tape.h"

namespace weft {

// How a parameter starts: N(0, std^2) from Philox with (seed, parameter number, element), or a constant.
struct Init {
  double std = 0, value = 0;
  static Init normal(double std) { return {std, 0}; }
  static Init constant(double value) { return {0, value}; }
};

struct Param {  // a handle: the number of the parameter in its store
  std::int32_t index = -1;
};

enum class ParamKind : std::uint8_t {
  compute,  // read by kernels in the compute type (weights, biases, embeddings)
  wide,     // read in wide(T), straight from the master copy (layernorm)
};

struct ParamInfo {
  std::string name;  // "blocks.3.attention.qkv.weight": the path in a checkpoint too
  Shape shape;
  Init init;
  ParamKind kind = ParamKind::compute;
  bool decay = false;       // weight decay: tensors of rank >= 2
  std::int64_t offset = 0;  // in the flat blocks, in elements, a multiple of 8; decayed parameters come first
  std::int64_t size = 0;
};

// Elements of the flat blocks that this process updates, and where their state is in m, v and ema.
struct OwnPart {
  std::int64_t begin = 0, size = 0, state = 0;
};

class ParameterStore {
 public:
  // Called by constructors of layers; rank >= 2 is decayed. Names must be new.
  Param add(std::string name, Shape shape, Init init, ParamKind kind = ParamKind::compute);

  // Once, after all add(): lays out the blocks, allocates them, draws initial values. `compute` f64 makes
  // everything f64 (tests). Without `training` there are no gradients and no optimizer state. With `shards`
  // each rank keeps m, v and ema for a part of its own (ZeRO-1: Rajbhandari et al. 2020, arXiv 1910.02054,
  // section 5.1): an equal piece of what has weight decay; the rest, biases and norms, every rank has whole.
  void allocate(Device&, DType compute, std::uint64_t seed, bool training, bool ema,
                Communicator* shards = nullptr);

  // What this process updates: with shards its piece and the rest, otherwise all.
  std::vector<OwnPart> own_parts() const;
  // With shards, collective, otherwise nothing. After an update: every rank gets the weights as kernels read
  // them from those that updated them ...
  void share_weights() const;
  // ... and before master() is read: the same for the master weights, which are as old as the last call.
  void share_master() const;
  // The whole of a flat block: with shards, collective, a copy for those of which this rank has a part (m, v,
  // ema), otherwise the block itself.
  Tensor whole(const Tensor& block) const;
  // The other way round: what this rank keeps of a whole block.
  void keep(const Tensor& block, const Tensor& whole) const;

  // Marks all gradients "not written": the first backward kernel of a step stores, later ones (and later
  // micro-batches, when this is not called between them) add.
  void begin_step();
  // Sets gradients that nothing has written to zero (parameters out of use at this context length).
  void finish_gradients(Ctx&);
  // The same for those whose slices begin in [begin, end) of the block.
  void finish_gradients(std::int64_t begin, std::int64_t end);
  // Casts master to compute; after load, init, or a switch to the EMA weights.
  void refresh_compute(Ctx&);

  std::span<const ParamInfo> params() const { return params_; }
  std::int64_t size() const { return size_; }        // elements of all parameters; the blocks add padding
  std::int64_t decayed() const { return decayed_; }  // elements of a block with weight decay: the first ones
  DType compute_dtype() const { return compute_dtype_; }

  // Flat blocks; null views where absent. compute() is master() when the compute type is wide.
  const Tensor& master() const { return master_; }
  const Tensor& compute() const { return compute_; }
  const Tensor& gradients() const { return gradients_; }
  const Tensor& m() const { return m_; }
  const Tensor& v() const { return v_; }
  const Tensor& ema() const { return ema_; }

  // The weight as kernels read it, with its slice of the gradients as slot (none without training).
  Var var(Param) const;

 private:
  std::int64_t lay_out();  // the size of a block, padding included
  bool is_part(const Tensor& block) const { return block && block.size() != master_.size(); }
  void draw_initial_values(std::uint64_t seed);

  Device* device_ = nullptr;  // given by allocate()
  Communicator* shards_ = nullptr;
  std::vector<ParamInfo> params_;
  std::vector<std::shared_ptr<GradSlot>> slots_;
  std::int64_t size_ = 0, decayed_ = 0;
  DType compute_dtype_ = DType::f32;
  Tensor master_, compute_, gradients_, m_, v_, ema_;
};

}  // namespace weft
