#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Everything that is broken on purpose: damaged files, hostile configs, failing calls of the system, kills, pairs of
# trainers, failing ranks. About an hour on 2 cores.
# Usage: bash tests/tools/attack.sh [mutants, 20000] [configs, 6000] [every n-th call, 1] [rounds of kills, 12]
#        bash tests/tools/attack.sh --share    a minute of it, without what the CPU tests do anyhow
set -euo pipefail
cd "$(dirname "$0")/../.."
share=
if [ "${1:-}" = --share ]; then share=1 && set -- 300 150 97 0; fi
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
attack calls_of_one 'SlowFaults.*-*.Ranks*'
attack calls_of_ranks 'SlowFaults.Ranks*'
finish
TMPDIR=${TMPDIR:-/dev/shm} attack configs 'SlowMutants.Hostile*'
[ -n "$share" ] || attack kills '*BeingKilled*:*Lock*' --gtest_repeat="$rounds"
finish
[ -n "$share" ] || attack processes 'RanksFailure*:HostsTest*:BadInput*:Outputs*'
finish
grep -hE '^(configs:|faults:|.* read .* crashed )' "$logs"/*.log || true
grep -hE 'Failure|FAILED' "$logs"/*.log && failed=1
exit "$failed"
