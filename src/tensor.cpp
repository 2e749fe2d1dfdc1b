// SPDX-License-Identifier: MIT
#include "src/tensor.h"

#include "kernels/memory.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

namespace weft {
// alignment of every tensor, and what sizes are rounded up to
constexpr std::size_t kGranule = 256;

MemoryPool::MemoryPool(std::string where, Allocate allocate, Free free)
    : where_(std::move(where)),
      allocate_(std::move(allocate)),
      release_(std::move(free)) {}

// Owners hold the pool, so every block is on a free list by now.
MemoryPool::~MemoryPool() {
  graphs_ = 0;
  trim();
}

std::shared_ptr<void> MemoryPool::take(std::size_t bytes, const char* name) {
  bytes = (std::max<std::size_t>(bytes, 1) + kGranule - 1) / kGranule * kGranule;
  void* p = take_free(bytes);
  in_use_ += bytes;
  in_use_by_name_[name] += bytes;
  if (in_use_ > peak_) {
    peak_ = in_use_;
    peak_by_name_ = in_use_by_name_;
  }
  auto deleter = [self = shared_from_this(), bytes, side = side_, name](void* block) {
    self->give_back(block, bytes, side, name);
  };
  return {p, std::move(deleter)};
}

void* MemoryPool::take_free(std::size_t bytes) {
  if (const auto list = free_[side_].find(bytes);
      list != free_[side_].end() && !list->second.empty()) {
    void* p = list->second.back();
    list->second.pop_back();
    return p;
  }
  if (frozen_)
    fail("a step that is being captured as a CUDA graph asked ", where_, " for ", bytes_text(bytes),
         " more memory than the same step did before; run with train.graph: false, and report "
         "this.  In use: ",
         table());
  void* p = allocate_(bytes);
  if (!p) {
    trim();
    p = allocate_(bytes);
  }
  if (!p)
    fail("out of memory on ", where_, ": ", bytes_text(bytes), " more were asked for; ", table(),
         "; lower the batch or the length; in training (train.batch, model.context) raise "
         "train.accumulation, "
         "or set train.recompute: block, too");
  reserved_ += bytes;
  return p;
}

void MemoryPool::give_back(void* p, std::size_t bytes, int side, const char* name) {
  free_[side][bytes].push_back(p);
  in_use_ -= bytes;
  in_use_by_name_[name] -= bytes;
}

void MemoryPool::trim() {
  for (int side = 0; side < (graphs_ > 0 ? 1 : 2); ++side) {
    for (auto& [bytes, blocks] : free_[side]) {
      for (void* p : blocks) release_(p);
      reserved_ -= bytes * blocks.size();
    }
    free_[side].clear();
  }
}

std::string MemoryPool::table() const {
  std::vector<std::pair<std::size_t, std::string>> rows;
  for (const auto& [name, bytes] : peak_by_name_)
    if (bytes > 0) rows.emplace_back(bytes, name);
  std::sort(rows.rbegin(), rows.rend());
  std::string text;
  for (const auto& [bytes, name] : rows) text += name + " " + bytes_text(bytes) + ", ";
  return text + "peak " + bytes_text(peak_) + ", in use " + bytes_text(in_use_) + ", reserved " +
         bytes_text(reserved_);
}

std::shared_ptr<MemoryPool> make_cpu_pool() {
  return std::make_shared<MemoryPool>(
      "cpu", [queue = CpuQueue{}](std::size_t bytes) mutable { return allocate(queue, bytes); },
      [queue = CpuQueue{}](void* p) mutable { release(queue, p); });
}

std::string bytes_text(std::size_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}
}  // namespace weft
