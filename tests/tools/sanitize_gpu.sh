#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# compute-sanitizer over small CUDA cases, in processes side by side. Needs a GPU and build/cuda.
#   hopper:    what only compute capability 9.0 has (cases of selftest that `hopper` covers, the sweeps over bands, the product with GELU) and
#              the kernels of sampling, under all four tools at once; whatever still runs after MINUTES is ended
#   walks:     more of the same, under all four tools: columns of many rows, the backward pass in one walk, weight gradients
#   attention: random cases of selftest in every form under all four tools, MINUTES each
#   kernels:   the cases of odd sizes of all kernels under memcheck and racecheck, about three minutes on an H200
#   steps:     training steps under initcheck alone, at most 90 seconds: which kernels read memory that initcheck saw nobody write,
#              how often, and where in which allocation. initcheck does not see what TMA stores: initcheck_tma.cu, run first, shows it.
#              `gates` are tests of a host that does not wait: under this tool every launch waits, so that they fail
# MINUTES is a half unless it is given. A line for each tool and program says what ran and what was found; then come the
# reports. Reports inside kernels named nvjet_* or cutlass_* are cuBLASLt's; what
# racecheck does not follow: tests/README.md. Exit code 1 when something was found.
# Usage: tests/tools/sanitize_gpu.sh [hopper | walks | attention | kernels | steps | all] [MINUTES]
set -euo pipefail
cd "$(dirname "$0")/../.."
part=${1:-all} minutes=${2:-0.5}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# start LIMIT LABEL TOOL COMMAND...: in the background, for at most LIMIT seconds (0: no limit).
start() {
  local limit=$1 label=$2 tool=$3 options=(--print-limit 20)
  shift 3
  [[ "$tool" = racecheck || "$tool" = synccheck ]] && options+=(--num-cuda-barriers 256)
  OMP_NUM_THREADS=2 timeout -k 5 "$limit" compute-sanitizer --tool "$tool" "${options[@]}" "$@" >"$logs/$tool.$label" 2>&1 &
}
# in_shards COUNT LIMIT LABEL TOOL COMMAND...: {} in the command is the number of the process.
in_shards() {
  local count=$1 limit=$2 label=$3 tool=$4 shard
  shift 4
  for ((shard = 0; shard < count; ++shard)); do
    GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$shard start "$limit" "$label.$shard" "$tool" "${@//\{\}/$shard}"
  done
}

if [ "$part" = hopper ] || [ "$part" = all ]; then
  seconds=$(awk "BEGIN {print 60 * $minutes}")
  for tool in memcheck racecheck initcheck synccheck; do
    in_shards 1 "$seconds" selftest "$tool" build/cuda/bin/selftest --device cuda --form hopper \
      --minutes "$(awk "BEGIN {print 0.8 * $minutes}")" --seed 70000
    in_shards 3 "$seconds" bands "$tool" --kernel-name kns=band_ build/cuda/bin/weft_tests --gtest_filter='CudaAttentionBand*-*Thousand*'
    in_shards 1 "$seconds" decoding "$tool" build/cuda/bin/weft_tests --gtest_filter='Cuda/CudaParity.AgreesWith*/*decode*bf16'
    in_shards 1 "$seconds" products "$tool" --kernel-name kns=linear_activation_kernel build/cuda/bin/weft_tests --gtest_filter='Cuda/CudaParity.AgreesWith*/linear_activation*bf16'
  done
  wait
fi
if [ "$part" = walks ] || [ "$part" = all ]; then
  seconds=$(awk "BEGIN {print 60 * $minutes}")
  for tool in memcheck racecheck initcheck synccheck; do
    in_shards 2 "$seconds" columns "$tool" --kernel-name kns=band_ build/cuda/bin/weft_tests --gtest_filter='CudaAttentionColumns.*-*Thousand*:*TooSmall*'
    in_shards 1 "$seconds" fused "$tool" --kernel-name kns=fused_kernel build/cuda/bin/weft_tests --gtest_filter='CudaAttentionFused.ManyTasks'
    in_shards 1 "$seconds" rows "$tool" --kernel-name kns=rows_kernel build/cuda/bin/weft_tests --gtest_filter='Cuda/CudaParity.AgreesWith*/linear_backward_bf16'
  done
  wait
fi
if [ "$part" = attention ] || [ "$part" = all ]; then
  for tool in memcheck racecheck initcheck synccheck; do
    in_shards 8 0 random "$tool" build/cuda/bin/selftest --device cuda --minutes "$minutes" --seed '{}0000'
    wait
  done
fi
if [ "$part" = kernels ] || [ "$part" = all ]; then
  for tool in memcheck racecheck; do
    in_shards 8 0 kernels "$tool" build/cuda/bin/weft_tests --gtest_filter='Cuda/CudaParity*:CudaPhilox*:CudaGolden*'
    wait
  done
fi
if [ "$part" = steps ] || [ "$part" = all ]; then
  nvcc -arch=sm_90a -std=c++20 -I. -o "$logs/initcheck_tma" tests/tools/initcheck_tma.cu
  compute-sanitizer --tool initcheck --print-limit 100000 "$logs/initcheck_tma" >"$logs/tma" 2>&1 || cat "$logs/tma"
  echo "a tile written by ordinary stores, and one written by TMA: $(grep -c '^both tiles are' "$logs/tma") run"
  python3 tests/tools/initcheck_reads.py "$logs/tma"
  rm "$logs/tma" "$logs/initcheck_tma"
  for run in bf16='CudaTrainer.RecomputingChangesNothing' f32='CudaTrainer.AccumulatedGradientsAreThoseOfTheWholeBatch' \
    shapes='CudaTrainStep.WhatChangesReachesTheGraphs' gates='CudaTrainStep.RunsAhead*:CudaTrainStep.ALossScale*'; do
    OMP_NUM_THREADS=2 timeout -k 5 90 compute-sanitizer --tool initcheck --print-limit 1000000 --show-backtrace no build/cuda/bin/weft_tests \
      --gtest_filter="${run#*=}" >"$logs/initcheck.steps_${run%%=*}" 2>&1 &
  done
  wait
  for log in "$logs"/initcheck.steps_*; do
    echo "${log##*_}: $(grep -E '^\[  (PASSED|FAILED)|ERROR SUMMARY' "$log" | sort -u | paste -sd';')"
    python3 tests/tools/initcheck_reads.py "$log"
    rm "$log"
  done
  [ "$part" = all ] || exit 0
fi

cd "$logs"
for name in $(printf '%s\n' * | sed 's/\.[0-9]*$//' | sort -u); do
  echo "$name: $(cat "$name".* | grep -c '^\[       OK' || true) tests, $(cat "$name".* | sed -n 's/^selftest passed.*: //p' | paste -sd' ')" \
    "$(cat "$name".* | grep -cE 'FAILED|SUMMARY: [1-9]|^========= (Error|Warning|Invalid|Uninitialized|Barrier)' || true) reports or failures"
done
found=$(cat ./* | awk '/^\[  FAILED|^FAILED|^Internal|SUMMARY: .*[1-9]/ {print}
  /^========= (Error|Warning|Invalid|Uninitialized|Barrier|Internal)/ {if (report) print report; report = $0; next}
  report && /^========= +(and|at) / {sub(/^=+ +/, ""); report = report " | " $0; next}
  report {print report; report = ""}' | sed -E ':a; s/<[^<>]*>//g; ta; s/\+0x[0-9a-f]+//g; s/ *\[[0-9]+ hazards?\]//g; s/\([^()]*\) in /() in /g; s/by thread .*//; s/[A-Za-z0-9_]+:://g; s/ +$//; :b; s/( \| [^|]*)\1/\1/; tb')
[ -z "$found" ] || { sort <<<"$found" | uniq -c | sort -rn | head -60; exit 1; }
