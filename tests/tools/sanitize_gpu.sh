#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# compute-sanitizer over the small CUDA cases: memcheck, then racecheck. Needs a GPU and build/cuda.
# Usage: tests/tools/sanitize_gpu.sh [gtest filter]
set -euo pipefail
cd "$(dirname "$0")/../.."
filter=${1:-'CudaParity*:CudaAttention*:CudaDropout*'}
for tool in memcheck racecheck; do
  echo "== $tool"
  WEFT_SMALL_CASES=1 compute-sanitizer --tool "$tool" --error-exitcode 3 \
    build/cuda/bin/weft_tests --gtest_filter="$filter" --gtest_brief=1 2>&1 | tail -n 15
done
