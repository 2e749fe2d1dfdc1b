// SPDX-License-Identifier: MIT
#include "kernels/attention/ladder/cpu/rungs.h"

#include "kernels/queue.h"

#include <span>

namespace weft::ladder {
namespace {
void kernel_forward(Queue& queue, const AttentionForward& f, const Pattern&) { launch(queue, f); }

void kernel_backward(Queue& queue, const AttentionBackward& g, const Pattern&) { launch(queue, g); }
}  // namespace

std::span<const Rung> cpu_rungs() {
  static constexpr Rung rungs[] = {
      {"pairs", "plain loops over the pairs of the pattern", "ladder/cpu/1_pairs.cpp", 1093,
       Slots::in_order, pairs_forward, pairs_backward},
      {"tables", "tiles without a pair are skipped", "ladder/cpu/2_tables.cpp", 1186,
       Slots::in_order, tables_forward, tables_backward},
      {"vectors", "whole tiles, transposed, along vector registers", "ladder/cpu/3_vectors.cpp",
       1998, Slots::in_order, vectors_forward, vectors_backward},
      {"registers", "the sums of a product stay in registers",
       "ladder/cpu/4_registers.cpp ladder/cpu/products.h", 2492, Slots::in_order, registers_forward,
       registers_backward},
      {"gathered", "slots in the pattern's order: fewer tiles",
       "ladder/cpu/5_gathered.cpp ladder/cpu/products.h ladder/cpu/slots.h", 2566,
       Slots::of_pattern, gathered_forward, gathered_backward},
      {"threads", "tiles on all cores; backward in two passes",
       "ladder/cpu/6_threads.cpp ladder/cpu/products.h ladder/cpu/slots.h ladder/cpu/threads.h",
       3220, Slots::of_pattern, threads_forward, threads_backward},
      {"online", "each tile once: online softmax, dQ in turn",
       "ladder/cpu/7_online.cpp ladder/cpu/products.h ladder/cpu/slots.h ladder/cpu/threads.h",
       3074, Slots::of_pattern, online_forward, online_backward},
      {"kernel", "the real kernel: all types, documents, passes", "attention.cpp tiles.h", 5324,
       Slots::of_pattern, kernel_forward, kernel_backward},
  };
  return rungs;
}
}  // namespace weft::ladder
