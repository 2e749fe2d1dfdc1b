// SPDX-License-Identifier: MIT
// The debug level, read once from the environment, and what it does around launches on the CPU.
#include "kernels/queue.h"

#include "kernels/diagnostics/count_non_finite.h"
#include "kernels/diagnostics/last_launch.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace weft {
namespace {
std::chrono::steady_clock::time_point launch_began;  // launches come from one thread
}  // namespace

int debug_level() {
  static const int level = [] {
    const char* text = std::getenv("WEFT_DEBUG");
    if (!text || !*text) return 0;
    if (text[0] < '0' || text[0] > '3' || text[1] != 0)
      fail("WEFT_DEBUG: expected 0, 1, 2 or 3, got '", text, "'");
    return text[0] - '0';
  }();
  return level;
}

void begin(CpuQueue&) {
  if (debug_level() >= 1) launch_began = std::chrono::steady_clock::now();
}

void finish(CpuQueue&, const char* kernel) {
  last_launch.store(kernel, std::memory_order_relaxed);
  if (debug_level() == 0) return;
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - launch_began;
  std::fprintf(stderr, "weft: cpu %s %.3f ms\n", kernel, took.count());
}

void check_finite(CpuQueue& q, const char* kernel, const std::vector<TensorView>& outputs) {
  for (const TensorView& x : outputs) {
    if (!x) continue;
    int32_t found = 0;
    run(q, CountNonFinite{{&found, DType::i32, 1}, x});
    WEFT_CHECK(found == 0, kernel, ": ", found, " of the ", x.size(), " elements of an output ",
               shape_text(x), " are NaN or infinite");
  }
}
}  // namespace weft
