// SPDX-License-Identifier: MIT
// MemoryPool: a caching allocator for all tensors, with free lists by rounded size. Work on one queue is
// ordered, so a block that the host frees may be handed out again at once.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace weft {

class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  using Allocate = std::function<void*(std::size_t)>;  // returns null when there is no more memory
  using Free = std::function<void(void*)>;

  MemoryPool(std::string where, Allocate allocate, Free free);
  ~MemoryPool();
  MemoryPool& operator=(MemoryPool&&) = delete;  // nor copied

  // 256-byte-aligned memory, back on the free list when the last owner lets go. `name`, for table(), is a
  // literal and a kind ("activations"). Throws Error when memory is out or a frozen pool would have to grow.
  std::shared_ptr<void> take(std::size_t bytes, const char* name);

  // While a CUDA graph is captured the pool must not grow.
  void freeze(bool frozen) { frozen_ = frozen; }
  // Gives free blocks back to the driver; those of the graph side only while no graph is held.
  void trim();

  // A captured graph writes to the addresses of its capture, although its tensors are free by then. Captured
  // code therefore has free lists of its own, the graph side, in which no other code keeps a tensor.
  void use_graph_side(bool graph_side) { side_ = graph_side ? 1 : 0; }
  void hold_graph() { ++graphs_; }
  void release_graph() { --graphs_; }

  std::size_t reserved() const { return reserved_; }
  std::size_t in_use() const { return in_use_; }
  std::size_t peak() const { return peak_; }  // largest in_use() since the last reset
  void reset_peak() { peak_ = in_use_; }
  // One line: bytes in use at the peak by name, largest first, then peak, in use and reserved.
  std::string table() const;

 private:
  void* take_free(std::size_t bytes);
  void give_back(void* p, std::size_t bytes, int side, const char* name);

  std::string where_;
  Allocate allocate_;
  Free release_;
  std::map<std::size_t, std::vector<void*>> free_[2];  // by size; [1]: the graph side
  int side_ = 0, graphs_ = 0;
  std::map<std::string, std::size_t> in_use_by_name_, peak_by_name_;
  std::size_t reserved_ = 0, in_use_ = 0, peak_ = 0;
  bool frozen_ = false;
};

std::shared_ptr<MemoryPool> make_cpu_pool();

// "1.25 GiB"
std::string bytes_text(std::size_t bytes);

}  // namespace weft
