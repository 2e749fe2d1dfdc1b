#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# compute-sanitizer over small CUDA cases, in eight processes side by side. `attention`: random cases of selftest under
# all four tools, MINUTES each (half of one). `kernels`: the cases of odd sizes of all kernels under memcheck and racecheck,
# about three minutes on an H200. Needs a GPU and build/cuda. Reports inside kernels named nvjet_* or cutlass_* are
# cuBLASLt's.
# Usage: tests/tools/sanitize_gpu.sh [attention | kernels | all] [MINUTES]
set -euo pipefail
cd "$(dirname "$0")/../.."
part=${1:-all} minutes=${2:-0.5}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# run TOOL COMMAND...: {} in the command is the number of the process.
run() {
  local tool=$1 shard
  shift
  for shard in 0 1 2 3 4 5 6 7; do
    GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=$shard OMP_NUM_THREADS=2 \
      compute-sanitizer --tool "$tool" --print-limit 20 "${@//\{\}/$shard}" >"$logs/$tool.$shard" 2>&1 &
  done
  wait
  echo "== $tool, $(basename "$1")"
  grep -hE 'SUMMARY|FAILED|selftest passed' "$logs/$tool".* | sed 's/ on .*: / /' | sort | uniq -c
  grep -hE '^========= (Error|Invalid|Uninitialized|    at)' "$logs/$tool".* | sort | uniq -c || true
}

if [ "$part" != kernels ]; then
  for tool in memcheck racecheck initcheck synccheck; do
    run "$tool" build/cuda/bin/selftest --device cuda --minutes "$minutes" --seed '{}0000'
  done
fi
if [ "$part" != attention ]; then
  for tool in memcheck racecheck; do
    run "$tool" build/cuda/bin/weft_tests --gtest_filter='Cuda/CudaParity*:CudaPhilox*:CudaGolden*' --gtest_brief=1
  done
fi
