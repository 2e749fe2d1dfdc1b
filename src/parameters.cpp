// SPDX-License-Identifier: MIT
#include "src/parameters.h"

#include "kernels/layers/pointwise.h"
#include "kernels/philox.h"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
// apart from the counters of dropout under the same seed
constexpr uint32_t kInitDraw = 0xffffffff;

// Elements 4 block .. 4 block + 3 of parameter `number`, in double on every device and in every
// precision.
std::array<double, 4> normals_at(uint64_t seed, uint32_t number, int64_t block) {
  const auto b = static_cast<uint64_t>(block);
  return normals_of(philox4x32(
      {static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32), number, kInitDraw}, seed));
}

template <class T>
void draw(const ParamInfo& p, uint32_t number, uint64_t seed, T* out) {
  if (p.init.std == 0) {
    std::fill(out, out + p.size, static_cast<T>(p.init.value));
    return;
  }
#pragma omp parallel for schedule(static) if (p.size > 10000)
  for (int64_t first = 0; first < p.size; first += 4) {
    const std::array<double, 4> normals = normals_at(seed, number, first / 4);
    const auto count = static_cast<std::size_t>(std::min<int64_t>(4, p.size - first));
    for (std::size_t i = 0; i < count; ++i)
      out[first + i] = static_cast<T>(p.init.std * normals[i]);
  }
}
}  // namespace

Param ParameterStore::add(std::string name, Shape shape, Init init, ParamKind kind) {
  WEFT_CHECK(!device_, "parameter '", name, "' is added after allocate()");
  int64_t size = 1;
  for (const int64_t extent : shape) {
    WEFT_CHECK(extent > 0, "parameter '", name, "': every axis must be at least 1, got ", extent);
    size *= extent;
  }
  WEFT_CHECK(names_.insert(name).second, "parameter '", name, "' exists already");
  const bool decay = shape.size() >= 2;
  WEFT_CHECK(kind != ParamKind::matrix || shape.size() == 2, "parameter '", name,
             "': an optimizer of matrices takes rank 2, got rank ", shape.size());
  params_.push_back({std::move(name), std::move(shape), init, kind, decay, 0, size});
  return {static_cast<int32_t>(params_.size()) - 1};
}

void ParameterStore::lay_out() {
  int64_t offset = 0;
  for (const bool decay : {true, false}) {
    for (std::size_t i = 0; i < params_.size(); ++i) {
      ParamInfo& p = params_[i];
      if (p.decay != decay) continue;
      const int64_t unit = p.kind == ParamKind::matrix && sharing_ ? sharing_->unit() : kAlign;
      offset = aligned(offset, unit);
      if (sharing_) offset = sharing_->begin_parameter(params_, i, offset);
      p.offset = offset;
      offset = aligned(offset + p.size, unit);
      if (p.kind == ParamKind::matrix) {
        matrices_ = {matrices_.size() > 0 ? matrices_.begin : p.offset, offset};
      }
      size_ += p.size;
    }
    if (!decay) continue;
    if (sharing_) offset = sharing_->end_of_decayed(offset);
    decayed_ = offset;
  }
  size_of_block_ = offset;
}

void ParameterStore::allocate(Device& device, DType compute, uint64_t seed, bool training, bool ema,
                              std::shared_ptr<Sharing> sharing) {
  WEFT_CHECK(!device_, "ParameterStore::allocate is called once");
  WEFT_CHECK(!params_.empty(), "a model without parameters");
  device_ = &device;
  compute_dtype_ = compute;
  sharing_ = std::move(sharing);
  lay_out();
  const int64_t part = own_parts().back().state + own_parts().back().size;
  const auto make = [&](const char* name, DType dtype, int64_t size) {
    const Tensor tensor(*device.pool, {size}, dtype, name);
    device.zero(tensor);
    return tensor;
  };
  compute_ = make("weights", compute, size_of_block_);
  master_ = compute == wide(compute) ? compute_ : make("master weights", wide(compute), part);
  draw_initial_values(seed);
  if (training) {
    gradients_ = make("gradients", wide(compute), size_of_block_);
    m_ = make("optimizer", wide(compute), part);
    v_ = make("optimizer", wide(compute), part);
    for (const ParamInfo& p : params_)
      gradient_of_.push_back(std::make_shared<Gradient>(
          Gradient{.tensor = gradients_.slice(p.offset, p.shape), .pinned = true}));
  }
  if (ema) {
    ema_ = make("moving average", wide(compute), part);
    for (const OwnPart& p : own_parts())
      launch(device.queue, Add{.out = {slice_of(ema_, p)}, .x = slice_of(master_, p)});
  }
  Ctx ctx{.queue = &device.queue, .pool = device.pool.get()};
  refresh_compute(ctx);
  device.synchronize();
}

void ParameterStore::draw_initial_values(uint64_t seed) {
  const auto draw_all = [&]<class T>() {
    std::vector<T> values;
    for (std::size_t i = 0; i < params_.size(); ++i) {
      const ParamInfo& p = params_[i];
      values.resize(static_cast<std::size_t>(p.size));
      draw(p, static_cast<uint32_t>(i), seed, values.data());
      upload(master_, p, values.data());
    }
  };
  master_.dtype() == DType::f64 ? draw_all.operator()<double>() : draw_all.operator()<float>();
}

void ParameterStore::begin_step() {
  for (const auto& gradient : gradient_of_) gradient->written = false;
}

void ParameterStore::finish_gradients(Ctx&) { finish_gradients(0, gradients_.size()); }

void ParameterStore::finish_gradients(int64_t begin, int64_t end) {
  for (std::size_t i = 0; i < gradient_of_.size(); ++i) {
    Gradient& gradient = *gradient_of_[i];
    if (gradient.written || params_[i].offset < begin || params_[i].offset >= end) continue;
    device_->zero(gradient.tensor);
    gradient.written = true;
  }
}

void ParameterStore::refresh_compute(Ctx& ctx) const {
  for (const OwnPart& p : own_parts())
    if (compute_.dtype() != master_.dtype() && p.size > 0)
      ctx.launch(Cast{.y = slice_of(compute_, p), .x = slice_of(master_, p)});
  if (sharing_) sharing_->gather(compute_);
}

std::vector<OwnPart> ParameterStore::own_parts() const {
  if (sharing_) return sharing_->own_parts(size_of_block_);
  return {{0, size_of_block_, 0}};
}

Tensor ParameterStore::slice_of(const Tensor& block, const OwnPart& part) const {
  return block.slice(has_whole(block) ? part.begin : part.state, {part.size});
}

void ParameterStore::visit_whole(const Tensor& block, const Sharing::Visit& visit) const {
  if (!has_whole(block)) return sharing_->visit(*this, block, visit);
  for (const ParamInfo& p : params_) visit(p, block.slice(p.offset, p.shape));
}

void ParameterStore::upload(const Tensor& block, const ParamInfo& p, const void* values) const {
  for (const OwnPart& part : own_parts()) {
    const int64_t begin = std::max(part.begin, p.offset),
                  end = std::min(part.begin + part.size, p.offset + p.size);
    if (begin >= end) continue;
    device_->upload(slice_of(block, part).slice(begin - part.begin, {end - begin}),
                    static_cast<const char*>(values) + (begin - p.offset) * size_of(block.dtype()));
  }
}

int64_t ParameterStore::state_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& block : {master_, m_, v_, ema_})
    if (block && block.view().data != compute_.view().data) bytes += block.view().bytes();
  return bytes;
}

std::string ParameterStore::state_text() const {
  return sharing_ ? sharing_->text(*this) : bytes_text(state_bytes()) + " of state";
}

Var ParameterStore::var(Param param) const {
  WEFT_CHECK(device_ && param.index >= 0 && param.index < static_cast<int32_t>(params_.size()),
             "ParameterStore::var: no parameter ", param.index, ", or allocate() was not called");
  const auto i = static_cast<std::size_t>(param.index);
  const ParamInfo& p = params_[i];
  const bool wide = p.kind == ParamKind::wide;
  const int64_t missing = wide ? size_of_block_ - master_.size() : 0;  // of decayed parameters
  WEFT_CHECK(missing == 0 || !p.decay, "parameter '", p.name,
             "' is read from master weights that are sharded");
  const Tensor value = (wide ? master_ : compute_).slice(p.offset - missing, p.shape);
  return {value, gradient_of_.empty() ? nullptr : gradient_of_[i]};
}
}  // namespace weft
