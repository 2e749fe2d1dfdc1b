// SPDX-License-Identifier: MIT
// The functions of the CPU rungs, one file each. The table of them is rungs.cpp.
#pragma once

#include "kernels/attention/ladder/ladder.h"

namespace weft::ladder {
void pairs_forward(Queue&, const AttentionForward&, const Pattern&);
void pairs_backward(Queue&, const AttentionBackward&, const Pattern&);

void tables_forward(Queue&, const AttentionForward&, const Pattern&);
void tables_backward(Queue&, const AttentionBackward&, const Pattern&);

void vectors_forward(Queue&, const AttentionForward&, const Pattern&);
void vectors_backward(Queue&, const AttentionBackward&, const Pattern&);

void registers_forward(Queue&, const AttentionForward&, const Pattern&);
void registers_backward(Queue&, const AttentionBackward&, const Pattern&);

void gathered_forward(Queue&, const AttentionForward&, const Pattern&);
void gathered_backward(Queue&, const AttentionBackward&, const Pattern&);

void threads_forward(Queue&, const AttentionForward&, const Pattern&);
void threads_backward(Queue&, const AttentionBackward&, const Pattern&);

void online_forward(Queue&, const AttentionForward&, const Pattern&);
void online_backward(Queue&, const AttentionBackward&, const Pattern&);
}  // namespace weft::ladder
