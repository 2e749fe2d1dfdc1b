// SPDX-License-Identifier: MIT
// Attention in the persistent kernel. An item is up to 32 keys of one (sequence, head), for one
// warp, on the tensor cores. Scores are q K^T with the query in the upper rows of A, so that every
// lane has those of its columns of keys. The sum of values is V^T p^T: even columns of p^T are
// probabilities rounded to T, odd ones what rounding left. Items leave sums in shared memory, which
// are added in the order of the list. Keys and values of a warp's next stage are on their way while
// it computes, those of the next layer during the GEMMs.
#pragma once

#include "kernels/sampling/decode/persistent.cuh"

namespace weft::decode_persistent {
// kQk, kV: parts of 64 elements of a row.
template <class T, int kQk, int kV>
class Attention {
  static constexpr int kKeyChunks = 8 * kQk, kValueChunks = 8 * kV;  // 16 bytes of a row, padded

 public:
  __device__ __forceinline__ explicit Attention(Scene<T>& scene)
      : s_(scene),
        me_(this_thread()) {
    if (me_.lane == 0) item(1).at = {0, 0, me_.warp - kWarps};
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < 2; ++i) advance();
#pragma unroll 1
    for (int half = 0; half < s_.a.memory.stages; ++half) fetch(item(0), half, now_key_);
  }

  __device__ __forceinline__ void run(int layer) {
    me_ = this_thread();
    const Rounds& r = rounds(layer);
#pragma unroll 1
    for (int round = 0; r.has(round); ++round) {
      const uint32_t slots = s_.address(s_.a.memory.sums[s_.sums_parity]);
      s_.sums_parity ^= 1;
      while (item(0).at.layer == layer && item(0).at.round == round) attend(slots);
      __syncthreads();
      join(layer, round, slots);
    }
  }

 private:
  struct Item {
    Cursor at;
    int row, head;  // of the group
    int part;       // of the list
    int count;      // keys; of an empty part 0 or less
    int unused;
  };

  static_assert(sizeof(Item) == 32);

  __device__ __forceinline__ const Rounds& rounds(int layer) const {
    return s_.template at<const Rounds>(s_.a.memory.rounds)[s_.block(layer).layout];
  }

  __device__ __forceinline__ const List& list(int layer, int head) const {
    return s_.template at<const List>(
        s_.a.memory.lists)[s_.block(layer).layout * s_.a.sizes.heads + head];
  }

  // This warp's item at hand, and the one ahead.
  __device__ __forceinline__ Item& item(int ahead) const {
    return s_.template at<Item>(s_.a.memory.items)[me_.warp * 2 + (now_ ^ ahead)];
  }

  // The item ahead is the first from the cursor on. Its keys are used an item later.
  __device__ __forceinline__ void settle(Cursor at) {
    at.settle(me_.warp, s_.a.layers, [this](int layer) { return rounds(layer); });
    Item next = {at, 0, 0, 0, 0, 0};
    next_key_ = -1;
    if (at.layer < s_.a.layers) {
      const Rounds& r = rounds(at.layer);
      next.part = at.item / r.in(at.round);
      const int pair =
          s_.place().first[kAttended] + at.round * r.each + at.item - next.part * r.in(at.round);
      next.row = pair / s_.a.sizes.heads;
      next.head = pair - next.row * s_.a.sizes.heads;
      const List& l = list(at.layer, next.head);
      next.count = min(kPartKeys, l.count - next.part * kPartKeys);
      if (me_.lane < next.count)
        next_key_ = __ldg(s_.a.layouts[s_.block(at.layer).layout].keys + l.begin +
                          next.part * kPartKeys + me_.lane);
    }
    __syncwarp();  // all lanes have read what was there
    if (me_.lane == 0) item(1) = next;
    __syncwarp();
  }

  __device__ __forceinline__ void advance() {
    Cursor at = item(1).at;
    at.item += kWarps;
    now_ ^= 1;
    now_key_ = next_key_;
    settle(at);
  }

  __device__ __forceinline__ uint32_t stage(int half) const {
    const int stages = s_.a.memory.stages;
    return s_.address(s_.a.memory.stage) +
           (stages == 2 ? me_.warp * 2 + half : me_.warp) * s_.a.memory.stage_bytes;
  }

  // Row 0 of a head's cache of keys or values.
  __device__ __forceinline__ T* cache(T* all, const Item& i, int size) const {
    const int64_t sequence = s_.a.first_sequence + s_.place().first_row + i.row;
    return all + (sequence * s_.block(i.at.layer).rows + list(i.at.layer, i.head).first_row) * size;
  }

  // The keys and values of a half of an item, one group of cp.async; zeros where there are none.
  __device__ __forceinline__ void fetch(const Item& i, int half, int key) const {
    if (i.count > half * kStageKeys) {
      const Block<T>& block = s_.block(i.at.layer);
      const uint32_t to = stage(half);
      fetch_rows<kQk>(to, cache(block.k, i, s_.a.sizes.qk), key, half, s_.a.sizes.qk);
      fetch_rows<kV>(to + kStageKeys * 128 * kQk, cache(block.v, i, s_.a.sizes.v), key, half,
                     s_.a.sizes.v);
    }
    device::cp_async_commit_group();
  }

  template <int kParts>
  __device__ __forceinline__ void fetch_rows(uint32_t to, const T* from, int keys, int half,
                                             int size) const {
    constexpr int kChunks = 8 * kParts, kRowsAtOnce = kWarp / kChunks;
    const int chunk = me_.lane % kChunks;
    const uint64_t policy = device::evict_first();
#pragma unroll
    for (int first = 0; first < kStageKeys; first += kRowsAtOnce) {
      const int row = first + me_.lane / kChunks,
                key = __shfl_sync(kFullWarp, keys, half * kStageKeys + row);
      const bool valid = key >= 0 && chunk * 8 < size;
      device::cp_async_16(to + device::chunk_offset<64 * kParts>(row, chunk),
                          valid ? from + static_cast<int64_t>(key) * size + chunk * 8 : from, valid,
                          policy);
    }
  }

  __device__ __forceinline__ void attend(uint32_t slots) {
    const Item& now = item(0);
    const List& l = list(now.at.layer, now.head);
    const unsigned own_at = __ballot_sync(kFullWarp, l.own >= 0 && now_key_ == l.own);
    const bool keeps = l.own >= 0 && now.part == max(1, parts_of(l.count)) - 1;
    uint32_t q[kKeyChunks] = {}, own_k[kQk] = {}, own_v[kV] = {};
    if (now.count > 0) read_query(q, now);
    if (own_at != 0 || keeps) read_own(own_k, own_v, now);
    if (keeps) keep(own_k, own_v, now, l.own);
    Sums sums;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const bool two = s_.a.memory.stages == 2;
      if (two)
        device::cp_async_wait_all_but_last();
      else
        device::cp_async_wait_all();
      __syncwarp();
      if (now.count > half * kStageKeys) {
        unsigned here = own_at >> (half * kStageKeys) & 0xffffu;
#pragma unroll 1  // a list may repeat its keys
        for (; here != 0; here &= here - 1)
          insert(__ffs(static_cast<int>(here)) - 1, half, own_k, own_v);
        use(sums, q, half, now.count - half * kStageKeys);
      }
      __syncwarp();
      const bool rest = !two && half == 0;  // of this item
      fetch(item(rest ? 0 : 1), two ? half : half ^ 1, rest ? now_key_ : next_key_);
    }
    if (now.count > 0) leave(sums, slots + now.at.item * s_.a.memory.slot_floats * 4);
    advance();
  }

  // ---- the new query, key and value ----

  // Features of a head, which lie `heads_before` heads of Dqk further on.
  __device__ __forceinline__ const uint32_t* packed(const Item& i, int heads_before,
                                                    int size) const {
    return s_.words(i.at.layer, kQkv, i.row) + (heads_before * s_.a.sizes.qk + i.head * size) / 2;
  }

  __device__ __forceinline__ const float2* angles(const Item& i) const {
    const int sequence = s_.a.first_sequence + s_.place().first_row + i.row;
    return reinterpret_cast<const float2*>(s_.a.qk.row(sequence, 0));
  }

  __device__ __forceinline__ bool changes() const { return s_.a.qk.norm || s_.a.qk.table; }

  // One pair of features, normalised and rotated: QkForward.
  __device__ __forceinline__ uint32_t changed(uint32_t word, float scale, float2 turn) const {
    const float2 x = device::unpack<T>(word);
    const float a = x.x * scale, b = x.y * scale;
    return device::pack<T>(a * turn.x - b * turn.y, a * turn.y + b * turn.x);
  }

  __device__ __forceinline__ float scale_of(float squares) const {
    return s_.a.qk.norm ? rsqrtf(squares / static_cast<float>(s_.a.sizes.qk) + s_.a.qk.eps) : 1.0f;
  }

  __device__ __forceinline__ static float square(uint32_t word) {
    const float2 x = device::unpack<T>(word);
    return fmaf(x.x, x.x, x.y * x.y);
  }

  // Lane 4 g + t gets features 2t and 2t + 1 of each 8, for any g.
  __device__ __forceinline__ void read_query(uint32_t (&q)[kKeyChunks], const Item& now) const {
    const int qk = s_.a.sizes.qk, t = me_.lane % 4;
    receive(q, packed(now, 0, qk) + t, 4, qk / 8);
    if (!changes()) return;
    float squares = 0;
#pragma unroll
    for (int c = 0; c < kKeyChunks; ++c) squares += square(q[c]);
    const float scale = scale_of(warp_sum<4>(squares));
    const float2* turns = s_.a.qk.table ? angles(now) + t : nullptr;
#pragma unroll
    for (int c = 0; c < kKeyChunks; ++c)
      q[c] = changed(q[c], scale, turns && c * 8 < qk ? __ldg(turns + c * 4) : float2{1, 0});
  }

  // Lane i gets word i of each 64 features.
  __device__ __forceinline__ void read_own(uint32_t (&k)[kQk], uint32_t (&v)[kV],
                                           const Item& now) const {
    const int qk = s_.a.sizes.qk, size = s_.a.sizes.v, heads = s_.a.sizes.heads;
    const auto mine = [this](int columns) { return (columns / 2 - me_.lane + kWarp - 1) / kWarp; };
    receive(k, packed(now, heads, qk) + me_.lane, kWarp, mine(qk));
    receive(v, packed(now, 2 * heads, size) + me_.lane, kWarp, mine(size));
    if (!changes()) return;
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kQk; ++p) squares += square(k[p]);
    const float scale = scale_of(warp_sum(squares));
#pragma unroll
    for (int p = 0; p < kQk; ++p) {
      float2 turn = {1, 0};
      if (s_.a.qk.table && p < mine(qk)) turn = __ldg(angles(now) + p * kWarp + me_.lane);
      k[p] = changed(k[p], scale, turn);
    }
  }

  // To the cache, for later positions.
  __device__ __forceinline__ void keep(const uint32_t (&k)[kQk], const uint32_t (&v)[kV],
                                       const Item& now, int row) const {
    const Block<T>& block = s_.block(now.at.layer);
    const auto put = [&]<int kParts>(T* all, const uint32_t(&words)[kParts], int size) {
      T* to = cache(all, now, size) + static_cast<int64_t>(row) * size;
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const int word = p * kWarp + me_.lane;
        if (word * 2 < size) reinterpret_cast<uint32_t*>(to)[word] = words[p];
      }
    };
    put(block.k, k, s_.a.sizes.qk);
    put(block.v, v, s_.a.sizes.v);
  }

  // To a row of the stage, whose row of the cache was read before it was written.
  __device__ __forceinline__ void insert(int row, int half, const uint32_t (&k)[kQk],
                                         const uint32_t (&v)[kV]) const {
    const auto put = [&]<int kParts>(uint32_t to, const uint32_t(&words)[kParts]) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const int word = p * kWarp + me_.lane;
        device::st_shared_4(to + device::chunk_offset<64 * kParts>(row, word / 4) + word % 4 * 4,
                            words[p]);
      }
    };
    put(stage(half), k);
    put(stage(half) + kStageKeys * 128 * kQk, v);
    __syncwarp();
  }

  // ---- softmax over an item ----

  // Of y: features 16 n + g and, from the third number on, 16 n + g + 8; in two columns.
  struct Sums {
    float top = -INFINITY, sum = 0, y[kValueChunks / 2][4] = {};
  };

  // The first `count` keys of a stage; exponentials are exp2.
  __device__ __forceinline__ void use(Sums& sums, const uint32_t (&q)[kKeyChunks], int half,
                                      int count) const {
    const uint32_t k = stage(half), v = k + kStageKeys * 128 * kQk;
    const float scale = s_.a.scale * device::kLog2E;
    float score[2][4] = {}, top = sums.top;
#pragma unroll
    for (int c = 0; c < kKeyChunks; c += 2) {
      uint32_t keys[4];
      device::ldmatrix(keys, device::lane_address<64 * kQk>(k, 0, c / 2));
      device::mma<T>(score[0], {q[c], 0, q[c + 1], 0}, keys[0], keys[2]);
      device::mma<T>(score[1], {q[c], 0, q[c + 1], 0}, keys[1], keys[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // keys 2t, 2t + 1, 2t + 8, 2t + 9
      float& x = score[i / 2][i % 2];
      x = i / 2 * 8 + me_.lane % 4 * 2 + i % 2 < count ? x * scale : -INFINITY;
      top = fmaxf(top, x);
    }
    top = warp_reduce<4>(top, Max{});
    const float base = top == -INFINITY ? 0.0f : top, shrink = device::exp2_fast(sums.top - base);
    sums.top = top;
    sums.sum *= shrink;
#pragma unroll
    for (auto& tile : sums.y)
#pragma unroll
      for (float& y : tile) y *= shrink;
    uint32_t p[2];
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const float first = device::exp2_fast(score[tile][0] - base),
                  second = device::exp2_fast(score[tile][1] - base);
      sums.sum += first + second;
      p[tile] = device::pack<T>(first, second);
      const float2 rounded = device::unpack<T>(p[tile]);
      if (me_.lane / 4 % 2 != 0) p[tile] = device::pack<T>(first - rounded.x, second - rounded.y);
    }
#pragma unroll
    for (int n = 0; n < kValueChunks / 2; ++n) {
      uint32_t values[4];
      device::ldmatrix_trans(values, device::lane_address<64 * kV>(v, 0, n));
      device::mma<T>(sums.y[n], {values[0], values[2], values[1], values[3]}, p[0], p[1]);
    }
  }

  // The sums of an item to its slot.
  __device__ __forceinline__ void leave(const Sums& sums, uint32_t slot) const {
    const float sum = warp_sum<4>(sums.sum);
    if (me_.lane % 4 != 0) return;
    const uint32_t to = slot + me_.lane;  // feature g
#pragma unroll
    for (int n = 0; n < kValueChunks / 2; ++n) {
      device::st_shared_float(to + n * 64, sums.y[n][0] + sums.y[n][1]);
      device::st_shared_float(to + n * 64 + 32, sums.y[n][2] + sums.y[n][3]);
    }
    if (me_.lane != 0) return;
    device::st_shared_float(slot + 64 * kV * 4, sums.top);
    device::st_shared_float(slot + 64 * kV * 4 + 4, sum);
  }

  // The sums of the parts of each pair, in order; two elements of the result a thread.
  __device__ __forceinline__ void join(int layer, int round, uint32_t slots) const {
    const Rounds& r = rounds(layer);
    const int words = s_.a.sizes.v / 2, in_round = r.in(round),
              pitch = in_round * s_.a.memory.slot_floats * 4;
    for (int i = me_.warp * kWarp + me_.lane; i < in_round * words; i += kThreads) {
      const int of_round = i / words, word = i - of_round * words,
                pair = s_.place().first[kAttended] + round * r.each + of_round,
                row = pair / s_.a.sizes.heads, head = pair - row * s_.a.sizes.heads,
                parts = parts_of(list(layer, head).count);
      const uint32_t slot = slots + of_round * s_.a.memory.slot_floats * 4;
      float top = -INFINITY, sum = 0, x = 0, y = 0;
#pragma unroll 4
      for (int p = 0; p < parts; ++p)
        top = fmaxf(top, device::ld_shared_float2(slot + p * pitch + 64 * kV * 4).x);
#pragma unroll 4
      for (int p = 0; p < parts; ++p) {
        const float2 of_part = device::ld_shared_float2(slot + p * pitch + 64 * kV * 4),
                     values = device::ld_shared_float2(slot + p * pitch + word * 8);
        const float weight = device::exp2_fast(of_part.x - top);
        sum = fmaf(weight, of_part.y, sum);
        x = fmaf(weight, values.x, x);
        y = fmaf(weight, values.y, y);
      }
      const float share = sum == 0 ? 0.0f : __fdividef(1.0f, sum);
      s_.publish(layer, kAttended, row, head * words + word, device::pack<T>(x * share, y * share));
    }
  }

  Scene<T>& s_;
  Thread me_;
  int now_ = 0;                     // which of the warp's items
  int now_key_ = 0, next_key_ = 0;  // of this lane: row of the head's cache, -1: none
};
}  // namespace weft::decode_persistent
