// SPDX-License-Identifier: MIT
// What every form of the attention kernels asks of its arguments: equal types, shapes that fit together.
#pragma once

#include "kernels/attention.h"

namespace weft {

void check(const AttentionForward&);
void check(const AttentionBackward&);
void check(const AttentionDecode&);

}  // namespace weft
