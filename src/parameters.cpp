// SPDX-License-Identifier: MIT
// Layout of the flat blocks and initial values.
#include "src/parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "kernels/philox.h"
#include "kernels/pointwise.h"

namespace weft {

namespace {

constexpr std::int64_t kAlign = 8;  // elements: every parameter starts where 16-byte access to f16 is allowed
constexpr std::uint32_t kInitDraw = 0xffffffff;  // apart from the counters of dropout under the same seed

std::int64_t aligned(std::int64_t n, std::int64_t to = kAlign) { return (n + to - 1) / to * to; }

// Elements 4 block .. 4 block + 3 of parameter `number`: the four normals of a Philox block, by Box and
// Muller (1958), in double, so that they depend on neither device nor precision.
std::array<double, 4> normals_of(std::uint64_t seed, std::uint32_t number, std::int64_t block) {
  const auto b = static_cast<std::uint64_t>(block);
  const Philox4 bits = philox4x32(
      {static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32), number, kInitDraw}, seed);
  std::array<double, 4> normals;
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const double u = (bits[pair] + 0.5) * 0x1p-32,
                 angle = 2 * std::numbers::pi * (bits[pair + 1] + 0.5) * 0x1p-32;
    const double radius = std::sqrt(-2 * std::log(u));
    normals[pair] = radius * std::cos(angle);
    normals[pair + 1] = radius * std::sin(angle);
  }
  return normals;
}

template <class T>
void draw(const ParamInfo& p, std::uint32_t number, std::uint64_t seed, T* out) {
  if (p.init.std == 0) {
    std::fill(out, out + p.size, static_cast<T>(p.init.value));
    return;
  }
#pragma omp parallel for schedule(static) if (p.size > 10000)
  for (std::int64_t first = 0; first < p.size; first += 4) {
    const std::array<double, 4> normals = normals_of(seed, number, first / 4);
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(4, p.size - first));
    for (std::size_t i = 0; i < count; ++i) out[first + i] = static_cast<T>(p.init.std * normals[i]);
  }
}

}  // namespace

Param ParameterStore::add(std::string name, Shape shape, Init init, ParamKind kind) {
  WEFT_CHECK(!device_, "parameter '", name, "' is added after allocate()");
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) {
    WEFT_CHECK(extent > 0, "parameter '", name, "': every axis must be at least 1, got ", extent);
    size *= extent;
  }
  for (const ParamInfo& p : params_) WEFT_CHECK(p.name != name, "parameter '", name, "' exists already");
  const bool decay = shape.size() >= 2;
  params_.push_back({std::move(name), std::move(shape), init, kind, decay, 0, size});
  return {static_cast<std::int32_t>(params_.size()) - 1};
}

std::int64_t ParameterStore::lay_out() {
  std::int64_t offset = 0;
  for (const bool decay : {true, false}) {
    for (ParamInfo& p : params_) {
      if (p.decay != decay) continue;
      p.offset = offset;
      offset = aligned(offset + p.size);
      size_ += p.size;
    }
    if (decay && shards_) offset = aligned(offset, kAlign * shards_->size());
    if (decay) decayed_ = offset;
  }
  return offset;
}

void ParameterStore::allocate(Device& device, DType compute, std::uint64_t seed, bool training, bool ema,
                              Communicator* shards) {
  WEFT_CHECK(!device_, "ParameterStore::allocate is called once");
  WEFT_CHECK(!params_.empty(), "a model without parameters");
  device_ = &device;
  compute_dtype_ = compute;
  if (shards && shards->size() > 1) shards_ = shards;
  const std::int64_t block = lay_out(),
                     part = shards_ ? decayed_ / shards_->size() + block - decayed_ : block;
  const auto make = [&](const char* name, DType dtype, std::int64_t size) {
    const Tensor tensor(*device.pool, {size}, dtype, name);
    device.zero(tensor);
    return tensor;
  };
  master_ = make("weights", wide(compute), block);
  compute_ = compute == wide(compute) ? master_ : make("weights", compute, block);
  draw_initial_values(seed);
  if (training) {
    gradients_ = make("gradients", wide(compute), block);
    m_ = make("optimizer", wide(compute), part);
    v_ = make("optimizer", wide(compute), part);
    for (const ParamInfo& p : params_) {
      slots_.push_back(
          std::make_shared<GradSlot>(GradSlot{gradients_.slice(p.offset, p.shape), false, true}));
    }
  }
  if (ema) {
    ema_ = make("moving average", wide(compute), part);
    keep(ema_, master_);
  }
  Ctx ctx{.queue = &device.queue, .pool = device.pool.get()};
  refresh_compute(ctx);
  device.synchronize();
}

void ParameterStore::draw_initial_values(std::uint64_t seed) {
  const auto upload = [&]<class T>() {
    std::vector<T> values;
    for (std::size_t i = 0; i < params_.size(); ++i) {
      const ParamInfo& p = params_[i];
      values.resize(static_cast<std::size_t>(p.size));
      draw(p, static_cast<std::uint32_t>(i), seed, values.data());
      device_->upload(master_.slice(p.offset, p.shape), values.data());
    }
  };
  master_.dtype() == DType::f64 ? upload.operator()<double>() : upload.operator()<float>();
}

void ParameterStore::begin_step() {
  for (const auto& slot : slots_) slot->written = false;
}

void ParameterStore::finish_gradients(Ctx&) { finish_gradients(0, gradients_.size()); }

void ParameterStore::finish_gradients(std::int64_t begin, std::int64_t end) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    GradSlot& slot = *slots_[i];
    if (slot.written || params_[i].offset < begin || params_[i].offset >= end) continue;
    device_->zero(slot.grad);
    slot.written = true;
  }
}

void ParameterStore::refresh_compute(Ctx& ctx) {
  if (compute_.dtype() != master_.dtype()) ctx.launch(Cast{.y = compute_, .x = master_});
}

std::vector<OwnPart> ParameterStore::own_parts() const {
  const std::int64_t size = master_.size();
  if (!shards_) return {{0, size, 0}};
  const std::int64_t piece = decayed_ / shards_->size();
  return {{shards_->rank() * piece, piece, 0}, {decayed_, size - decayed_, piece}};
}

void ParameterStore::share_weights() const {
  if (shards_ && decayed_ > 0) shards_->all_gather(compute_.slice(0, {decayed_}));
}

void ParameterStore::share_master() const {
  if (shards_ && decayed_ > 0) shards_->all_gather(master_.slice(0, {decayed_}));
}

Tensor ParameterStore::whole(const Tensor& block) const {
  if (!is_part(block)) return block;
  const Tensor all(*device_->pool, master_.shape(), block.dtype(), "optimizer, whole");
  device_->zero(all);
  for (const OwnPart& p : own_parts())
    if (p.size > 0)
      launch(device_->queue, Add{.out = {all.slice(p.begin, {p.size})}, .x = block.slice(p.state, {p.size})});
  if (decayed_ > 0) shards_->all_gather(all.slice(0, {decayed_}));
  return all;
}

void ParameterStore::keep(const Tensor& block, const Tensor& whole) const {
  for (const OwnPart& p : own_parts())
    if (p.size > 0)
      launch(device_->queue,
             Add{.out = {block.slice(p.state, {p.size})}, .x = whole.slice(p.begin, {p.size})});
}

Var ParameterStore::var(Param param) const {
  WEFT_CHECK(device_ && param.index >= 0 && param.index < static_cast<std::int32_t>(params_.size()),
             "ParameterStore::var: no parameter ", param.index, ", or allocate() was not called");
  const auto i = static_cast<std::size_t>(param.index);
  const ParamInfo& p = params_[i];
  const Tensor& block = p.kind == ParamKind::wide ? master_ : compute_;
  return {block.slice(p.offset, p.shape), slots_.empty() ? nullptr : slots_[i]};
}

}  // namespace weft
