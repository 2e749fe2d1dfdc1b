// SPDX-License-Identifier: MIT
// The GEMMs of the persistent kernel: up to 16 rows by this thread block's tiles of 8 columns. A warp
// computes every other tile over one of eight slices of the inner axis, then the slices are added in order.
// Lane 4 g + t reads 16 bytes at a time of rows g and g + 8 and of column g, enough for two MMAs. The first
// weights of the next GEMM are in flight before the results of this one are out.
#pragma once

#include "kernels/sampling/decode_linear.cuh"
#include "kernels/sampling/decode_persistent.cuh"

namespace weft::decode_persistent {

// Rows of the group to the operand in shared memory, as they are: as many warps a row as there are.
template <class T>
__device__ __forceinline__ void gather(const Scene<T>& s, Thread me, const std::uint32_t* from, int columns) {
  const int rows = s.place().rows;
  constexpr int kAtOnce = 4;
  const int spread = rows > 8 ? 0 : rows > 4 ? 1 : rows > 2 ? 2 : rows > 1 ? 3 : 4;  // log2
  const int row = me.warp >> spread, stride = kWarp << spread, chunks = columns / 8;
  if (row >= rows) return;
  const std::uint32_t to = s.address(s.a.memory.operand) + row * s.a.memory.pitch(columns);
  from += row * (columns / 2);
#pragma unroll 1
  for (int first = (me.warp & ((1 << spread) - 1)) * kWarp + me.lane; first < chunks;
       first += stride * kAtOnce) {
    const int count = (chunks - first + stride - 1) >> (5 + spread);
    uint4 v[kAtOnce];
    receive(v, from + first * 4, stride * 4, count, rows > 4);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (i < count) st_shared_16(to + (first + i * stride) * 16, v[i]);
  }
}

// A thread's share of the parameters of a norm. They are read during a GEMM that needs none, and lie in
// shared memory when the next one begins.
template <class T>
struct NormShare {
  uint4 parameters = {};
  bool has = false;

  __device__ __forceinline__ void read(const Scene<T>& s, Thread me, int layer, bool second) {
    const int quarter = s.a.sizes.width / 4, thread = me.warp * kWarp + me.lane;
    has = layer < s.a.layers && thread < 2 * quarter;
    if (!has) return;
    const Block<T>& block = s.block(layer);
    load_once(parameters, thread < quarter ? block.norm_w[second] + thread * 4
                                           : block.norm_b[second] + (thread - quarter) * 4);
  }
  __device__ __forceinline__ void put(const Scene<T>& s, Thread me) const {
    if (has) st_shared_16(s.address(s.a.memory.norm) + (me.warp * kWarp + me.lane) * 16, parameters);
  }
};

// The same, normalised, a row for each warp; two passes for the statistics.
template <class T>
__device__ __forceinline__ void normalise(const Scene<T>& s, Thread me, const std::uint32_t* from, int layer,
                                          bool second) {
  constexpr int kChunks = kMostWidth / (kWarp * 8);
  const int width = s.a.sizes.width, rows = s.place().rows, chunks = width / 8,
            count = (chunks - me.lane + kWarp - 1) / kWarp;
  const std::uint32_t norm = s.address(s.a.memory.norm);
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
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 w = device::ld_shared_float2(norm + (column + 2 * i) * 4),
                   b = device::ld_shared_float2(norm + (width + column + 2 * i) * 4);
      words[i] =
          device::pack<T>((x[2 * i] - mean) * rstd * w.x + b.x, (x[2 * i + 1] - mean) * rstd * w.y + b.y);
    }
    st_shared_16(s.address(s.a.memory.operand) + me.warp * s.a.memory.pitch(width) + column * 2,
                 {words[0], words[1], words[2], words[3]});
  }
}

template <class T>
class Gemms {
 public:
  __device__ __forceinline__ explicit Gemms(Scene<T>& scene) : s_(scene) {}

  // Starts to load the first weights that run() of this GEMM uses.
  __device__ __forceinline__ void ask(int layer, int matrix) {
    if (layer == s_.a.layers) return;
    const Share& of = s_.place().of[matrix];
    const Part part(of, this_thread());
    const char* from = part.weights(of, s_.block(layer).w[matrix]);
    if (of.log_tiles == 0)
      ask_tiles<1>(of, part, from);
    else if (of.log_tiles == 1)
      ask_tiles<2>(of, part, from);
    else
      ask_tiles<4>(of, part, from);
  }

  // Frees the registers of weights for what comes before the next ask().
  __device__ __forceinline__ void forget() {
#pragma unroll
    for (uint4& w : weights_) w = {};
  }

  // The weights were asked for, and those of the next GEMM are on return, but for proj.
  __device__ __forceinline__ void run(int layer, int matrix) {
    me_ = this_thread();
    const Share& of = s_.place().of[matrix];
    const int tiles = of.tiles;
    const bool adds = matrix == kProj || matrix == kDown;
    const int next_layer = layer + (matrix == kDown), next = (matrix + 1) % 4;
    NormShare<T> norm;
    if (adds) norm.read(s_, me_, next_layer, matrix == kProj);
    Word word = prepare(layer, matrix, 0);
    const std::uint32_t* from = s_.input(layer, matrix);
    if (tiles > 0 && !adds) normalise(s_, me_, from, layer, matrix == kUp);
    if (tiles > 0 && adds) gather(s_, me_, from, of.inner);
    if (adds) norm.put(s_, me_);
    if (tiles > 0) __syncthreads();
    const int of_chunk = kHalves << of.log_tiles;
#pragma unroll 1
    for (int chunk = 0;; chunk += of_chunk) {
      const unsigned sums = s_.address(s_.a.memory.sums[s_.sums_parity]);
      if (tiles > 0) multiply(layer, matrix, chunk, sums);
      const bool last = chunk + of_chunk >= tiles;
      if (last && matrix != kQkv) ask(next_layer, next);
      if (tiles == 0) break;
      s_.sums_parity ^= 1;
      __syncthreads();
      if (word.at >= 0) finish(word, layer, matrix, sums, of_chunk);
      if (last) break;
      word = prepare(layer, matrix, chunk + of_chunk);
    }
    prefetch(s_, layer + 1, matrix);
  }

 private:
  // A warp's part of a chunk: steps of the inner axis, and every other tile.
  struct Part {
    int begin, end, half, lane;
    __device__ __forceinline__ Part(const Share& of, Thread me)
        : begin(first_of(me.warp % kSlices, of.inner / kStep, kSlices)),
          end(first_of(me.warp % kSlices + 1, of.inner / kStep, kSlices)),
          half(me.warp / kSlices),
          lane(me.lane) {}
    // What this lane reads of the warp's first tile and step.
    __device__ __forceinline__ const char* weights(const Share& of, const T* w) const {
      const int column = (of.first + half) * kTileColumns + lane / 4;
      return reinterpret_cast<const char*>(w + static_cast<std::int64_t>(column) * of.inner +
                                           (begin * kStep + lane % 4 * 8));
    }
  };

  template <int kTiles>
  __device__ __forceinline__ void ask_tiles(const Share& of, const Part& part, const char* from) {
    const int tiles = (of.tiles - part.half + kHalves - 1) / kHalves, steps = part.end - part.begin,
              pitch = kHalves * kTileColumns * of.inner * 2;
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int j = 0; j < kLoads / kTiles; ++j)
        if (i < tiles && j < steps) load_once(weights_[j * kTiles + i], from + i * pitch + j * kStep * 2);
  }

  __device__ __forceinline__ void multiply(int layer, int matrix, int chunk, unsigned sums) {
    const Share& of = s_.place().of[matrix];
    const Part part(of, me_);
    const char* weights = part.weights(of, s_.block(layer).w[matrix]);
    if (of.log_tiles == 0)
      multiply_tiles<1>(of, part, weights, chunk, sums);
    else if (of.log_tiles == 1)
      multiply_tiles<2>(of, part, weights, chunk, sums);
    else
      multiply_tiles<4>(of, part, weights, chunk, sums);
  }

  // Tiles of this half; their sums over this slice. The order of additions depends on the inner axis alone.
  template <int kTiles>
  __device__ __forceinline__ void multiply_tiles(const Share& of, const Part& part, const char* weights,
                                                 int chunk, unsigned sums) {
    constexpr int kSteps = kLoads / kTiles, kOfChunk = kHalves * kTiles;
    const int pitch = s_.a.memory.pitch(of.inner), tile_pitch = kTileColumns * of.inner * 2,
              rows = s_.a.memory.rows, of_slice = kOfChunk * rows * kTileColumns;
    int tiles = (of.tiles - chunk - part.half + kHalves - 1) / kHalves;  // here, of this half
    const std::uint32_t x = s_.address(s_.a.memory.operand) + me_.lane / 4 * pitch + me_.lane % 4 * 16;
    if (tiles <= 0) return;
    float accumulators[kTiles][2][4] = {};
#pragma unroll 1
    for (int step = part.begin; step < part.end; step += kSteps) {
#pragma unroll
      for (int j = 0; j < kSteps; ++j) {
        if (step + j >= part.end) break;
        const uint4 upper = device::ld_shared_16(x + (step + j) * kStep * 2);
        uint4 lower = {};
        if (rows > 8) lower = device::ld_shared_16(x + 8 * pitch + (step + j) * kStep * 2);
        const std::uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y},
                            second[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const uint4& w = weights_[j * kTiles + i];
          if (i >= tiles) continue;
          device::mma<T>(accumulators[i][0], first, w.x, w.y);
          device::mma<T>(accumulators[i][1], second, w.z, w.w);
        }
      }
      // The next steps, or the first of the next chunk.
      const bool last = step + kSteps >= part.end;
      if (last && chunk + kOfChunk >= of.tiles) break;
      const int next_tile = last ? chunk + kOfChunk : chunk, next_step = last ? part.begin : step + kSteps;
      const char* from =
          weights + static_cast<std::int64_t>(next_tile) * tile_pitch + (next_step - part.begin) * kStep * 2;
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int j = 0; j < kSteps; ++j)
          if (next_tile + kHalves * i + part.half < of.tiles && next_step + j < part.end)
            load_once(weights_[j * kTiles + i], from + i * kHalves * tile_pitch + j * kStep * 2);
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (i >= tiles) break;
      const std::uint32_t to = sums + (me_.warp % kSlices * of_slice +
                                       (kHalves * i + part.half) * rows * kTileColumns + me_.lane * 2) *
                                          4;
      const float(&c)[2][4] = accumulators[i];
      st_shared_float2(to, c[0][0] + c[1][0], c[0][1] + c[1][1]);
      if (rows > 8) st_shared_float2(to + 8 * kTileColumns * 4, c[0][2] + c[1][2], c[0][3] + c[1][3]);
    }
  }
  __device__ __forceinline__ static void st_shared_float2(std::uint32_t to, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
  }

  // The two elements of the result that this thread adds up in a chunk, and what it needs for them.
  struct Word {
    int at = -1, to = 0, sum = 0;  // words: of the group's rows, -1: none; of a layer's buffers; of a slice
    std::uint32_t bias = 0, residual = 0;
  };
  __device__ __forceinline__ Word prepare(int layer, int matrix, int chunk) {
    const Share& of = s_.place().of[matrix];
    const int place = me_.warp * (kWarp / 4) + me_.lane / 4, log_place = s_.a.memory.rows == 8 ? 3 : 4,
              tile = place >> log_place, row_or_copy = place & ((1 << log_place) - 1),
              row = row_or_copy & ((1 << of.log_rows) - 1), copy = row_or_copy >> of.log_rows;
    Word w;
    if (tile >= kHalves << of.log_tiles || chunk + tile >= of.tiles || row >= s_.place().rows ||
        copy >= s_.a.plan.copies_of(matrix))
      return w;
    const int column = (of.first + chunk + tile) * kTileColumns / 2 + me_.lane % 4, words = of.columns / 2;
    w.at = row * words + column;
    w.to = of.out + copy * s_.a.plan.batch * words + w.at;
    w.sum = (tile << log_place | row) * 4 + me_.lane % 4;
    w.bias = __ldg(reinterpret_cast<const unsigned*>(s_.block(layer).b[matrix]) + column);
    if (matrix == kProj || matrix == kDown) look(w.residual, s_.input(layer, matrix - 1) + w.at);
    return w;
  }

  // The sum over the slices, in order, and the epilogue: bias, activation or residual. Each copy of a row in
  // the exchange has threads of its own.
  // A buffer of sums is written again two chunks later, behind a barrier that its readers have passed.
  __device__ __forceinline__ void finish(const Word& w, int layer, int matrix, unsigned sums, int of_chunk) {
    float2 sum = {0, 0};
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      const float2 part =
          device::ld_shared_float2(sums + slice * of_chunk * s_.a.memory.rows * kTileColumns * 4 + w.sum * 8);
      sum.x += part.x, sum.y += part.y;
    }
    const float2 bias = device::unpack<T>(w.bias);
    float v[2] = {sum.x + bias.x, sum.y + bias.y};
    if (matrix == kUp)
      for (float& value : v) value = decode_linear::activation<T>(value, s_.a.f);
    if (matrix == kProj || matrix == kDown) {  // adds what the GEMM before normalised
      std::uint32_t word[1] = {w.residual};
      if (layer > 0 || matrix == kDown) await(word, s_.input(layer, matrix - 1) + w.at, 0, 1, false);
      const float2 x = device::unpack<T>(word[0]);
      v[0] += x.x, v[1] += x.y;
    }
    const std::uint32_t word = device::pack<T>(v[0], v[1]);
    if (matrix == kDown && layer + 1 == s_.a.layers)
      reinterpret_cast<std::uint32_t*>(s_.a.y)[s_.place().first_row * s_.a.plan.row[kDown] + w.at] = word;
    else
      publish(s_.buffers(layer) + w.to, word);
  }

  Scene<T>& s_;
  Thread me_;
  uint4 weights_[kLoads] = {};
};

}  // namespace weft::decode_persistent
