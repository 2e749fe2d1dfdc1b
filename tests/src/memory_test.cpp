// SPDX-License-Identifier: MIT
// The pool: reuse, accounting, running out, the graph side.
#include "src/tensor.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {
// A pool over a machine with `limit` bytes.
struct SmallMachine {
  std::size_t limit, used = 0;
  std::map<void*, std::size_t> blocks;
  int allocations = 0;

  explicit SmallMachine(std::size_t bytes)
      : limit(bytes) {}

  ~SmallMachine() { EXPECT_TRUE(blocks.empty()) << "blocks the pool did not give back"; }

  std::shared_ptr<MemoryPool> pool() {
    return std::make_shared<MemoryPool>(
        "small:0",
        [this](std::size_t bytes) -> void* {
          if (used + bytes > limit) return nullptr;
          void* p = std::aligned_alloc(256, bytes);
          blocks[p] = bytes;
          used += bytes;
          ++allocations;
          return p;
        },
        [this](void* p) {
          used -= blocks.at(p);
          blocks.erase(p);
          std::free(p);
        });
  }
};

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Memory, ReusesBlocksOfTheSameRoundedSize) {
  SmallMachine machine(1 << 20);
  const auto pool = machine.pool();
  void* first = nullptr;
  {
    const auto a = pool->take(1000, "a");
    first = a.get();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 256, 0u);
    EXPECT_EQ(pool->in_use(), 1024u);
  }
  EXPECT_EQ(pool->in_use(), 0u);
  EXPECT_EQ(pool->reserved(), 1024u);
  EXPECT_EQ(pool->take(1024, "b").get(), first);
  EXPECT_NE(pool->take(1025, "b").get(), first);
  EXPECT_EQ(machine.allocations, 2);
  EXPECT_NE(pool->take(0, "nothing").get(), nullptr);
}

TEST(Memory, ARepeatedStepStaysInItsBlocks) {
  SmallMachine machine(1 << 20);
  const auto pool = machine.pool();
  const auto step = [&] {
    std::vector<void*> addresses;
    auto a = pool->take(512, "a"), b = pool->take(512, "a");
    addresses = {a.get(), b.get()};
    b.reset();
    const auto c = pool->take(512, "a"), d = pool->take(4096, "a");
    addresses.insert(addresses.end(), {c.get(), d.get()});
    a.reset();
    return addresses;
  };
  step();
  const auto second = step(), third = step();
  EXPECT_EQ(machine.allocations, 3);
  EXPECT_EQ(std::set<void*>(second.begin(), second.end()),
            std::set<void*>(third.begin(), third.end()));
}

TEST(Memory, Accounts) {
  SmallMachine machine(1 << 20);
  const auto pool = machine.pool();
  const auto weights = pool->take(2048, "weights");
  { const auto activations = pool->take(4096, "activations"); }
  EXPECT_EQ(pool->peak(), 6144u);
  EXPECT_EQ(
      pool->table(),
      "activations 4.00 KiB, weights 2.00 KiB, peak 6.00 KiB, in use 2.00 KiB, reserved 6.00 KiB");
  pool->reset_peak();
  EXPECT_EQ(pool->peak(), 2048u);
  const auto gradients = pool->take(16384, "gradients");
  EXPECT_EQ(pool->table(),
            "gradients 16.00 KiB, weights 2.00 KiB, peak 18.00 KiB, in use 18.00 KiB, reserved "
            "22.00 KiB");
}

TEST(Memory, RunningOutIsSaidWithTheTableAndTheWayOut) {
  SmallMachine machine(8192);
  const auto pool = machine.pool();
  const auto weights = pool->take(4096, "weights");
  const std::string error = error_of([&] { pool->take(5000, "activations"); });
  for (const char* part : {"small:0", "5.00 KiB", "weights 4.00 KiB", "train.batch",
                           "model.context", "recompute: block"}) {
    EXPECT_NE(error.find(part), std::string::npos) << part << " in: " << error;
  }
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_EQ(pool->in_use(), 4096u);
}

TEST(Memory, FreeBlocksGoBackBeforeItRunsOut) {
  SmallMachine machine(8192);
  const auto pool = machine.pool();
  { const auto a = pool->take(6000, "a"); }
  EXPECT_NO_THROW(pool->take(8192, "b"));
}

TEST(Memory, AFrozenPoolReusesAndDoesNotGrow) {
  SmallMachine machine(1 << 20);
  const auto pool = machine.pool();
  { const auto a = pool->take(512, "a"); }
  pool->freeze(true);
  EXPECT_NO_THROW(pool->take(512, "a"));
  EXPECT_NE(error_of([&] { pool->take(1024, "a"); }).find("CUDA graph"), std::string::npos);
  pool->freeze(false);
  EXPECT_NO_THROW(pool->take(1024, "a"));
}

TEST(Memory, TheGraphSideIsApart) {
  SmallMachine machine(1 << 20);
  const auto pool = machine.pool();
  pool->use_graph_side(true);
  void* captured = pool->take(512, "activations").get();
  auto outlives = pool->take(4096, "maps");
  pool->use_graph_side(false);
  pool->hold_graph();
  EXPECT_NE(pool->take(512, "other").get(), captured);
  outlives.reset();
  pool->trim();
  EXPECT_EQ(machine.blocks.count(captured), 1u) << "a captured graph still writes there";
  EXPECT_EQ(pool->reserved(), 512u + 4096u);
  pool->use_graph_side(true);
  EXPECT_EQ(pool->take(512, "activations").get(), captured);
  pool->use_graph_side(false);
  pool->release_graph();
  pool->trim();
  EXPECT_EQ(pool->reserved(), 0u);
  EXPECT_TRUE(machine.blocks.empty());
}

TEST(Memory, TensorsOutliveTheHandleOfTheirPool) {
  SmallMachine machine(1 << 20);
  auto pool = machine.pool();
  Tensor tensor(*pool, {4, 4}, DType::f32);
  const Tensor row = tensor.slice(4, {4});
  pool.reset();
  tensor = {};
  EXPECT_EQ(machine.blocks.size(), 1u);
  static_cast<float*>(row.view().data)[3] = 1;
}

TEST(Memory, BytesText) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(std::size_t{5} << 30), "5.00 GiB");
}
}  // namespace
}  // namespace weft
