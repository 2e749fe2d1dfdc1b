#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds and runs every test that this machine can run, and says what it could not run.
# Usage: bash tests/run.sh [--record]
#   with a GPU and a CUDA toolkit: all tests, CPU and CUDA; --record writes tests/gpu_record.json
#   otherwise: the CPU tests; CUDA tests are not built here (.ci/run compiles them)
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/packages.sh

install_packages python3-h5py iproute2
export WEFT_PYTHON=${WEFT_PYTHON:-/usr/bin/python3}  # it has h5py, which reads what weft writes
preset=$(preset_here)
build "$preset"

say "CPU tests"
ctest --preset "$preset" -L cpu -j $(($(nproc) + 1)) -E '^Slow(Mutants|Faults)\.'  # many wait; attack.sh has those
if [ "$preset" = cuda ] && have_gpu; then
  say "CUDA tests"
  reports=build/$preset/cuda_tests
  status=0
  bash tests/tools/cuda_shards.sh "build/$preset/bin/weft_tests" "$reports" || status=$?
  if [ "${1:-}" = --record ]; then
    python3 tests/tools/write_gpu_record.py "$reports"/shard_*.json tests/gpu_record.json
  fi
  exit "$status"
fi
say "CUDA tests: not run on this machine (no GPU, or no CUDA toolkit)"
