// SPDX-License-Identifier: MIT
// The GEMMs of the persistent kernel: up to 16 rows by this thread block's tiles of 8 columns. A
// warp computes every other tile over one of eight slices of the inner axis, then the slices are
// added in order. Lane 4 g + t reads 16 bytes at a time of rows g and g + 8 and of column g, enough
// for two MMAs. The first weights are in flight before the rows are there.
#pragma once

#include "kernels/sampling/decode/persistent.cuh"
#include "kernels/sampling/decode_linear.cuh"

namespace weft::decode_persistent {
// Rows of the group to the operand in shared memory, as they are: as many warps a row as there are.
template <class T>
__device__ __forceinline__ void gather(const Scene<T>& s, Thread me, const uint32_t* from,
                                       int columns) {
  const int rows = s.place().rows;
  constexpr int kAtOnce = 4;
  const int spread = rows > 8 ? 0 : rows > 4 ? 1 : rows > 2 ? 2 : rows > 1 ? 3 : 4;  // log2
  const int row = me.warp >> spread, stride = kWarp << spread, chunks = columns / 8;
  if (row >= rows) return;
  const uint32_t to = s.address(s.a.memory.operand) + row * s.a.memory.pitch(columns);
  from += row * (columns / 2);
#pragma unroll 1
  for (int first = (me.warp & ((1 << spread) - 1)) * kWarp + me.lane; first < chunks;
       first += stride * kAtOnce) {
    const int count = (chunks - first + stride - 1) >> (5 + spread);
    uint4 v[kAtOnce];
    receive(v, from + first * 4, stride * 4, count, rows > 4);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (i < count) device::st_shared_16(to + (first + i * stride) * 16, v[i]);
  }
}

// A thread's share of the parameters of a norm. They are read during a GEMM that needs none, and
// lie in shared memory when the next one begins.
template <class T>
struct NormShare {
  uint4 parameters = {};
  bool has = false;

  __device__ __forceinline__ void read(const Scene<T>& s, Thread me, int layer, bool second) {
    const int quarter = s.a.sizes.width / 4, thread = me.warp * kWarp + me.lane;
    has = layer < s.a.layers && thread < 2 * quarter;
    if (!has) return;
    const Block<T>& block = s.block(layer);
    parameters =
        device::ld_no_allocate_16(thread < quarter ? block.norm_w[second] + thread * 4
                                                   : block.norm_b[second] + (thread - quarter) * 4);
  }

  __device__ __forceinline__ void put(const Scene<T>& s, Thread me) const {
    if (has)
      device::st_shared_16(s.address(s.a.memory.norm) + (me.warp * kWarp + me.lane) * 16,
                           parameters);
  }
};

// The same, normalised, a row for each warp; two passes for the statistics.
template <class T>
__device__ __forceinline__ void normalise(const Scene<T>& s, Thread me, const uint32_t* from,
                                          int layer, bool second) {
  constexpr int kChunks = kMostWidth / (kWarp * 8);
  const int width = s.a.sizes.width, rows = s.place().rows, chunks = width / 8,
            count = (chunks - me.lane + kWarp - 1) / kWarp;
  const uint32_t norm = s.address(s.a.memory.norm);
  uint4 packed[kChunks];
  from += me.warp * (width / 2) + me.lane * 4;
  ask(packed, from, kWarp * 4, me.warp < rows ? count : 0);
  __syncthreads();  // the parameters are there
  if (me.warp >= rows) return;
  if (second || layer > 0) await(packed, from, kWarp * 4, count, rows > 4);
  float x[8], mean = 0, rstd = 0;
  const float share = __fdividef(1.0f, static_cast<float>(width));
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (c >= count) break;
    unpack(x, Eight<T>{packed[c]});
#pragma unroll
    for (int i = 0; i < 8; ++i) mean += x[i];
  }
  mean = warp_sum(mean) * share;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (c >= count) break;
    unpack(x, Eight<T>{packed[c]});
#pragma unroll
    for (int i = 0; i < 8; ++i) rstd = fmaf(x[i] - mean, x[i] - mean, rstd);
  }
  rstd = rsqrtf(warp_sum(rstd) * share + s.block(layer).eps[second]);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (c >= count) break;
    const int column = (c * kWarp + me.lane) * 8;
    unpack(x, Eight<T>{packed[c]});
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 w = device::ld_shared_float2(norm + (column + 2 * i) * 4),
                   b = device::ld_shared_float2(norm + (width + column + 2 * i) * 4);
      words[i] = device::pack<T>((x[2 * i] - mean) * rstd * w.x + b.x,
                                 (x[2 * i + 1] - mean) * rstd * w.y + b.y);
    }
    device::st_shared_16(
        s.address(s.a.memory.operand) + me.warp * s.a.memory.pitch(width) + column * 2,
        {words[0], words[1], words[2], words[3]});
  }
}

template <class T>
class Matmul {
 public:
  __device__ __forceinline__ Matmul(Scene<T>& scene, int layer, int matrix)
      : s_(scene),
        me_(this_thread()),
        layer_(layer),
        matrix_(matrix),
        inner_(scene.a.sizes.inner(matrix)),
        columns_(scene.a.sizes.columns(matrix)),
        first_(scene.place().first[matrix]),
        tiles_(scene.place().count[matrix]),
        begin_(first_of(me_.warp % kSlices, inner_ / kStep, kSlices)),
        end_(first_of(me_.warp % kSlices + 1, inner_ / kStep, kSlices)),
        half_(me_.warp / kSlices),
        of_this_lane_(reinterpret_cast<const char*>(scene.block(layer).w[matrix]) +
                      (static_cast<int64_t>(first_ * kTileColumns + me_.lane / 4) * inner_ +
                       me_.lane % 4 * 8) *
                          2) {}

  __device__ __forceinline__ void run() {
    NormShare<T> norm;
    if (adds()) norm.read(s_, me_, layer_ + (matrix_ == kDown), matrix_ == kProj);
    if (tiles_ == 0) return norm.put(s_, me_);
    // of a chunk and half
    const int log_tiles = tiles_ <= kHalves ? 0 : tiles_ <= 2 * kHalves ? 1 : 2;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      load(weights_[i], kHalves * (i & ((1 << log_tiles) - 1)) + half_, begin_ + (i >> log_tiles));
    const uint32_t* from = s_.input(layer_, matrix_);
    prepare(0, kHalves << log_tiles);
    if (matrix_ == kQkv || matrix_ == kUp)
      normalise(s_, me_, from, layer_, matrix_ == kUp);
    else
      gather(s_, me_, from, inner_), norm.put(s_, me_);
    __syncthreads();
    if (log_tiles == 0)
      chunks<1>();
    else if (log_tiles == 1)
      chunks<2>();
    else
      chunks<4>();
  }

 private:
  // Of a tile of this thread block, a step of this warp's slice.
  __device__ __forceinline__ void load(uint4& v, int tile, int step) const {
    if (tile < tiles_ && step < end_)
      v = device::ld_no_allocate_16(
          of_this_lane_ + static_cast<unsigned>((tile * kTileColumns * inner_ + step * kStep) * 2));
  }

  // Accumulators of kTiles tiles of this half, chunk after chunk: the inner axis alone orders
  // additions.
  template <int kTiles>
  __device__ __forceinline__ void chunks() {
    constexpr int kSteps = kLoads / kTiles, kOfChunk = kHalves * kTiles;
    const int pitch = s_.a.memory.pitch(inner_);
    const bool upper_rows_alone = s_.a.memory.rows == 8;
    const uint32_t x = s_.address(s_.a.memory.operand) + me_.lane / 4 * pitch + me_.lane % 4 * 16;
#pragma unroll 1
    for (int chunk = 0; chunk < tiles_; chunk += kOfChunk) {
      float accumulators[kTiles][2][4] = {};
#pragma unroll 1
      for (int step = begin_; step < end_; step += kSteps) {
        const bool last = step + kSteps >= end_;
        const int next_chunk = last ? chunk + kOfChunk : chunk,
                  next_step = last ? begin_ : step + kSteps;
#pragma unroll
        for (int j = 0; j < kSteps; ++j) {
          if (step + j < end_) {
            const uint4 upper = device::ld_shared_16(x + (step + j) * kStep * 2);
            uint4 lower = {};
            if (!upper_rows_alone)
              lower = device::ld_shared_16(x + 8 * pitch + (step + j) * kStep * 2);
            const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y},
                           second[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
            for (int i = 0; i < kTiles; ++i) {
              const uint4& w = weights_[j * kTiles + i];
              if (chunk + kHalves * i + half_ >= tiles_) continue;
              device::mma<T>(accumulators[i][0], first, w.x, w.y);
              device::mma<T>(accumulators[i][1], second, w.z, w.w);
            }
          }
#pragma unroll
          for (int i = 0; i < kTiles; ++i)
            load(weights_[j * kTiles + i], next_chunk + kHalves * i + half_, next_step + j);
        }
      }
      add_slices<kTiles>(accumulators, chunk);
    }
  }

  // A buffer is written again two chunks later, behind a barrier that its readers have passed.
  template <int kTiles>
  __device__ __forceinline__ void add_slices(const float (&accumulators)[kTiles][2][4], int chunk) {
    constexpr int kOfChunk = kHalves * kTiles;
    const int rows = s_.a.memory.rows, of_tile = rows * kTileColumns, of_slice = kOfChunk * of_tile;
    const uint32_t sums = s_.address(s_.a.memory.sums[s_.sums_parity]);
    s_.sums_parity ^= 1;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const uint32_t to =
          sums +
          (me_.warp % kSlices * of_slice + (kHalves * i + half_) * of_tile + me_.lane * 2) * 4;
      const float(&c)[2][4] = accumulators[i];
      device::st_shared_float2(to, {c[0][0] + c[1][0], c[0][1] + c[1][1]});
      if (rows > 8)
        device::st_shared_float2(to + 8 * kTileColumns * 4, {c[0][2] + c[1][2], c[0][3] + c[1][3]});
    }
    __syncthreads();
    if (column_ >= 0) {
      float2 sum = {0, 0};
#pragma unroll
      for (int slice = 0; slice < kSlices; ++slice) {
        const float2 part = device::ld_shared_float2(
            sums + (slice * of_slice + (me_.warp * kWarp + me_.lane) * 2) * 4);
        sum.x += part.x, sum.y += part.y;
      }
      finish(sum);
    }
    prepare(chunk + kOfChunk, kOfChunk);
  }

  // The two elements of the result that this thread adds up in a chunk, and what it needs for them.
  __device__ __forceinline__ void prepare(int chunk, int of_chunk) {
    const int place = me_.warp * (kWarp / 4) + me_.lane / 4,
              log_rows = s_.a.memory.rows == 8 ? 3 : 4, tile = place >> log_rows;
    row_ = place & ((1 << log_rows) - 1);
    column_ = -1;
    if (tile >= of_chunk || chunk + tile >= tiles_ || row_ >= s_.place().rows) return;
    column_ = (first_ + chunk + tile) * kTileColumns + me_.lane % 4 * 2;
    bias_ = __ldg(reinterpret_cast<const unsigned*>(s_.block(layer_).b[matrix_] + column_));
    if (adds()) look(residual_, residual());
  }

  __device__ __forceinline__ bool adds() const { return matrix_ == kProj || matrix_ == kDown; }

  __device__ __forceinline__ const uint32_t* residual() const {
    return s_.input(layer_, matrix_ - 1) +
           (row_ * columns_ + column_) / 2;  // what the GEMM before normalised
  }

  // The epilogue: bias, activation or residual.
  __device__ __forceinline__ void finish(float2 sum) {
    const float2 bias = device::unpack<T>(bias_);
    float v[2] = {sum.x + bias.x, sum.y + bias.y};
    if (matrix_ == kUp)
      for (float& value : v) value = decode_linear::activation<T>(value, s_.a.f);
    if (adds()) {
      uint32_t word[1] = {residual_};
      if (layer_ > 0 || matrix_ == kDown) await(word, residual(), 0, 1, false);
      const float2 x = device::unpack<T>(word[0]);
      v[0] += x.x, v[1] += x.y;
    }
    const uint32_t word = device::pack<T>(v[0], v[1]);
    const int at = column_ / 2;
    if (matrix_ == kDown && layer_ + 1 == s_.a.layers)
      reinterpret_cast<uint32_t*>(s_.a.y)[(s_.place().first_row + row_) * (columns_ / 2) + at] =
          word;
    else
      s_.publish(layer_, matrix_, row_, at, word);
  }

  Scene<T>& s_;
  Thread me_;
  int layer_, matrix_, inner_, columns_, first_, tiles_, begin_, end_, half_;
  const char* of_this_lane_;  // what it reads of the first tile and step
  uint4 weights_[kLoads] = {};
  int row_ = 0, column_ = -1;  // column_: -1: none
  uint32_t bias_ = 0, residual_ = 0;
};
}  // namespace weft::decode_persistent
