// SPDX-License-Identifier: MIT
// The attention warps of a cluster. Two warps take a (sequence, head): their eight groups of 8 lanes take
// the listed keys in turn, each with an online softmax of its own, and are merged in a fixed order. A lane
// holds its share of kAhead keys and values in registers and refills them from the next list, of the next
// head or block, as it goes: loads overlap the GEMMs in between.
#pragma once

#include "kernels/sampling/decode_cluster.cuh"

namespace weft::decode_cluster {

inline constexpr int kLanes = 8;  // of a group: 8 elements of each 64 of a row for a lane
inline constexpr int kGroups = kWarpsOfPair * kWarp / kLanes;

// 16 bytes that are read once; zeros where !valid.
__device__ __forceinline__ uint4 read_once(const void* p, bool valid) {
  uint4 r;
  asm volatile(
      "{\n.reg .pred valid;\nsetp.ne.b32 valid, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\n"
      "mov.b32 %3, 0;\n@valid ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n}\n"
      : "=&r"(r.x), "=&r"(r.y), "=&r"(r.z), "=&r"(r.w)
      : "l"(p), "r"(static_cast<int>(valid)));
  return r;
}

// What a (sequence, head) reads in one block. A warp keeps the current and the next in shared memory.
template <class T>
struct List {
  T *k, *v;                  // row 0
  const std::int32_t* keys;  // rows
  int count, own;            // own: the row at hand, -1: none
};
static_assert(sizeof(List<std::uint16_t>) == kListBytes);

// kQk, kV: parts of 64 elements of a row. kTogether: keys of a lane that share one step of the softmax.
template <class T, int kQk, int kV, int kAhead, int kTogether>
class Attention {
  static_assert(kAhead % kTogether == 0 && kAhead <= 2 * kLanes);

 public:
  __device__ __forceinline__ Attention(const Scene<T>& scene)
      : scene_(scene),
        a_(scene.a),
        lane_(threadIdx.x % kWarp),
        half_(threadIdx.x / kWarp % kWarpsOfPair),
        pair_(threadIdx.x / (kWarp * kWarpsOfPair)),
        group_(half_ * (kWarp / kLanes) + lane_ / kLanes),
        first_pair_(a_.sizes.first_pair(scene.rank)),
        pairs_(a_.sizes.first_pair(scene.rank + 1) - first_pair_),
        rounds_((pairs_ + kPairsAtOnce - 1) / kPairsAtOnce) {}

  // Job -1 starts the stream. Warps without a pair do not wait: barriers could pass them by both parities.
  __device__ __forceinline__ void run() {
    if (pair_ >= pairs_) return;
    expect();
    prepare(0);
    for (int job = -1; job < a_.blocks * rounds_; ++job) {
      const int block = job / rounds_, round = job - block * rounds_;
      if (job >= 0 && round == 0) {
        wait_for(scene_.barrier(Layout::kPackedReady), block % 2);
        expect();
      }
      attend(job, job < 0 ? pairs_ : round * kPairsAtOnce + pair_);
      prepare(job + 2);
    }
  }

 private:
  __device__ __forceinline__ void expect() const {
    if (threadIdx.x == 0)
      device::mbarrier_arrive_expect_tx(scene_.barrier(Layout::kPackedReady),
                                        pairs_ * a_.sizes.of_pair() * 2);
  }
  __device__ __forceinline__ int first_of(int part) const { return part * 64 + lane_ % kLanes * 8; }

  __device__ __forceinline__ List<T>& list(int job) const {
    extern __shared__ __align__(128) unsigned char shared[];
    return reinterpret_cast<List<T>*>(shared + a_.layout.lists)[threadIdx.x / kWarp * 2 + (job & 1)];
  }

  // The list of a job, and the rows of its first keys.
  __device__ __forceinline__ void prepare(int job) {
    List<T> l = {};
    const int block = job / rounds_, pair = (job - block * rounds_) * kPairsAtOnce + pair_;
    const int in_cluster = (first_pair_ + pair) / a_.sizes.heads,
              head = first_pair_ + pair - in_cluster * a_.sizes.heads,
              sequence = scene_.first_sequence + in_cluster;
    l.own = -1;
    if (block < a_.blocks && pair < pairs_ && sequence < a_.sizes.batch) {
      const Block<T>& b = a_.block[block];
      const int group = b.group_of_head[head], begin = b.key_start[group], first = b.first_row[head];
      const std::int64_t row = static_cast<std::int64_t>(sequence) * b.rows + first;
      l = {b.k + row * a_.sizes.qk, b.v + row * a_.sizes.v, b.keys + begin, b.key_start[group + 1] - begin,
           b.own_row[head] < 0 ? -1 : b.own_row[head] - first};
    }
    if (lane_ == 0) list(job) = l;
    __syncwarp();
    read_rows(next_rows_, l, 0);
  }

  // Lane j of a group gets the rows of the group's keys first + j and first + j + 8.
  __device__ __forceinline__ void read_rows(int (&rows)[2], const List<T>& l, int first) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = (first + lane_ % kLanes + i * kLanes) * kGroups + group_;
      rows[i] = at < l.count ? l.keys[at] : -1;
    }
  }

  // Keys and values of slots first .. first + kTogether - 1; zeros beyond the end of the list.
  __device__ __forceinline__ void refill(int first, const T* k, const T* v, int own, const int (&rows)[2]) {
#pragma unroll
    for (int i = first; i < first + kTogether; ++i) {
      const int row = __shfl_sync(kFullWarp, rows[i / kLanes], lane_ / kLanes * kLanes + i % kLanes);
      const bool there = row >= 0 && row != own;  // the row at hand comes from the packed projection
      if (row >= 0 && row == own) own_slots_ |= 1u << i;
#pragma unroll
      for (int p = 0; p < kQk; ++p)
        k_[i][p] = read_once(k + static_cast<std::int64_t>(row) * a_.sizes.qk + first_of(p),
                             there && first_of(p) < a_.sizes.qk);
#pragma unroll
      for (int p = 0; p < kV; ++p)
        v_[i][p] = read_once(v + static_cast<std::int64_t>(row) * a_.sizes.v + first_of(p),
                             there && first_of(p) < a_.sizes.v);
    }
  }

  // Prefetches keys and values of the next list beyond the registers into the L2 cache.
  __device__ __forceinline__ void ask_for_later(const List<T>& l) const {
    const auto ask = [](const T* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); };
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = next_rows_[i];
      if (lane_ % kLanes + i * kLanes < kAhead || row < 0 || row == l.own) continue;
#pragma unroll
      for (int p = 0; p < kQk; ++p)
        if (p * 64 < a_.sizes.qk) ask(l.k + static_cast<std::int64_t>(row) * a_.sizes.qk + p * 64);
#pragma unroll
      for (int p = 0; p < kV; ++p)
        if (p * 64 < a_.sizes.v) ask(l.v + static_cast<std::int64_t>(row) * a_.sizes.v + p * 64);
    }
  }

  __device__ __forceinline__ uint4 part_of(std::uint32_t row, int part, int size) const {
    return first_of(part) < size ? device::ld_shared_16(row + first_of(part) * 2) : uint4{};
  }

  __device__ __forceinline__ void attend(int job, int pair) {
    const Sizes& s = a_.sizes;
    const bool present = pair < pairs_;
    const List<T>& now = list(job);
    const std::uint32_t q = scene_.memory + a_.layout.packed + pair * s.of_pair() * 2, k = q + s.qk * 2,
                        v = k + s.qk * 2;
    int turns = 0;
    if (present) {
      turns = (now.count + kGroups - 1) / kGroups;
      if (a_.qk.norm || a_.qk.table) norm_and_rotate(half_ == 0 ? q : k, first_pair_ + pair);
      begin(q);
      if (half_ == 1 && now.own >= 0 && lane_ < kLanes) put_own_row(now, k, v);
    }
    for (int turn = 0;; turn += kAhead) {
      const bool last = turn + kAhead >= turns;
      const List<T>& from = list(job + last);
      int rows[2] = {next_rows_[0], next_rows_[1]};
      if (!last) read_rows(rows, now, turn + kAhead);
      const unsigned own = own_slots_;
      own_slots_ = 0;
#pragma unroll
      for (int i = 0; i < kAhead; i += kTogether) {
        if (turn + i < turns) use(i, own, now.count - (turn + i) * kGroups - group_, k, v);
        refill(i, from.k, from.v, from.own, rows);
      }
      if (last) break;
    }
    ask_for_later(list(job + 1));
    if (!present) return;
    merge_lanes();
    deliver(first_pair_ + pair, job);
  }

  // QkForward, in place: of the query by the first warp of a pair, of the new key by the second.
  __device__ __forceinline__ void norm_and_rotate(std::uint32_t row, int pair) const {
    const int sequence = min(scene_.first_sequence + pair / a_.sizes.heads, a_.sizes.batch - 1);
    float x[kQk][8], sum = 0, scale = 1;
#pragma unroll
    for (int p = 0; p < kQk; ++p) {
      unpack(x[p], Eight<T>{part_of(row, p, a_.sizes.qk)});
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(x[p][i], x[p][i], sum);
    }
    sum = warp_sum<kLanes>(sum);
    if (a_.qk.norm) scale = rsqrtf(sum / static_cast<float>(a_.sizes.qk) + a_.qk.eps);
#pragma unroll
    for (int p = 0; p < kQk; ++p) {
      if (first_of(p) >= a_.sizes.qk) continue;
      float turn[8] = {1, 0, 1, 0, 1, 0, 1, 0};
      if (a_.qk.table) a_.qk.read(turn, sequence, 0, first_of(p));
      rotate_eight(x[p], scale, turn);
      if (lane_ < kLanes) store_16(row + first_of(p) * 2, pack_eight<T>(x[p]).words[0]);
    }
    meet();
  }

  // The two warps of a pair.
  __device__ __forceinline__ void meet() const {
    asm volatile("bar.sync %0, %1;" ::"r"(2 + pair_), "n"(kWarpsOfPair * kWarp) : "memory");
  }

  __device__ __forceinline__ void begin(std::uint32_t q) {
#pragma unroll
    for (int p = 0; p < kQk; ++p) {
      unpack(q_[p], Eight<T>{part_of(q, p, a_.sizes.qk)});
#pragma unroll
      for (int i = 0; i < 8; ++i) q_[p][i] *= a_.scale * 1.4426950408889634f;  // exp2 from here on
    }
    top_ = -INFINITY;
    sum_ = 0;
#pragma unroll
    for (int p = 0; p < kV; ++p)
#pragma unroll
      for (int i = 0; i < 8; ++i) y_[p][i] = 0;
  }

  __device__ __forceinline__ void put_own_row(const List<T>& l, std::uint32_t k, std::uint32_t v) const {
    const std::int64_t row = l.own;
#pragma unroll
    for (int p = 0; p < kQk; ++p)
      if (first_of(p) < a_.sizes.qk)
        *reinterpret_cast<uint4*>(l.k + row * a_.sizes.qk + first_of(p)) =
            device::ld_shared_16(k + first_of(p) * 2);
#pragma unroll
    for (int p = 0; p < kV; ++p)
      if (first_of(p) < a_.sizes.v)
        *reinterpret_cast<uint4*>(l.v + row * a_.sizes.v + first_of(p)) =
            device::ld_shared_16(v + first_of(p) * 2);
  }

  // Adds the keys in slots first .. first + kTogether - 1; slot first + i counts where i * kGroups < left.
  __device__ __forceinline__ void use(int first, unsigned own, int left, std::uint32_t own_k,
                                      std::uint32_t own_v) {
    float score[kTogether], top = top_;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (own >> (first + i) & 1) {
#pragma unroll
        for (int p = 0; p < kQk; ++p) k_[first + i][p] = part_of(own_k, p, a_.sizes.qk);
#pragma unroll
        for (int p = 0; p < kV; ++p) v_[first + i][p] = part_of(own_v, p, a_.sizes.v);
      }
      score[i] = 0;
#pragma unroll
      for (int p = 0; p < kQk; ++p) {
        float k[8];
        unpack(k, Eight<T>{k_[first + i][p]});
#pragma unroll
        for (int c = 0; c < 8; ++c) score[i] = fmaf(q_[p][c], k[c], score[i]);
      }
    }
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2)
#pragma unroll
      for (int i = 0; i < kTogether; ++i) score[i] += __shfl_xor_sync(kFullWarp, score[i], lanes);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (i * kGroups >= left) score[i] = -INFINITY;
      top = fmaxf(top, score[i]);
    }
    rescale(top);
    const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const float p = device::exp2_fast(score[i] - base);
      sum_ += p;
#pragma unroll
      for (int part = 0; part < kV; ++part) {
        float v[8];
        unpack(v, Eight<T>{v_[first + i][part]});
#pragma unroll
        for (int c = 0; c < 8; ++c) y_[part][c] = fmaf(p, v[c], y_[part][c]);
      }
    }
  }

  // Sums are relative to 2^top from here on.
  __device__ __forceinline__ void rescale(float top) {
    const float shrink = top_ == top ? 1.0f : device::exp2_fast(top_ - top);
    top_ = top;
    sum_ *= shrink;
#pragma unroll
    for (int p = 0; p < kV; ++p)
#pragma unroll
      for (int i = 0; i < 8; ++i) y_[p][i] *= shrink;
  }

  // Every group of a warp gets the sums of all four.
  __device__ __forceinline__ void merge_lanes() {
#pragma unroll
    for (int lanes = kLanes; lanes < kWarp; lanes *= 2) {
      rescale(fmaxf(top_, __shfl_xor_sync(kFullWarp, top_, lanes)));
      sum_ += __shfl_xor_sync(kFullWarp, sum_, lanes);
#pragma unroll
      for (int p = 0; p < kV; ++p)
#pragma unroll
        for (int i = 0; i < 8; ++i) y_[p][i] += __shfl_xor_sync(kFullWarp, y_[p][i], lanes);
    }
  }

  // The second warp hands its sums to the first, which divides and sends the result, in two places by turns.
  __device__ __forceinline__ void deliver(int pair, int job) {
    extern __shared__ __align__(128) unsigned char shared[];
    float* handed = reinterpret_cast<float*>(shared + a_.layout.merge) +
                    ((job & 1) * kPairsAtOnce + pair_) * kMergeFloats;
    if (half_ == 1 && lane_ < kLanes) {
#pragma unroll
      for (int p = 0; p < kV; ++p)
#pragma unroll
        for (int i = 0; i < 8; i += 4)
          *reinterpret_cast<float4*>(handed + first_of(p) + i) = {y_[p][i], y_[p][i + 1], y_[p][i + 2],
                                                                  y_[p][i + 3]};
      if (lane_ == 0) handed[128] = top_, handed[129] = sum_;
    }
    meet();
    if (half_ == 1) return;
    const float other = handed[128], top = fmaxf(top_, other);
    const float weight = other == top ? 1.0f : device::exp2_fast(other - top);
    rescale(top);
    sum_ = fmaf(weight, handed[129], sum_);
    const float share = sum_ == 0 ? 0.0f : __fdividef(1.0f, sum_);
    const int sequence = pair / a_.sizes.heads, head = pair - sequence * a_.sizes.heads;
    const std::uint32_t row = scene_.memory + a_.layout.attended + sequence * row_pitch(a_.sizes.attended()) +
                              head * a_.sizes.v * 2;
#pragma unroll
    for (int p = 0; p < kV; ++p) {
      if (first_of(p) >= a_.sizes.v) continue;
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float first = fmaf(weight, handed[first_of(p) + 2 * i], y_[p][2 * i]),
                    second = fmaf(weight, handed[first_of(p) + 2 * i + 1], y_[p][2 * i + 1]);
        words[i] = device::pack<T>(first * share, second * share);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // each group of lanes to two of the eight
        const int to = lane_ / kLanes * 2 + i;
        send(mapa(row + first_of(p) * 2, to), {words[0], words[1], words[2], words[3]},
             mapa(scene_.barrier(Layout::kAttendedReady), to));
      }
    }
  }

  const Scene<T>& scene_;
  const Arguments<T>& a_;
  int lane_, half_, pair_, group_, first_pair_, pairs_, rounds_;
  uint4 k_[kAhead][kQk], v_[kAhead][kV];
  unsigned own_slots_ = 0;  // bits of the slots to read from the packed projection
  int next_rows_[2];
  float q_[kQk][8], y_[kV][8], top_, sum_;
};

}  // namespace weft::decode_cluster
