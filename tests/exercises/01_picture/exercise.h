// SPDX-License-Identifier: MIT
// Whether query i sees key j, for positions of any sequence.
#pragma once

#include <cstdint>

bool attends(int64_t i, int64_t j);
