// SPDX-License-Identifier: MIT
// Random models and inputs of DecodeBlocks on a GPU, for tests of its forms.
#pragma once

#include "kernels/sampling/decode_blocks.h"
#include "tests/kernels/attention/attention_gpu.h"

#include <cmath>
#include <cstddef>
#include <random>
#include <variant>
#include <vector>

namespace weft::decode_test {
using attention_test::gpu;

struct Model {
  int64_t width, heads, qk, v, hidden, layers, keys;
};

enum class Form { steps, persistent, cluster };

// A model and its input; the same for every batch, sequence by sequence.
class Blocks {
 public:
  Blocks(const Model& m, DType type, int64_t batch, Form form)
      : m_(m),
        type_(type) {
    const int64_t packed = m.heads * (2 * m.qk + m.v), attended = m.heads * m.v;
    kernel.heads = m.heads, kernel.qk_size = m.qk, kernel.v_size = m.v;
    kernel.scale = 1 / std::sqrt(static_cast<double>(m.qk));
    kernel.qk.norm = true;
    kernel.qk.table = wide({50, m.qk / 2, 2}, 0.7f, 0);
    kernel.qk.first_at = integers({6});
    std::vector<int32_t> keys, start = {0}, group, first, own;
    for (int64_t i = 0; i < m.keys; ++i)
      keys.push_back(static_cast<int32_t>((i * 7 + 1) % (m.keys + 1)));
    start.push_back(static_cast<int32_t>(keys.size()));
    for (int64_t h = 0; h < m.heads; ++h) {
      group.push_back(0);
      first.push_back(static_cast<int32_t>(h * (m.keys + 1)));
      own.push_back(first.back() + keys.back());
    }
    DecodeBlock lists;
    lists.keys = integers(keys), lists.key_start = integers(start),
    lists.group_of_head = integers(group);
    lists.first_row = integers(first), lists.own_row = integers(own);
    // Lists of unknown length take launches.
    lists.longest = form == Form::steps ? 0 : m.keys;
    for (int64_t layer = 0; layer < m.layers; ++layer) {
      DecodeBlock b = lists;
      b.attention_norm = {wide({m.width}, 0.2f, 1), wide({m.width}, 0.2f, 0), 1e-5};
      b.mlp_norm = {wide({m.width}, 0.2f, 1), wide({m.width}, 0.2f, 0), 1e-5};
      b.qkv = affine(packed, m.width), b.proj = affine(m.width, attended);
      b.up = affine(m.hidden, m.width), b.down = affine(m.width, m.hidden);
      kernel.blocks.push_back(b);
    }
    const int64_t rows = m.heads * (m.keys + 1);
    for (DecodeBlock& b : kernel.blocks) {
      b.k = tensor({batch, rows, m.qk}, 1, rows * m.qk);
      b.v = tensor({batch, rows, m.v}, 1, rows * m.v);
    }
    kernel.x = tensor({batch, m.width}, 1, m.width);
    kernel.y = tensor({batch, m.width}, 0);
    kernel.packed = tensor({batch, packed}, 0), kernel.attended = tensor({batch, attended}, 0);
    kernel.hidden = tensor({batch, m.hidden}, 0);
    if (form == Form::cluster) prepare();
  }

  // y, and of small batches the caches of the last block: of all sequences.
  std::vector<std::vector<double>> run() {
    launch(gpu().queue, kernel);
    std::vector<std::vector<double>> outputs = {to_host(gpu(), kernel.y)};
    if (kernel.y.rows() > 17) return outputs;
    for (const TensorView& cache : {kernel.blocks.back().k, kernel.blocks.back().v})
      outputs.push_back(to_host(gpu(), cache));
    return outputs;
  }

  DecodeBlocks kernel;

 private:
  void prepare() {
    const int64_t bytes =
        std::visit([&](const auto& queue) { return prepared_bytes(queue, kernel); }, gpu().queue);
    WEFT_CHECK(bytes > 0, "no form of decode_blocks prepares the weights of this model");
    kernel.prepared = kept_.emplace_back(*gpu().pool, Shape{bytes}, DType::u8);
    std::visit([&](auto& queue) { weft::prepare(queue, kernel); }, gpu().queue);
    gpu().synchronize();
  }

  // Random numbers; those of a batch repeat after five sequences of `each`.
  TensorView tensor(const Shape& shape, float size, int64_t each = 0, float mean = 0,
                    bool is_wide = false) {
    const Tensor t(*gpu().pool, shape, is_wide ? DType::f32 : type_);
    std::vector<float> values(static_cast<std::size_t>(each > 0 ? 5 * each : t.size()));
    std::mt19937 random(seed_++);
    for (float& x : values) x = mean + size * (static_cast<float>(random()) * 0x1p-31f - 1);
    std::vector<uint16_t> words(static_cast<std::size_t>(t.size()));
    for (std::size_t i = 0; i < words.size(); ++i) {
      const float x = values[i % values.size()];
      words[i] = type_ == DType::f16 ? f16::encode(x) : bf16::encode(x);
    }
    gpu().upload(t, is_wide ? static_cast<const void*>(values.data()) : words.data());
    return kept_.emplace_back(t);
  }

  TensorView wide(const Shape& shape, float size, float mean) {
    return tensor(shape, size, 0, mean, true);
  }

  DecodeAffine affine(int64_t out, int64_t in) {
    const TensorView w = tensor({out, in}, 1.5f / std::sqrt(static_cast<float>(in)));
    return {w, tensor({out}, 0.2f)};
  }

  const int32_t* integers(const std::vector<int32_t>& values) {
    return kept_.emplace_back(attention_test::on_gpu(values)).view().as<int32_t>();
  }

  Model m_;
  DType type_;
  unsigned seed_ = 1;
  std::vector<Tensor> kept_;
};

inline bool is_hopper() { return gpu().compute_capability == 90; }

inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}
}  // namespace weft::decode_test
