#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Attention where content decides, on a GPU: verified against the CPU first, then timed. Minutes.
# Usage: content_gpu.sh [weft_tests of a CUDA build]
set -u
tests=${1:-build/cuda/bin/weft_tests}
right='Cuda*content_*:Cuda*segment_maps*:Cuda*attention_decode*:Cuda*decode_blocks*:CudaContent*:-*.Speed:*Misaligned*'
"$tests" --gtest_brief=1 --gtest_filter="$right" || exit 1
"$tests" --gtest_brief=1 --gtest_filter='CudaDecoding.*:CudaAttention.*' || exit 1
compute-sanitizer --tool memcheck "$tests" --gtest_brief=1 --gtest_filter='CudaContentModel.RecomputeGivesTheSame' || exit 1
WEFT_CONTENT_SPEED=1 "$tests" --gtest_brief=1 --gtest_filter='CudaContent.Speed'
