// SPDX-License-Identifier: MIT
// From a pass of attention to what the forward kernels over bands take.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/hopper/band/band.cuh"
#include "kernels/attention/hopper/launch.cuh"

namespace weft::attention::hopper {
// Throws where TMA does not take the tensors.
inline BandForwardMaps forward_maps(const AttentionForward& f, const AttentionPass& pass) {
  BandForwardMaps maps{
      .tiles = BandTiles::of(pass.band, pass.reaches, f.q),
      .lse = static_cast<float*>(f.lse.data),
      .scale = static_cast<float>(f.scale) * kLog2E,
  };
  const bool described = maps.describe(f.q, f.k, f.v, f.y);
  WEFT_CHECK(described || maps.tiles.launched_items() == 0, kTmaRefuses);
  return maps;
}
}  // namespace weft::attention::hopper
