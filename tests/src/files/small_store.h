// SPDX-License-Identifier: MIT
// Stores with parameters of any shape, for tests of weights that travel.
#pragma once

#include "src/files/checkpoint.h"

#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace weft {
using Parameters = std::vector<std::pair<std::string, Shape>>;

struct SmallStore {
  std::unique_ptr<Device> device = make_device("cpu");
  ParameterStore store;

  explicit SmallStore(const Parameters& parameters, unsigned seed = 1, bool ema = false) {
    for (const auto& [name, shape] : parameters) store.add(name, shape, Init::normal(1));
    store.allocate(*device, DType::f32, seed, ema, ema);
  }

  std::vector<uint32_t> bits(const Tensor& block, std::size_t parameter) const {
    const ParamInfo& p = store.params()[parameter];
    std::vector<uint32_t> values(static_cast<std::size_t>(p.size));
    device->download(values.data(), block.slice(p.offset, p.shape));
    return values;
  }

  std::vector<uint32_t> bits(std::size_t parameter) const {
    return bits(store.master(), parameter);
  }

  // Any finite numbers: denormals and both zeros among them.
  void scramble(const Tensor& block, unsigned seed) {
    std::mt19937 random(seed);
    for (const ParamInfo& p : store.params()) {
      std::vector<uint32_t> values(static_cast<std::size_t>(p.size));
      for (uint32_t& b : values) b = random() & 0xff7fffffu;
      values[0] = 0x80000000u;
      device->upload(block.slice(p.offset, p.shape), values.data());
    }
  }
};
}  // namespace weft
