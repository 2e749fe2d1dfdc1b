// SPDX-License-Identifier: MIT
// Signs that this process gets on with its work, counted for whoever watches it (src/watcher.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

// Kernels started, parts of its work that a GPU was waited for, datasets read or written.
inline std::atomic<std::uint64_t> signs_of_progress{0};

inline void note_progress() { signs_of_progress.fetch_add(1, std::memory_order_relaxed); }

}  // namespace weft
