// SPDX-License-Identifier: MIT
// The functions of the CPU rungs, one file each. The table of them is rungs.cpp.
#pragma once

#include "kernels/attention/ladder/ladder.h"

namespace weft::ladder {
void pairs_forward(const AttentionForward&, const Attends&);
void pairs_backward(const AttentionBackward&, const Attends&);

void tables_forward(const AttentionForward&, const Attends&);
void tables_backward(const AttentionBackward&, const Attends&);

void vectors_forward(const AttentionForward&, const Attends&);
void vectors_backward(const AttentionBackward&, const Attends&);

void registers_forward(const AttentionForward&, const Attends&);
void registers_backward(const AttentionBackward&, const Attends&);

void gathered_forward(const AttentionForward&, const Attends&);
void gathered_backward(const AttentionBackward&, const Attends&);

void threads_forward(const AttentionForward&, const Attends&);
void threads_backward(const AttentionBackward&, const Attends&);

void online_forward(const AttentionForward&, const Attends&);
void online_backward(const AttentionBackward&, const Attends&);
}  // namespace weft::ladder
