// SPDX-License-Identifier: MIT
// What was launched last, for a thread that watches the others. finish() of queue.h notes it: a GPU
// may still run an earlier launch, as launches wait in its queue (WEFT_DEBUG=2 waits for each); a
// CPU runs the one behind it.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace weft {
// The name of a kernel; "nothing" where a CUDA graph came later.
inline std::atomic<const char*> last_launch{"nothing"};

// Hears of each launch that this thread captures into a CUDA graph; null: it captures none.
inline thread_local void (*on_captured_launch)(const char* kernel) = nullptr;

// The launches of a CUDA graph, and how far the GPU has come in its latest run.
struct GraphLaunches {
  std::vector<const char*> kernels;          // in the order of the capture
  uint32_t interval = 1;                     // the GPU counts so many launches at a time
  const volatile uint32_t* ended = nullptr;  // where the GPU writes the count; null: it can't
};

// The graph that was launched last; null: there is none. Its owner keeps it.
inline std::atomic<const GraphLaunches*> last_graph{nullptr};
}  // namespace weft
