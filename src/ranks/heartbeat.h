// SPDX-License-Identifier: MIT
// Signs that this process gets on with its work, counted for whoever watches it (src/ranks/watcher.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft {

// Kernels and graphs started, parts of its work that a GPU was waited for, pieces of files read or written.
inline std::atomic<std::uint64_t> signs_of_progress{0};

inline void note_progress() { signs_of_progress.fetch_add(1, std::memory_order_relaxed); }

// What takes its time by the byte is done so many bytes at a time, a sign of progress each: a disk that does
// 0.4 MB a second shows one within 45 s.
inline constexpr std::size_t kProgressBytes = std::size_t{16} << 20;

}  // namespace weft
