// SPDX-License-Identifier: MIT
#include "train/bench/attention_case.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/attention/select.h"

namespace weft {
namespace {

// Normal random numbers, repeated after a prime number of them: no two rows are alike.
Tensor random_tensor(Device& device, const Shape& shape, DType dtype, unsigned seed) {
  constexpr std::int64_t kPeriod = 4194301;
  const Tensor x(*device.pool, shape, dtype, "bench");
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const std::int64_t count = std::min(kPeriod, x.size());
  dispatch_float(dtype, [&]<class T>() {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) value = static_cast<T>(normal(random));
    for (std::int64_t at = 0; at < x.size(); at += count) {
      const std::int64_t here = std::min(count, x.size() - at);
      device.upload(x.slice(at, {here}), values.data());
    }
  });
  return x;
}

// What rounding to the type may cost, relative to the largest number of a row.
double tolerance(DType dtype) { return dtype == DType::bf16 ? 3e-2 : dtype == DType::f16 ? 4e-3 : 1e-4; }

HeadsView q_of(const AttentionTensors& x, const Tensor& packed) {
  return heads_of(packed, 0, x.heads, x.qk_size);
}
HeadsView k_of(const AttentionTensors& x, const Tensor& packed) {
  return heads_of(packed, x.heads * x.qk_size, x.heads, x.qk_size);
}
HeadsView v_of(const AttentionTensors& x, const Tensor& packed) {
  return heads_of(packed, 2 * x.heads * x.qk_size, x.heads, x.v_size);
}
HeadsView y_of(const AttentionTensors& x, const Tensor& rows) { return heads_of(rows, 0, x.heads, x.v_size); }

AttentionForward forward_of(const AttentionTensors& x, const AttentionMaps& maps, AttentionForm form) {
  return {.y = y_of(x, x.y),
          .lse = x.lse,
          .q = q_of(x, x.qkv),
          .k = k_of(x, x.qkv),
          .v = v_of(x, x.qkv),
          .maps = maps,
          .scale = 1 / std::sqrt(static_cast<double>(x.qk_size)),
          .form = form};
}

PatternSpec pattern_spec(const std::string& mode, const AttentionBenchShape& shape) {
  PatternSpec spec;
  spec.kind = mode;
  spec.stride = shape.stride;
  spec.c = shape.c;
  if (mode != "merged_strided") return spec;
  spec.kind = "merged";
  for (const char* kind : {"local", "strided"}) spec.of.push_back(pattern_spec(kind, shape));
  return spec;
}

}  // namespace

AttentionWorkload::AttentionWorkload(Device& device, const AttentionBenchShape& s, DType dtype) {
  const Shape packed = {s.batch, s.length, s.heads * (2 * s.qk_size + s.v_size)};
  const Shape attended = {s.batch, s.length, s.heads * s.v_size}, rows = {s.batch, s.heads, s.length};
  const auto empty = [&](const Shape& shape, DType type) {
    return Tensor(*device.pool, shape, type, "bench");
  };
  tensors = {.qkv = random_tensor(device, packed, dtype, 1),
             .y = empty(attended, dtype),
             .dy = random_tensor(device, attended, dtype, 2),
             .dqkv = empty(packed, dtype),
             .lse = empty(rows, DType::f32),
             .heads = s.heads,
             .qk_size = s.qk_size,
             .v_size = s.v_size};
  delta = empty(rows, DType::f32);
}

JsonMembers shape_members(const AttentionBenchShape& s, const std::string& mode) {
  return {{"case", s.name}, {"mode", mode},   {"B", s.batch},  {"H", s.heads}, {"N", s.length},
          {"D", s.qk_size}, {"Dv", s.v_size}, {"s", s.stride}, {"c", s.c}};
}

AttentionBenchCase::AttentionBenchCase(Device& device, const AttentionBenchShape& shape,
                                       const std::string& mode, const AttentionWorkload& load,
                                       const BenchAttentionOptions& options)
    : device_(device),
      pattern_(make_pattern(pattern_spec(mode, shape), static_cast<int>(shape.heads))),
      maps_(device, *pattern_, static_cast<int>(shape.heads), shape.length,
            std::max(shape.qk_size, shape.v_size)),
      forward_(forward_of(load.tensors, maps_.maps(), attention::parse_form(options.form))),
      backward_(backward_of(forward_, q_of(load.tensors, load.tensors.dqkv),
                            k_of(load.tensors, load.tensors.dqkv), v_of(load.tensors, load.tensors.dqkv),
                            load.delta, y_of(load.tensors, load.tensors.dy))),
      scratch_(attention_scratch(*device.pool, device.queue, backward_)) {
  backward_.scratch = scratch_;
  form = device.is_cuda() ? attention::kernels_text(forward_, backward_, device.compute_capability) : "cpu";
  forward_bytes = forward_.cost().bytes;
  both_bytes = forward_bytes + backward_.cost().bytes;
  PairCount count;
  for (int head = 0; head < static_cast<int>(shape.heads); ++head) count += maps_.pairs(head);
  pairs = static_cast<double>(count.needed) * static_cast<double>(shape.batch);
  waste = count.waste();
  run_both();
  if (!options.verify) return;
  error = spot_check(device, *pattern_, load.tensors, 12, 7);
  if (!(error <= tolerance(load.dtype())))
    fail(str("bench attention: ", shape.name, ", ", mode, ", ", name_of(load.dtype()),
             ": results differ from f64 by ", error, " of the largest number of a row; at most ",
             tolerance(load.dtype()), " was expected"));
}

}  // namespace weft
