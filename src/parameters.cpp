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
// elements: every parameter starts where 16-byte access to f16 is allowed
constexpr int64_t kAlign = 8;
// apart from the counters of dropout under the same seed
constexpr uint32_t kInitDraw = 0xffffffff;

int64_t aligned(int64_t n, int64_t to = kAlign) { return (n + to - 1) / to * to; }

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

// Whether each parameter starts a range (Sharding), decided in the order of backward passes: last
// first.
std::vector<bool> starts_of_ranges(std::span<const ParamInfo> params, int64_t least) {
  int64_t left = 0, size = 0;
  for (const ParamInfo& p : params) left += p.decay ? aligned(p.size) : 0;
  std::vector<bool> starts(params.size());
  for (std::size_t i = params.size(); i-- > 0;) {
    if (!params[i].decay) continue;
    size += aligned(params[i].size);
    left -= aligned(params[i].size);
    starts[i] = left == 0 || enough(size, left, least);
    if (starts[i]) size = 0;
  }
  return starts;
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
  WEFT_CHECK(kind != ParamKind::muon || shape.size() == 2, "parameter '", name,
             "': Muon takes matrices");
  params_.push_back({std::move(name), std::move(shape), init, kind, decay, 0, size});
  return {static_cast<int32_t>(params_.size()) - 1};
}

void ParameterStore::lay_out(int64_t least) {
  const std::vector<bool> starts =
      communicator_ ? starts_of_ranges(params_, least) : std::vector<bool>(params_.size());
  int64_t offset = 0;
  const auto end_range = [&] {
    if (shards_.empty()) return;
    offset = aligned(offset, kAlign * communicator_->size());
    shards_.back().end = offset;
  };
  for (const bool decay : {true, false}) {
    for (std::size_t i = 0; i < params_.size(); ++i) {
      ParamInfo& p = params_[i];
      if (p.decay != decay) continue;
      const int64_t unit =
          p.kind == ParamKind::muon && communicator_ ? kAlign * communicator_->size() : kAlign;
      offset = aligned(offset, unit);
      if (starts[i]) {
        end_range();
        shards_.push_back({offset, offset});
      }
      p.offset = offset;
      offset = aligned(offset + p.size, unit);
      if (p.kind == ParamKind::muon) {
        muon_ = {muon_.size() > 0 ? muon_.begin : p.offset, offset};
      }
      size_ += p.size;
    }
    if (!decay) continue;
    end_range();
    decayed_ = offset;
  }
  size_of_block_ = offset;
}

void ParameterStore::allocate(Device& device, DType compute, uint64_t seed, bool training, bool ema,
                              Sharding sharding) {
  WEFT_CHECK(!device_, "ParameterStore::allocate is called once");
  WEFT_CHECK(!params_.empty(), "a model without parameters");
  device_ = &device;
  compute_dtype_ = compute;
  if (sharding.communicator && sharding.communicator->size() > 1)
    communicator_ = sharding.communicator;
  lay_out(sharding.least);
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
  for (const GradientRange& range : shards_)
    communicator_->all_gather(compute_.slice(range.begin, {range.size()}));
}

std::vector<OwnPart> ParameterStore::own_parts() const {
  std::vector<OwnPart> parts;
  int64_t begin = 0, state = 0;
  for (const GradientRange& range : shards_) {
    const int64_t piece = range.size() / communicator_->size();
    parts.push_back({range.begin + communicator_->rank() * piece, piece, state});
    begin = range.end;
    state += piece;
  }
  parts.push_back({begin, size_of_block_ - begin, state});
  return parts;
}

Tensor ParameterStore::slice_of(const Tensor& block, const OwnPart& part) const {
  return block.slice(is_part(block) ? part.state : part.begin, {part.size});
}

void ParameterStore::visit_whole(const Tensor& block, const Visit& visit) const {
  const std::vector<OwnPart> parts = own_parts();
  std::size_t ranges = 0;  // gathered so far
  Tensor whole;            // the last of them
  WEFT_CHECK(!is_part(block) || gradients_,
             "what processes share is gathered in the block of gradients");
  for (const ParamInfo& p : params_) {
    if (!is_part(block)) {
      visit(p, block.slice(p.offset, p.shape));
      continue;
    }
    if (!p.decay) {
      visit(p, block.slice(parts.back().state + p.offset - decayed_, p.shape));
      continue;
    }
    if (ranges == 0 || p.offset >= shards_[ranges - 1].end) {
      const OwnPart& own = parts[ranges];
      whole = gradients_.slice(shards_[ranges].begin, {shards_[ranges].size()});
      launch(device_->queue, Add{.out = {slice_of(gradients_, own)}, .x = slice_of(block, own)});
      communicator_->all_gather(whole);
      ++ranges;
    }
    visit(p, whole.slice(p.offset - shards_[ranges - 1].begin, p.shape));
  }
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

int64_t ParameterStore::whole_state_bytes() const {
  const OwnPart last = own_parts().back();
  return state_bytes() / (last.state + last.size) * size_of_block_;
}

std::vector<TensorView> ParameterStore::replicated() const {
  if (!is_part(master_)) return {master_};
  return {compute_, slice_of(master_, own_parts().back())};
}

Var ParameterStore::var(Param param) const {
  WEFT_CHECK(device_ && param.index >= 0 && param.index < static_cast<int32_t>(params_.size()),
             "ParameterStore::var: no parameter ", param.index, ", or allocate() was not called");
  const auto i = static_cast<std::size_t>(param.index);
  const ParamInfo& p = params_[i];
  const bool whole = p.kind != ParamKind::wide || !is_part(master_);
  WEFT_CHECK(whole || !p.decay, "parameter '", p.name,
             "' is read from master weights that are sharded");
  const Tensor value = p.kind != ParamKind::wide ? compute_.slice(p.offset, p.shape)
                       : whole
                           ? master_.slice(p.offset, p.shape)
                           : master_.slice(own_parts().back().state + p.offset - decayed_, p.shape);
  return {value, gradient_of_.empty() ? nullptr : gradient_of_[i]};
}

GradientRange GradientBuckets::passed(int32_t first) {
  const auto params = store_.params();
  int64_t lowest = from_;
  for (auto i = static_cast<std::size_t>(first); i < params.size(); ++i)
    if (params[i].decay) lowest = std::min(lowest, params[i].offset);
  if (!store_.shards().empty()) {
    const auto complete = std::ranges::find_if(
        store_.shards(), [&](const GradientRange& s) { return s.begin >= lowest; });
    lowest = complete == store_.shards().end() ? from_ : std::min(from_, complete->begin);
  }
  const GradientRange range{lowest, from_};
  if (!enough(range.size(), lowest, least_)) return {};
  from_ = lowest;
  return range;
}

std::vector<GradientRange> GradientBuckets::rest() {
  const int64_t decayed = store_.decayed(), size = store_.gradients().size();
  std::vector<GradientRange> ranges;
  if (from_ == decayed && store_.shards().empty()) {
    ranges.push_back({0, size});
  } else {
    for (const GradientRange range : {GradientRange{0, from_}, GradientRange{decayed, size}})
      if (range.size() > 0) ranges.push_back(range);
  }
  from_ = 0;
  return ranges;
}
}  // namespace weft
