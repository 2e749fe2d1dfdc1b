// SPDX-License-Identifier: MIT
// The order in which thread blocks take tiles of unequal work.
#pragma once

#include <cstdint>
#include <vector>

// work[t]: what tile t costs, at least 1. Returns the tiles, each once, in the order in which they
// are taken: a processor that is free takes the next one. Tiles of equal work stay in order.
std::vector<int64_t> work_order(const std::vector<int64_t>& work);
