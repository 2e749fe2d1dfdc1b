// SPDX-License-Identifier: MIT
// The MMA warps of a cluster, and the warp that loads their weights. A GEMM is 16 or 24 sequences by this
// thread block's columns; a warp computes tiles of 8 columns over the whole inner axis. Lane 4 g + t reads 16
// bytes at a time of rows g, g + 8 and g + 16 and of column g, enough for two MMAs.
#pragma once

#include "kernels/sampling/decode_cluster.cuh"
#include "kernels/sampling/decode_linear.cuh"

namespace weft::decode_cluster {

// By one warp.
template <class T>
__device__ __forceinline__ void load_weights(const Scene<T>& scene) {
  using namespace device;
  const Layout& l = scene.a.layout;
  const Sizes& s = scene.a.sizes;
  const int lane = threadIdx.x % kWarp;
  RingPosition ring;
  for (int i = 0; i < scene.a.blocks; ++i) {
    const Block<T>& block = scene.a.block[i];
    const std::uint32_t small = scene.memory + l.small[i % 2],
                        small_full = scene.barrier(Layout::kSmallFull + i % 2);
    wait_for(scene.barrier(Layout::kSmallEmpty + i % 2), (i / 2 + 1) % 2);
    const int norm_bytes = s.width * 4;
    if (lane == 0) {
      int bytes = 4 * norm_bytes;
      for (int m = 0; m < 4; ++m) bytes += s.rows(m) * 2;
      mbarrier_arrive_expect_tx(small_full, bytes);
    }
    __syncwarp();
    if (lane < 4)
      copy_bulk(small + lane * norm_bytes, lane % 2 == 0 ? block.norm_w[lane / 2] : block.norm_b[lane / 2],
                norm_bytes, small_full);
    else if (lane < 8)
      copy_bulk(small + l.bias[lane - 4], block.b[lane - 4] + scene.rank * s.rows(lane - 4),
                s.rows(lane - 4) * 2, small_full);
    for (int m = 0; m < 4; ++m) {
      const int rows = s.rows(m), inner = s.inner(m);
      const T* w = block.w[m] + static_cast<std::int64_t>(scene.rank) * rows * inner;
      for (int first = 0; first < rows; first += kPieceRows) {
        const int count = min(kPieceRows, rows - first), wide = columns_of_piece(count);
        for (int k = 0; k < inner; k += wide, ring.advance(l.piece_count)) {
          const int bytes = min(wide, inner - k) * 2;
          const std::uint32_t full = scene.barrier(Layout::kFull + ring.at),
                              piece = scene.memory + l.pieces + ring.at * kPieceBytes;
          wait_for(scene.barrier(Layout::kEmpty + ring.at), ring.parity ^ 1);
          if (lane == 0) mbarrier_arrive_expect_tx(full, count * bytes);
          __syncwarp();
          for (int row = lane; row < count; row += kWarp)
            copy_bulk(piece + row * row_pitch(wide), w + static_cast<std::int64_t>(first + row) * inner + k,
                      bytes, full);
        }
      }
    }
  }
}

// The accumulators of a tile of 8 columns, in two parts: rows g and g + 8; with 24 rows, g + 16.
template <int kRows>
using TileAccumulators = float[kRows > 16 ? 2 : 1][2][4];

// Tiles are 32 columns apart. `x`, `w`: where this lane begins to read. steps: of 32 columns.
template <class T, int kRows, int kTiles>
__device__ __forceinline__ void multiply_piece(TileAccumulators<kRows> (&accumulators)[2], std::uint32_t x,
                                               int x_pitch, std::uint32_t w, int w_pitch, int steps) {
#pragma unroll 4
  for (int s = 0; s < steps; ++s) {
    const uint4 upper = device::ld_shared_16(x + s * 64),
                lower = device::ld_shared_16(x + 8 * x_pitch + s * 64);
    const std::uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y},
                        second[4] = {upper.z, lower.z, upper.w, lower.w};
    uint4 last = {};
    if constexpr (kRows > 16) last = device::ld_shared_16(x + 16 * x_pitch + s * 64);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 column = device::ld_shared_16(w + tile * 32 * w_pitch + s * 64);
      device::mma<T>(accumulators[tile][0][0], first, column.x, column.y);
      device::mma<T>(accumulators[tile][0][1], second, column.z, column.w);
      if constexpr (kRows > 16) {
        device::mma<T>(accumulators[tile][1][0], {last.x, 0, last.y, 0}, column.x, column.y);
        device::mma<T>(accumulators[tile][1][1], {last.z, 0, last.w, 0}, column.z, column.w);
      }
    }
  }
}

// kRows: 16 or 24.
template <class T, int kRows>
class Matmuls {
 public:
  __device__ __forceinline__ Matmuls(const Scene<T>& scene)
      : scene_(scene),
        a_(scene.a),
        warp_(threadIdx.x / kWarp - kAttentionWarps),
        lane_(threadIdx.x % kWarp) {}

  __device__ __forceinline__ void run() {
    expect(Layout::kXReady);
    expect(Layout::kAttendedReady);
    expect(Layout::kHiddenReady);
    read_x();
    for (int i = 0; i < a_.blocks; ++i) {
      wait_for(scene_.barrier(Layout::kSmallFull + i % 2), i / 2 % 2);
      last_ = i + 1 == a_.blocks;
#pragma unroll 1  // one copy of the code, which fits into the cache of instructions
      for (int matrix = kQkv; matrix <= kDown; ++matrix) {
        if (matrix == kProj) receive(Layout::kAttendedReady, i % 2);
        if (matrix == kUp) receive(Layout::kXReady, 0);
        if (matrix == kDown) receive(Layout::kHiddenReady, i % 2);
        const std::uint32_t small = scene_.memory + a_.layout.small[i % 2];
        if (matrix == kQkv || matrix == kUp)
          normalise(small + (matrix == kQkv ? 0 : 2 * a_.sizes.width * 4), a_.block[i].eps[matrix == kUp]);
        multiply(matrix, small + a_.layout.bias[matrix]);
      }
      if (lane_ == 0) device::mbarrier_arrive(scene_.barrier(Layout::kSmallEmpty + i % 2));
      receive(Layout::kXReady, 1);
    }
  }

 private:
  __device__ __forceinline__ void expect(int barrier) const {
    const Sizes& s = a_.sizes;
    const int elements = barrier == Layout::kXReady          ? kRows * s.width
                         : barrier == Layout::kAttendedReady ? s.sequences * s.attended()
                                                             : kRows * s.hidden;
    if (warp_ == 0 && lane_ == 0) device::mbarrier_arrive_expect_tx(scene_.barrier(barrier), elements * 2);
  }
  // Waits for rows of all sequences, and expects the next.
  __device__ __forceinline__ void receive(int barrier, int parity) const {
    wait_for(scene_.barrier(barrier), parity);
    expect(barrier);
  }
  __device__ __forceinline__ static void meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(kMmaWarps * kWarp) : "memory");
  }

  // Rows beyond the last are zeros, also of what nobody will send.
  __device__ __forceinline__ void read_x() const {
    const int chunks = a_.sizes.width / 8;
    for (int i = warp_ * kWarp + lane_; i < kRows * chunks; i += kMmaWarps * kWarp) {
      const int row = i / chunks, chunk = i % chunks;
      uint4 value = {};
      if (row < a_.sizes.sequences && scene_.first_sequence + row < a_.sizes.batch)
        value = *reinterpret_cast<const uint4*>(
            a_.x + static_cast<std::int64_t>(scene_.first_sequence + row) * a_.sizes.width + chunk * 8);
      store_16(scene_.memory + a_.layout.x + row * row_pitch(a_.sizes.width) + chunk * 16, value);
    }
    const int attended = a_.sizes.attended() / 8, sent = a_.sizes.sequences;
    for (int i = warp_ * kWarp + lane_; i < (kRows - sent) * attended; i += kMmaWarps * kWarp)
      store_16(scene_.memory + a_.layout.attended + (sent + i / attended) * row_pitch(a_.sizes.attended()) +
                   i % attended * 16,
               {});
    meet();
  }

  __device__ __forceinline__ void values(float (&out)[8], std::uint32_t address) const {
    unpack(out, Eight<T>{device::ld_shared_16(address)});
  }

  // x to normed, four or six rows a warp; two passes for the statistics. parameters: w, then b.
  __device__ __forceinline__ void normalise(std::uint32_t parameters, float eps) const {
    constexpr int kOwn = kRows / kMmaWarps;
    const int width = a_.sizes.width, pitch = row_pitch(width);
    const std::uint32_t x = scene_.memory + a_.layout.x + warp_ * kOwn * pitch,
                        to = scene_.memory + a_.layout.normed + warp_ * kOwn * pitch;
    const float share = __fdividef(1.0f, static_cast<float>(width));
    float mean[kOwn] = {}, rstd[kOwn] = {}, v[8];
    for (int c = lane_ * 8; c < width; c += kWarp * 8)
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
        values(v, x + r * pitch + c * 2);
#pragma unroll
        for (int i = 0; i < 8; ++i) mean[r] += v[i];
      }
#pragma unroll
    for (int r = 0; r < kOwn; ++r) mean[r] = warp_sum(mean[r]) * share;
    for (int c = lane_ * 8; c < width; c += kWarp * 8)
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
        values(v, x + r * pitch + c * 2);
#pragma unroll
        for (int i = 0; i < 8; ++i) rstd[r] = fmaf(v[i] - mean[r], v[i] - mean[r], rstd[r]);
      }
#pragma unroll
    for (int r = 0; r < kOwn; ++r) rstd[r] = rsqrtf(warp_sum(rstd[r]) * share + eps);
    for (int c = lane_ * 8; c < width; c += kWarp * 8) {
      float w[8], b[8];
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const float2 of_w = device::ld_shared_float2(parameters + (c + i) * 4),
                     of_b = device::ld_shared_float2(parameters + (width + c + i) * 4);
        w[i] = of_w.x, w[i + 1] = of_w.y, b[i] = of_b.x, b[i + 1] = of_b.y;
      }
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
        values(v, x + r * pitch + c * 2);
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] = device::pack<T>((v[2 * i] - mean[r]) * rstd[r] * w[2 * i] + b[2 * i],
                                     (v[2 * i + 1] - mean[r]) * rstd[r] * w[2 * i + 1] + b[2 * i + 1]);
        store_16(to + r * pitch + c * 2, {words[0], words[1], words[2], words[3]});
      }
    }
    meet();
  }

  // bias: of this thread block's columns.
  __device__ __forceinline__ void multiply(int matrix, std::uint32_t bias) {
    const int inner = a_.sizes.inner(matrix), rows = a_.sizes.rows(matrix), pitch = row_pitch(inner);
    const int from = matrix == kProj   ? a_.layout.attended
                     : matrix == kDown ? a_.layout.hidden
                                       : a_.layout.normed;
    const std::uint32_t x = scene_.memory + from + lane_ / 4 * pitch + lane_ % 4 * 16;
    for (int first = 0; first < rows; first += kPieceRows) {
      const int count = min(kPieceRows, rows - first), wide = columns_of_piece(count);
      const int mine = warp_ * 8;  // this warp's tile of the piece; a second one begins 32 rows further on
      TileAccumulators<kRows> accumulators[2] = {};
      for (int k = 0; k < inner; k += wide) {
        wait_for(scene_.barrier(Layout::kFull + ring_.at), ring_.parity);
        const std::uint32_t w = scene_.memory + a_.layout.pieces + ring_.at * kPieceBytes +
                                (mine + lane_ / 4) * row_pitch(wide) + lane_ % 4 * 16;
        const int steps = min(wide, inner - k) / 32;
        if (mine + 32 < count)
          multiply_piece<T, kRows, 2>(accumulators, x + k * 2, pitch, w, row_pitch(wide), steps);
        else if (mine < count)
          multiply_piece<T, kRows, 1>(accumulators, x + k * 2, pitch, w, row_pitch(wide), steps);
        __syncwarp();
        if (lane_ == 0) device::mbarrier_arrive(scene_.barrier(Layout::kEmpty + ring_.at));
        ring_.advance(a_.layout.piece_count);
      }
      if (mine < count) finish(matrix, accumulators[0], first + mine, bias + (first + mine) * 2);
      if (mine + 32 < count)
        finish(matrix, accumulators[1], first + mine + 32, bias + (first + mine + 32) * 2);
    }
  }

  // The four words of a row that the four lanes of a group hold.
  __device__ __forceinline__ uint4 whole_row(std::uint32_t word) const {
    const int first = lane_ & ~3;
    return {__shfl_sync(kFullWarp, word, first), __shfl_sync(kFullWarp, word, first + 1),
            __shfl_sync(kFullWarp, word, first + 2), __shfl_sync(kFullWarp, word, first + 3)};
  }

  // The epilogue of a GEMM for 8 of this thread block's columns: bias, activation or residual; sends the
  // result.
  __device__ __forceinline__ void finish(int matrix, const TileAccumulators<kRows>& accumulators, int column,
                                         std::uint32_t bias) const {
    const int t = lane_ % 4, of_row = scene_.rank * a_.sizes.rows(matrix) + column;
    const float2 b = device::unpack<T>(load_4(bias + t * 4));
#pragma unroll
    for (int part = 0; part < kRows / 8; ++part) {
      const int row = part * 8 + lane_ / 4;
      float v[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = part % 2 * 2 + i;
        v[i] = accumulators[part / 2][0][at] + accumulators[part / 2][1][at] + (i == 0 ? b.x : b.y);
        if (matrix == kUp) v[i] = decode_linear::activation<T>(v[i], a_.f);
      }
      if (matrix == kProj || matrix == kDown) {
        const float2 x = device::unpack<T>(
            load_4(scene_.memory + a_.layout.x + row * row_pitch(a_.sizes.width) + (of_row + 2 * t) * 2));
        v[0] += x.x, v[1] += x.y;
      }
      const uint4 whole = whole_row(device::pack<T>(v[0], v[1]));
      if (matrix == kQkv) {
        if (t == 0 && row < a_.sizes.sequences) send_packed(whole, row, of_row);
      } else if (matrix == kUp) {
        send_to_all(Layout::kHiddenReady, a_.layout.hidden, a_.sizes.hidden, row, of_row, whole);
      } else {
        send_to_all(Layout::kXReady, a_.layout.x, a_.sizes.width, row, of_row, whole);
      }
      if (matrix == kDown)
        if (last_ && t == 0) write_y(whole, row, of_row);
    }
  }

  // To the thread block that attends for this sequence and head.
  __device__ __forceinline__ void send_packed(const uint4& value, int sequence, int column) const {
    const Sizes& s = a_.sizes;
    const int queries = s.heads * s.qk, kind = column < queries ? 0 : column < 2 * queries ? 1 : 2;
    const int in_kind = column - kind * queries, size = kind == 2 ? s.v : s.qk, head = in_kind / size;
    const int pair = sequence * s.heads + head, to = s.rank_of_pair(pair);
    const std::uint32_t at =
        scene_.memory + a_.layout.packed +
        ((pair - s.first_pair(to)) * s.of_pair() + kind * s.qk + in_kind - head * size) * 2;
    send(mapa(at, to), value, mapa(scene_.barrier(Layout::kPackedReady), to));
  }
  __device__ __forceinline__ void send_to_all(int barrier, int buffer, int columns, int row, int column,
                                              const uint4& value) const {
    const std::uint32_t at = scene_.memory + buffer + row * row_pitch(columns) + column * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int to = lane_ % 4 * 2 + i;
      send(mapa(at, to), value, mapa(scene_.barrier(barrier), to));
    }
  }
  __device__ __forceinline__ void write_y(const uint4& value, int sequence, int column) const {
    const std::int64_t row = scene_.first_sequence + sequence;
    if (sequence < a_.sizes.sequences && row < a_.sizes.batch)
      *reinterpret_cast<uint4*>(a_.y + row * a_.sizes.width + column) = value;
  }

  const Scene<T>& scene_;
  const Arguments<T>& a_;
  int warp_, lane_;
  RingPosition ring_;
  bool last_ = false;
};

}  // namespace weft::decode_cluster
