#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# compute-sanitizer over the CUDA cases of odd sizes: memcheck, then racecheck, in eight processes side by side (about
# three minutes on an H200). Needs a GPU and build/cuda. Reports inside kernels named nvjet_* or cutlass_* are cuBLASLt's.
# Usage: tests/tools/sanitize_gpu.sh [gtest filter]
set -euo pipefail
cd "$(dirname "$0")/../.."
filter=${1:-'Cuda/CudaParity*:CudaPhilox*:CudaGolden*'}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
for tool in memcheck racecheck; do
  for shard in 0 1 2 3 4 5 6 7; do
    GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=$shard compute-sanitizer --tool "$tool" --print-limit 20 \
      build/cuda/bin/weft_tests --gtest_filter="$filter" --gtest_brief=1 >"$logs/$tool.$shard" 2>&1 &
  done
  wait
  echo "== $tool"
  grep -hE 'SUMMARY|FAILED' "$logs/$tool".* | sort | uniq -c
  grep -hE '^========= (Error|Invalid|    at)' "$logs/$tool".* | sort | uniq -c || true
done
