// SPDX-License-Identifier: MIT
// The functions of the CUDA rungs, one file each. The table of them is rungs.cpp.
#pragma once

#include "kernels/attention/ladder/ladder.h"

namespace weft::ladder::cuda {
void pairs_forward(Queue&, const AttentionForward&, const Pattern&);
void pairs_backward(Queue&, const AttentionBackward&, const Pattern&);

void shared_forward(Queue&, const AttentionForward&, const Pattern&);
void shared_backward(Queue&, const AttentionBackward&, const Pattern&);

void tables_forward(Queue&, const AttentionForward&, const Pattern&);
void tables_backward(Queue&, const AttentionBackward&, const Pattern&);

void online_forward(Queue&, const AttentionForward&, const Pattern&);

void gathered_forward(Queue&, const AttentionForward&, const Pattern&);
void gathered_backward(Queue&, const AttentionBackward&, const Pattern&);

void mma_forward(Queue&, const AttentionForward&, const Pattern&);
void mma_backward(Queue&, const AttentionBackward&, const Pattern&);

void async_forward(Queue&, const AttentionForward&, const Pattern&);
void async_backward(Queue&, const AttentionBackward&, const Pattern&);

void atomics_backward(Queue&, const AttentionBackward&, const Pattern&);

void ampere_forward(Queue&, const AttentionForward&, const Pattern&);
void ampere_backward(Queue&, const AttentionBackward&, const Pattern&);

void wgmma_forward(Queue&, const AttentionForward&, const Pattern&);

void hopper_forward(Queue&, const AttentionForward&, const Pattern&);
void hopper_backward(Queue&, const AttentionBackward&, const Pattern&);

void fused_backward(Queue&, const AttentionBackward&, const Pattern&);

void band_forward(Queue&, const AttentionForward&, const Pattern&);
void band_backward(Queue&, const AttentionBackward&, const Pattern&);
}  // namespace weft::ladder::cuda
