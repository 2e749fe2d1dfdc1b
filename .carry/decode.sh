#!/usr/bin/env bash
# The persistent decoding kernel on one H200: verifies first, times then. About 8 minutes. Needs nothing but this tree.
#   OUT=/somewhere .carry/decode.sh [stamps]     stamps: at the end, cycles of each phase of one layer
set -uo pipefail
cd "$(dirname "$0")/.."
OUT=${OUT:-/tmp/decode}; mkdir -p "$OUT"; log=$OUT/decode.log; : >"$log"
say() { echo "== $*" | tee -a "$log"; }
build() {
  cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90a-real "$@" >"$OUT/cmake.log" 2>&1 &&
    ninja -C build/cuda bench weft_tests >"$OUT/build.log" 2>&1 || { tail -30 "$OUT/build.log" | tee -a "$log"; exit 1; }
}
# Stops at the first failure or time-out: a hang costs the machine.
tests() {
  timeout -k 5 "$1" build/cuda/bin/weft_tests --gtest_filter="$2" >"$OUT/tests.log" 2>&1
  local rc=$?
  grep -E "^\[ +(OK|FAILED|PASSED|SKIPPED)|Failure|rror|CUDA|Expected|B [0-9]+, C" "$OUT/tests.log" | head -60 | tee -a "$log"
  [ $rc = 0 ] || { say "rc $rc (124: time-out): no timing"; tail -5 "$OUT/tests.log"; exit 1; }
}
say build; build
nvidia-smi --query-gpu=name,clocks.max.sm,driver_version --format=csv,noheader | tee -a "$log"

say "1. plan and exchange on the CPU, the kernel beside the CPU form, batches, models"
tests 30 'DecodePersistent.*'
tests 120 "Cuda/CudaParity.AgreesWithTheCpuForm/*decode_blocks*"
tests 60 'CudaDecodeBlocks.*'
tests 60 'CudaEngine.Decod*:CudaDocuments.Decod*:CudaEngine.*Batch*'

say "2. bench decode (tokens/s; must / goal in brackets)"
row() { # name limit config batch positions
  local text; text=$(timeout -k 5 "$2" build/cuda/bin/bench decode --config "$3" --batch "$4" --positions "$5" ${6:-} 2>&1) || text="$text (rc $?)"
  say "$1: $(echo "$text" | grep -E "^(position|tokens/s|checked)|error|CUDA|rc " | tr '\n' ';' | tr -s ' ')"
}
row "30 layers x 1 [3,500 / 6,000]" 60 configs/novels_30l.yaml 1 1024
row "12 layers x 1 [8,000 / 14,000]" 60 configs/novels_12l.yaml 1 1024
row "30 layers x 8 [22,000 / 40,000]" 60 configs/novels_30l.yaml 8 1024
row "30 layers x 64 [60,000 / 110,000]" 60 configs/novels_30l.yaml 64 1024
row "12 layers x 256 [250,000 / 400,000]" 60 configs/novels_12l.yaml 256 1024
row "CIFAR-10 x 256 [112,000 / 157,000 tokens/s: 7 s / 5 s for 3,072 positions]" 90 configs/paper/cifar10.yaml 256 3072
row "CIFAR-10 x 1" 60 configs/paper/cifar10.yaml 1 512
row "30 layers x 16" 60 configs/novels_30l.yaml 16 512
row "30 layers x 1, 128 positions (short lists)" 60 configs/novels_30l.yaml 1 128

if [ "${1-}" = stamps ] && git apply .carry/stamps.patch; then
  say "3. cycles of the phases of layer 3: wait (and norm) + compute; launch 300"
  ninja -C build/cuda bench >>"$OUT/build.log" 2>&1
  for batch in 1 8 64; do
    timeout -k 5 60 build/cuda/bin/bench decode --config configs/novels_30l.yaml --batch $batch --positions 400 2>&1 | grep "^launch" | head -24 | tee -a "$log"
  done
  timeout -k 5 60 build/cuda/bin/bench decode --config configs/novels_12l.yaml --batch 256 --positions 400 2>&1 | grep "^launch" | head -24 | tee -a "$log"
  git apply -R .carry/stamps.patch
fi
