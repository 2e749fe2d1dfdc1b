// SPDX-License-Identifier: MIT
// Runs the copy of band/forward that copy_band.py makes, without anything else of weft, and
// compares it with the definition of attention: y and lse of random q, k and v, over bands of
// several shapes.
#include "kernels/attention/definition.h"
#include "kernels/attention/hopper/band/forward.cuh"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {
using namespace weft;
using namespace weft::attention::hopper;

void require(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

// (B, T, H, D) in memory that the host and the GPU share.
template <class T>
struct Tensor {
  HeadsView view;

  Tensor(int64_t batch, int64_t time, int64_t heads, int64_t size) {
    const int64_t count = batch * time * heads * size;
    void* data = nullptr;
    require(cudaMallocManaged(&data, static_cast<std::size_t>(count) * sizeof(T)));
    view = {data, dtype_of<T>, batch, time, heads, size, time * heads * size, heads * size, size};
  }

  ~Tensor() { static_cast<void>(cudaFree(view.data)); }

  Tensor(const Tensor&) = delete;

  void fill(std::mt19937& random) {
    std::normal_distribution<float> normal;
    T* const first = view.row<T>(0, 0, 0);
    for (int64_t i = 0; i < view.batch * view.batch_stride; ++i) first[i] = T(normal(random));
  }

  definition::Matrix rows(int64_t b, int64_t h) const {
    definition::Matrix m;
    for (int64_t t = 0; t < view.time; ++t) {
      const T* row = view.row<T>(b, t, h);
      m.emplace_back(row, row + view.size);
    }
    return m;
  }
};

template <class T, int Dqk, int Dv>
struct Case {
  int64_t batch, time, heads;
  Band band;

  // Whether y and lse are those of the definition, up to the rounding of T.
  bool agrees(std::mt19937& random) const {
    Tensor<T> q(batch, time, heads, Dqk), k(batch, time, heads, Dqk), v(batch, time, heads, Dv),
        y(batch, time, heads, Dv);
    Tensor<float> lse(batch, heads, time, 1);
    q.fill(random), k.fill(random), v.fill(random);
    launch(q.view, k.view, v.view, y.view, static_cast<float*>(lse.view.data));
    double worst_y = 0, worst_lse = 0;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h) {
        const definition::Output exact = definition::forward({
            .q = q.rows(b, h),
            .k = k.rows(b, h),
            .v = v.rows(b, h),
            .scale = 1 / std::sqrt(double{Dqk}),
            .attends =
                [&](std::size_t i, std::size_t j) {
                  return band.attends(static_cast<int64_t>(i), static_cast<int64_t>(j));
                },
        });
        const definition::Matrix got = y.rows(b, h);
        for (std::size_t t = 0; t < got.size(); ++t) {
          for (std::size_t d = 0; d < got[t].size(); ++d)
            worst_y = larger(worst_y, got[t][d] - exact.y[t][d]);
          if (std::isfinite(exact.lse[t]))
            worst_lse = larger(worst_lse,
                               *lse.view.row<float>(b, h, static_cast<int64_t>(t)) - exact.lse[t]);
        }
      }
    // Values reach 5: a probability and y are rounded to 8 digits in bf16, 11 in f16.
    const double allowed = dtype_of<T> == DType::bf16 ? 0.03 : 0.004;
    const bool good = worst_y <= allowed && worst_lse <= 0.001;
    std::printf(
        "%s, heads of %d and %d, stride %d, reach %d, skip %d: y differs by %.2g, "
        "lse by %.2g: %s\n",
        name_of(dtype_of<T>), Dqk, Dv, band.stride, band.reach, band.skip, worst_y, worst_lse,
        good ? "agrees" : "DIFFERS");
    return good;
  }

 private:
  // NaN stays.
  static double larger(double worst, double difference) {
    return std::abs(difference) <= worst ? worst : std::abs(difference);
  }

  void launch(const HeadsView& q, const HeadsView& k, const HeadsView& v, const HeadsView& y,
              float* lse) const {
    using Shape = BandForwardShape<Dqk, Dv, false, false>;
    BandForwardMaps maps{
        .tiles = BandTiles::of(band, nullptr, q),
        .lse = lse,
        .scale = kLog2E / std::sqrt(float{Dqk}),
    };
    if (!maps.describe(q, k, v, y)) std::printf("TMA does not take these tensors\n"), std::exit(1);
    int device = 0, multiprocessors = 0;
    require(cudaGetDevice(&device));
    require(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    maps.tiles.cut(multiprocessors, 0.5 * maps.tiles.tiles_back());
    constexpr int kBytes = device::kSharedBytes<BandMemory<Shape>>;
    void (*const kernel)(BandForwardMaps) =
        device::warp_specialized<BandForwardKernel<T, Shape>, BandForwardMaps>;
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    const int64_t blocks = std::min<int64_t>(maps.tiles.launched_items(), multiprocessors);
    kernel<<<static_cast<unsigned>(blocks), Shape::kThreads, kBytes>>>(maps);
    require(cudaGetLastError());
    require(cudaDeviceSynchronize());
  }
};

template <class T>
bool all_agree(std::mt19937& random) {
  bool good = true;
  // local; strided with whole columns; columns that share tiles; a band that leaves its diagonal
  // out
  for (const Band band : {Band{1, 128, 0}, Band{1, 65, 0}, Band{1, 30, 0}, Band{8, 128, 0},
                          Band{32, 20, 0}, Band{8, 48, 16}})
    good &= Case<T, 64, 64>{2, 640, 3, band}.agrees(random);
  good &= Case<T, 64, 128>{1, 448, 2, {1, 128, 0}}.agrees(random);
  good &= Case<T, 128, 128>{1, 448, 2, {1, 100, 0}}.agrees(random);
  return good;
}
}  // namespace

int main() {
  std::mt19937 random(1);
  const bool good = all_agree<bf16>(random) & all_agree<f16>(random);
  std::printf("band/forward %s\n", good ? "agrees with the definition" : "DIFFERS");
  return good ? 0 : 1;
}
