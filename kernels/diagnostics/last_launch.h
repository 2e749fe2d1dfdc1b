// SPDX-License-Identifier: MIT
// What was launched last, for a thread that watches the others. finish() of queue.h notes it: a GPU
// may still run an earlier launch, as launches wait in its queue (WEFT_DEBUG=2 waits for each); a
// CPU runs the one behind it.
#pragma once

#include <atomic>

namespace weft {
// The name of a kernel.
inline std::atomic<const char*> last_launch{"nothing"};
// What the last CUDA graph holds; null: there is none. Its owner keeps the text.
inline std::atomic<const char*> last_graph{nullptr};
}  // namespace weft
