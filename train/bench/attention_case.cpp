// SPDX-License-Identifier: MIT
// Tensors of random numbers, both passes of a pattern, and their check.
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

// What rounding of inputs, probabilities and results to the type may cost, relative to the largest number of
// a row.
double tolerance(DType dtype) { return dtype == DType::bf16 ? 3e-2 : dtype == DType::f16 ? 4e-3 : 1e-4; }

}  // namespace

AttentionWorkload::AttentionWorkload(Device& device, const AttentionBenchShape& s, DType dtype) {
  const Shape packed = {s.batch, s.length, s.heads * (2 * s.qk_size + s.v_size)};
  const Shape attended = {s.batch, s.length, s.heads * s.v_size}, rows = {s.batch, s.heads, s.length};
  x_.heads = s.heads, x_.qk_size = s.qk_size, x_.v_size = s.v_size;
  x_.qkv = random_tensor(device, packed, dtype, 1);
  x_.dy = random_tensor(device, attended, dtype, 2);
  x_.y = Tensor(*device.pool, attended, dtype, "bench");
  x_.dqkv = Tensor(*device.pool, packed, dtype, "bench");
  x_.lse = Tensor(*device.pool, rows, DType::f32, "bench");
  delta_ = Tensor(*device.pool, rows, DType::f32, "bench");
}

double AttentionWorkload::scale() const { return 1 / std::sqrt(static_cast<double>(x_.qk_size)); }

AttentionForward AttentionWorkload::forward(const AttentionMaps& maps, AttentionForm form) const {
  return {.y = heads_of(x_.y, 0, x_.heads, x_.v_size),
          .lse = x_.lse,
          .q = q(x_.qkv),
          .k = k(x_.qkv),
          .v = v(x_.qkv),
          .maps = maps,
          .scale = scale(),
          .form = form};
}

AttentionBackward AttentionWorkload::backward(const AttentionMaps& maps, AttentionForm form) const {
  return {.dq = q(x_.dqkv),
          .dk = k(x_.dqkv),
          .dv = v(x_.dqkv),
          .delta = delta_,
          .dy = heads_of(x_.dy, 0, x_.heads, x_.v_size),
          .y = heads_of(x_.y, 0, x_.heads, x_.v_size),
          .lse = x_.lse,
          .q = q(x_.qkv),
          .k = k(x_.qkv),
          .v = v(x_.qkv),
          .maps = maps,
          .scale = scale(),
          .form = form};
}

AttentionBenchCase::AttentionBenchCase(Device& device, const AttentionBenchShape& shape,
                                       const std::string& mode, const AttentionWorkload& load,
                                       AttentionForm asked, bool verify)
    : device_(device),
      pattern_(make_pattern(attention_bench_pattern(mode, shape), static_cast<int>(shape.heads))),
      maps_(device, *pattern_, static_cast<int>(shape.heads), shape.length,
            std::max(shape.qk_size, shape.v_size)),
      forward_(load.forward(maps_.maps(), asked)),
      backward_(load.backward(maps_.maps(), asked)),
      scratch_(attention_scratch(*device.pool, device.queue, backward_)) {
  backward_.scratch = scratch_;
  form = device.is_cuda() ? attention::forms_text(forward_, backward_, device.compute_capability) : "cpu";
  forward_bytes = forward_.cost().bytes;
  both_bytes = forward_bytes + backward_.cost().bytes;
  PairCount count;
  for (int head = 0; head < static_cast<int>(shape.heads); ++head) count += maps_.pairs(head);
  pairs = static_cast<double>(count.needed) * static_cast<double>(shape.batch);
  waste = count.waste();
  run_both();
  if (!verify) return;
  error = spot_check(device, *pattern_, load.tensors(), 12, 7);
  if (!(error <= tolerance(load.dtype())))
    fail(str("bench attention: ", shape.name, ", ", mode, ", ", name_of(load.dtype()),
             ": results differ from f64 by ", error, " of the largest number of a row; at most ",
             tolerance(load.dtype()), " was expected"));
}

}  // namespace weft
