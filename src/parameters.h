// SPDX-License-Identifier: MIT
// ParameterStore: all weights of a model in flat blocks (master, compute copy, gradients, m, v,
// EMA), so that clipping, the optimizer, checkpoints and reductions over GPUs are each one call.
#pragma once

#include "src/device.h"
#include "src/tape.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

namespace weft {
// Initial values of a parameter: N(0, std^2), drawn by Philox from (seed, number of the parameter,
// element), or a constant.
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
  matrix,   // the same, for an optimizer of matrices; all of them are neighbours in the flat blocks
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

// Elements. Every parameter starts at a multiple, so kernels may move f16 in pieces of 16 bytes.
inline constexpr int64_t kAlign = 8;

inline int64_t aligned(int64_t n, int64_t to = kAlign) { return (n + to - 1) / to * to; }

// Elements [begin, end) of the flat blocks.
struct GradientRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }

  bool operator==(const GradientRange&) const = default;
};

// Elements of the flat blocks that this process updates: `size` from `begin` on. In blocks that
// hold the process's own parts only, they begin at `state`.
struct OwnPart {
  int64_t begin = 0, size = 0, state = 0;
  bool operator==(const OwnPart&) const = default;
};

class ParameterStore;

// How processes share what the optimizer keeps: each has master weights, m, v and moving average of
// its own parts alone. A part brings it.
class Sharing {
 public:
  virtual ~Sharing() = default;

  // While the store lays out its blocks: where parameter `i` may begin, at `offset` or later, and
  // where the decayed parameters end. `unit()`: ParamKind::matrix begins at multiples of it.
  virtual int64_t unit() const = 0;
  virtual int64_t begin_parameter(std::span<const ParamInfo>, std::size_t i, int64_t offset) = 0;
  virtual int64_t end_of_decayed(int64_t offset) = 0;

  // Of a block of `size` elements; the last part is what is not decayed.
  virtual std::vector<OwnPart> own_parts(int64_t size) const = 0;
  // Collective: every process gets the parts of all in a whole block.
  virtual void gather(const Tensor& block) const = 0;
  // ParameterStore::visit_whole() of a block of own parts; gathers in the place of the gradients.
  using Visit = std::function<void(const ParamInfo&, const TensorView&)>;
  virtual void visit(const ParameterStore&, const Tensor& block, const Visit&) const = 0;
  // For people: what this process keeps of the optimizer's state, and what all would.
  virtual std::string text(const ParameterStore&) const = 0;
};

class ParameterStore {
 public:
  // Adds a parameter; constructors of layers call it. Weight decay acts on rank 2 and more. Throws
  // Error for a name that is taken.
  Param add(std::string name, Shape shape, Init init, ParamKind kind = ParamKind::compute);

  // Lays out and allocates the blocks and draws initial values; once, after all add(). `compute`
  // f64 makes all blocks f64, for tests. Without `training` there are no gradients and no optimizer
  // state. `sharing`: null for a process that has everything; otherwise the call is collective.
  void allocate(Device&, DType compute, uint64_t seed, bool training, bool ema,
                std::shared_ptr<Sharing> sharing = nullptr);

  Device& device() const { return *device_; }

  const Sharing* sharing() const { return sharing_.get(); }

  // What this process updates: all, or its share.
  std::vector<OwnPart> own_parts() const;

  // The elements of ParamKind::matrix: the same matrices for each residual block, at equal
  // distances. Empty where AdamW updates all.
  GradientRange matrices() const { return matrices_; }

  // The slice of `block` (any of those below) that holds a part.
  Tensor slice_of(const Tensor& block, const OwnPart&) const;

  // Whether this process has the whole block.
  bool has_whole(const Tensor& block) const { return block.size() == size_of_block_; }

  // Calls `visit` for every parameter with all its values in `block`. With sharing it is collective
  // and gathers in the place of the gradients, which are lost.
  void visit_whole(const Tensor& block, const Sharing::Visit& visit) const;
  // Copies from the host what this process keeps of a parameter in `block`.
  void upload(const Tensor& block, const ParamInfo&, const void* values) const;
  // Bytes on this process of m, v, ema and, where it is not compute(), master.
  int64_t state_bytes() const;
  std::string state_text() const;  // for people

  // Marks all gradients "not written": the first backward kernel of a step stores, later ones add.
  void begin_step();
  // Zeroes gradients that nothing has written: all, or those whose slices begin in [begin, end).
  void finish_gradients(Ctx&);
  void finish_gradients(int64_t begin, int64_t end);
  // Writes compute() from master(). Call it after weights are loaded, drawn, or replaced by their
  // moving average. Collective with sharing.
  void refresh_compute(Ctx&) const;

  std::span<const ParamInfo> params() const { return params_; }

  // elements of all parameters; the blocks add padding
  int64_t size() const { return size_; }

  // elements of a block with weight decay: the first ones
  int64_t decayed() const { return decayed_; }

  DType compute_dtype() const { return compute_dtype_; }

  // Flat blocks; null views where absent. compute() is master() when the compute type is wide. With
  // sharing m(), v() and ema() are own_parts() alone, and so is master() where compute() is
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
  void lay_out();
  void draw_initial_values(uint64_t seed);

  Device* device_ = nullptr;  // given by allocate()
  std::shared_ptr<Sharing> sharing_;
  std::vector<ParamInfo> params_;
  std::unordered_set<std::string> names_;
  std::vector<std::shared_ptr<Gradient>> gradient_of_;  // by parameter: its slice of gradients_
  int64_t size_ = 0, decayed_ = 0, size_of_block_ = 0;
  GradientRange matrices_;
  DType compute_dtype_ = DType::f32;
  Tensor master_, compute_, gradients_, m_, v_, ema_;
};
}  // namespace weft
