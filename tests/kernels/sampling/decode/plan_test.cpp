// SPDX-License-Identifier: MIT
// The plan of the persistent decoding kernel: everything is computed once, nothing overlaps, and
// thread blocks that wait for words alone come to the same result in any batch and on any number of
// multiprocessors.
#include "kernels/sampling/decode/plan.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

namespace weft::decode_persistent {
namespace {
constexpr uint32_t kAbsent = 0xffffffffu;
constexpr Sizes kText = {1, 512, 8, 64, 64, 2048}, kImages = {256, 256, 2, 64, 128, 512},
                kSmall = {1, 64, 3, 8, 16, 128};
// of an H200; of the arguments of a layer
constexpr int kSharedLimit = 227 * 1024, kBlockBytes = 128;

Sizes with_batch(Sizes s, int batch) {
  s.batch = batch;
  return s;
}

TEST(DecodePersistent, SharesAreWhole) {
  for (const int ranks : {1, 6, 7, 8, 33, 132})
    for (const int count : {1, 8, 64, 192, 256, 1024}) {
      int next = 0, most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(first_of(rank, count, ranks), next);
        next = first_of(rank + 1, count, ranks);
        most = std::max(most, next - first_of(rank, count, ranks));
      }
      EXPECT_EQ(next, count);
      EXPECT_EQ(most, (count + ranks - 1) / ranks) << count << " of " << ranks;
    }
}

TEST(DecodePersistent, GroupsHoldAllSequences) {
  for (int batch = 1; batch <= 132 * kMostRows; batch += batch < 70 ? 1 : 61) {
    const Groups g(batch, 132, kMostRows);
    ASSERT_GE(g.ranks, 1);
    ASSERT_LE(g.groups * g.ranks, 132);
    ASSERT_EQ(g.first_row(0, batch), 0);
    ASSERT_EQ(g.first_row(g.groups, batch), batch);
    for (int i = 0; i < g.groups; ++i) {
      const int rows = g.first_row(i + 1, batch) - g.first_row(i, batch);
      ASSERT_GE(rows, 1);
      ASSERT_LE(rows, (batch + g.groups - 1) / g.groups);
      ASSERT_LE(rows, kMostRows);
    }
  }
}

TEST(DecodePersistent, WordsOfTheExchangeDoNotOverlap) {
  for (const Sizes& s : {with_batch(kSmall, 3), with_batch(kText, 2)})
    for (const int copies : {1, 4}) {
      const Exchange e(s, copies);
      int next = 0;
      for (int layer = 0; layer < 3; ++layer)
        for (int buffer = 0; buffer < kBuffers; ++buffer)
          for (int copy = 0; copy < e.copies_of(buffer); ++copy)
            for (int sequence = 0; sequence < s.batch; ++sequence) {
              ASSERT_EQ(e.at(layer, buffer, sequence) + e.to_copy(buffer, copy + 8), next);
              ASSERT_EQ(next % 4, 0);  // rows are read 16 bytes at a time
              next += s.columns(buffer) / 2;
            }
      EXPECT_EQ(next, 3 * e.of_layer);
    }
}

// Each part of each pair is one item of one warp, and its slot is its own in its round.
void expect_all_items(int pairs, const std::vector<int>& longest, int slots) {
  const auto of_layer = [&](int layer) { return rounds_of(pairs, longest[layer], slots); };
  const int layers = static_cast<int>(longest.size());
  std::map<std::tuple<int, int, int>, int> times;  // layer, pair, part
  std::set<std::tuple<int, int, int>> taken;       // layer, round, slot
  for (int warp = 0; warp < kWarps; ++warp) {
    Cursor c = {0, 0, warp};
    std::tuple<int, int> last = {0, 0};
    for (c.settle(warp, layers, of_layer); c.layer < layers; c.settle(warp, layers, of_layer)) {
      const Rounds r = of_layer(c.layer);
      ASSERT_LT(c.item, std::max(slots, 1));
      ASSERT_TRUE(taken.emplace(c.layer, c.round, c.item).second);
      ASSERT_LE(last, std::make_tuple(c.layer, c.round));
      last = {c.layer, c.round};
      ++times[{c.layer, c.round * r.each + c.item % r.in(c.round), c.item / r.in(c.round)}];
      c.item += kWarps;
    }
  }
  for (int layer = 0; layer < layers; ++layer)
    for (int pair = 0; pair < pairs; ++pair)
      for (int part = 0; part < std::max(1, parts_of(longest[layer])); ++part) {
        ASSERT_EQ((times[{layer, pair, part}]), 1) << layer << " " << pair << " " << part;
      }
}

TEST(DecodePersistent, EachItemHasOneWarp) {
  for (const int pairs : {0, 1, 2, 4, 15, 16, 17, 32, 200})
    for (const int slots : {31, 60, 120})
      for (const auto& longest :
           {std::vector{0}, {1, 0, 992}, {96, 32, 96, 1}, {352, 352}, {33, 513, 64}})
        expect_all_items(pairs, longest, slots);
}

TEST(DecodePersistent, SharedMemoryHoldsTheModels) {
  for (const Sizes& s : {kText, kImages}) {
    const int v_parts = s.v > 64 ? 2 : 1;
    EXPECT_LE(memory_of(s, kMostRows, 1, 1, v_parts, kBlockBytes).bytes, kSharedLimit);
    EXPECT_GE(longest_list(memory_of(s, 1, 1, 1, v_parts, kBlockBytes)), s.v > 64 ? 992 : 1920);
  }
  EXPECT_LE(memory_of(kText, 8, 2, 1, 1, kBlockBytes).bytes, kSharedLimit);
  EXPECT_LE(memory_of({1, 1024, 16, 64, 64, 4096}, 8, 1, 1, 1, kBlockBytes).bytes, kSharedLimit);
  const Memory m = memory_of(kText, 16, 1, 1, 1, kBlockBytes);
  const int begins[] = {m.operand, m.sums[0], m.sums[1], m.norm,  m.blocks,
                        m.lists,   m.rounds,  m.place,   m.items, m.stage};
  for (std::size_t i = 1; i < std::size(begins); ++i) {
    EXPECT_GT(begins[i], begins[i - 1]);
    EXPECT_EQ(begins[i] % 128, 0);
  }
  for (int columns = 64; columns <= 2048; columns += 64) EXPECT_EQ(m.pitch(columns) % 128, 64);
}

// ---- the exchange, with a thread for each thread block and hashes for sums ----

struct Card {
  Sizes s;
  int layers, longest;
  Groups groups;
  Exchange plan;
  std::vector<std::atomic<uint32_t>> words;
  std::vector<uint32_t> y;

  Card(const Sizes& sizes, int layer_count, int longest_keys, int blocks)
      : s(sizes),
        layers(layer_count),
        longest(longest_keys),
        groups(sizes.batch, blocks, kMostRows),
        plan(sizes, copies_for(sizes.batch)),
        words(static_cast<std::size_t>(layer_count * plan.of_layer)),
        y(static_cast<std::size_t>(sizes.batch * sizes.width / 2)) {
    for (auto& word : words) word = kAbsent;
  }

  static uint32_t mix(uint32_t a, uint32_t b) { return (a ^ b * 0x9e3779b9u) * 0x85ebca6bu + b; }

  uint32_t wait(int at) const {
    uint32_t word;
    while ((word = words[static_cast<std::size_t>(at)].load(std::memory_order_relaxed)) == kAbsent)
      std::this_thread::yield();
    return word;
  }

  void publish(int layer, int buffer, int sequence, int word, uint32_t value) {
    for (int copy = 0; copy < plan.copies_of(buffer); ++copy) {
      const int at = plan.at(layer, buffer, sequence) + plan.to_copy(buffer, copy) + word;
      ASSERT_EQ(words[static_cast<std::size_t>(at)].exchange(value == kAbsent ? 0 : value), kAbsent)
          << at;
    }
  }

  uint32_t input(int layer, int matrix, int sequence, int word, int rank) const {
    if (matrix == kQkv && layer == 0)
      return mix(static_cast<uint32_t>(sequence % 5), static_cast<uint32_t>(word));
    const int buffer = matrix == kProj ? kAttended : matrix == kQkv ? kDown : matrix - 1;
    return wait(plan.at(matrix == kQkv ? layer - 1 : layer, buffer, sequence) +
                plan.to_copy(buffer, rank) + word);
  }

  void multiply(int layer, int matrix, int group, int rank) {
    const int tiles = s.columns(matrix) / kTileColumns, first = first_of(rank, tiles, groups.ranks),
              last = first_of(rank + 1, tiles, groups.ranks);
    for (int row = groups.first_row(group, s.batch);
         first < last && row < groups.first_row(group + 1, s.batch); ++row) {
      uint32_t sum = static_cast<uint32_t>(matrix);
      for (int word = 0; word < s.inner(matrix) / 2; ++word)
        sum = mix(sum, input(layer, matrix, row, word, rank));
      for (int word = first * kTileColumns / 2; word < last * kTileColumns / 2; ++word) {
        uint32_t value = mix(sum, static_cast<uint32_t>(word));
        if (matrix == kProj || matrix == kDown)
          value = mix(value, input(layer, matrix - 1, row, word, rank));
        if (matrix == kDown && layer + 1 == layers)
          y[static_cast<std::size_t>(row * s.width / 2 + word)] = value;
        else
          publish(layer, matrix, row, word, value);
      }
    }
  }

  void attend(int layer, int group, int rank) {
    const int first_row = groups.first_row(group, s.batch),
              all = (groups.first_row(group + 1, s.batch) - first_row) * s.heads,
              first = first_of(rank, all, groups.ranks);
    for (int pair = first; pair < first_of(rank + 1, all, groups.ranks); ++pair) {
      const int row = first_row + pair / s.heads, head = pair % s.heads, queries = s.heads * s.qk;
      const int packed = plan.at(layer, kQkv, row);
      uint32_t sum = static_cast<uint32_t>(longest);
      for (int i = 0; i < s.qk / 2; ++i) sum = mix(sum, wait(packed + head * s.qk / 2 + i));
      for (int i = 0; i < s.qk / 2; ++i)
        sum = mix(sum, wait(packed + (queries + head * s.qk) / 2 + i));
      for (int i = 0; i < s.v / 2; ++i) {
        const uint32_t v = wait(packed + (2 * queries + head * s.v) / 2 + i);
        publish(layer, kAttended, row, head * s.v / 2 + i, mix(sum, v));
      }
    }
  }

  void run() {
    std::vector<std::thread> blocks;
    for (int block = 0; block < groups.groups * groups.ranks; ++block)
      blocks.emplace_back([this, block] {
        for (int layer = 0; layer < layers; ++layer)
          for (int matrix = kQkv; matrix <= kDown; ++matrix) {
            if (matrix == kProj) attend(layer, block / groups.ranks, block % groups.ranks);
            multiply(layer, matrix, block / groups.ranks, block % groups.ranks);
          }
      });
    for (std::thread& block : blocks) block.join();
  }
};

TEST(DecodePersistent, ExchangeEndsAndDoesNotDependOnTheBatch) {
  Card alone(with_batch(kSmall, 5), 3, 9, 1);  // one thread block: no word is ever waited for
  alone.run();
  const auto words = static_cast<std::size_t>(kSmall.width / 2);
  for (const int batch : {1, 3, 16, 17, 40})
    for (const int blocks : {3, 4, 7, 12}) {
      if (Groups(batch, blocks, kMostRows).ranks < 1) continue;
      Card card(with_batch(kSmall, batch), 3, 9, blocks);
      card.run();
      for (std::size_t i = 0; i < card.y.size(); ++i)
        ASSERT_EQ(card.y[i], alone.y[i / words % 5 * words + i % words])
            << batch << " on " << blocks;
    }
}
}  // namespace
}  // namespace weft::decode_persistent
