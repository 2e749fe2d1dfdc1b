#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Everything that is broken on purpose: damaged files, hostile configs, failing calls of the system, kills, pairs of
# trainers, failing ranks. Less than an hour on 2 cores; the CPU tests do a share of each.
# Usage: bash tests/tools/attack.sh [mutants, 20000] [configs, 6000] [every n-th call, 1] [rounds of kills, 12]
set -euo pipefail
cd "$(dirname "$0")/../.."
preset=${WEFT_PRESET:-cpu}
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" --target weft_tests
tests=$PWD/build/$preset/bin/weft_tests logs=build/attack mutants=${1:-20000} configs=${2:-6000} rounds=${4:-12}
mkdir -p "$logs"
export OMP_NUM_THREADS=1 WEFT_FAULT_EVERY=${3:-1} WEFT_MUTANTS=$(((mutants + 1) / 2)) WEFT_CONFIGS=$configs

failed=0 jobs=()
finish() {  # waits for all that was started
  for job in "${jobs[@]}"; do wait "$job" || failed=1; done
  jobs=()
}
attack() {  # attack NAME FILTER [options of the test binary]
  local name=$1 filter=$2
  shift 2
  "$tests" --gtest_filter="$filter" --gtest_brief=1 "$@" >"$logs/$name.log" 2>&1 &
  jobs+=($!)
}

for seed in 1 2; do WEFT_SEED=$seed TMPDIR=${TMPDIR:-/dev/shm} attack mutants_$seed 'SlowMutants.Damaged*'; done
finish
attack calls_of_one 'SlowFaults.*-*.Ranks'
attack calls_of_ranks 'SlowFaults.Ranks'
finish
TMPDIR=${TMPDIR:-/dev/shm} attack configs 'SlowMutants.Hostile*'
attack kills '*BeingKilled*:*Lock*' --gtest_repeat="$rounds"
finish
attack processes 'RanksFailure*:HostsTest*:BadInput*:Outputs*'
finish
grep -hE '^(configs:|faults:|.* read .* crashed )' "$logs"/*.log || true
grep -hE 'Failure|FAILED' "$logs"/*.log && failed=1
exit "$failed"
