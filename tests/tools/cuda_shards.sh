#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs GPU tests in four processes a GPU, side by side: most of their time is that of the definition, on the CPU.
# Threads that wait may not spin: eight processes with a thread for each core took more than twice as long.
# Usage: bash tests/tools/cuda_shards.sh WEFT_TESTS FOLDER [FILTER]     FILTER: Cuda* when not given
#   FOLDER/shard_N.json is the report of a process, FOLDER/shard_N.log its output. Failed tests, and the test that was
#   running in a process that crashed, are printed. Leaves with 1 when there are any.
#   Then: python3 tests/tools/write_gpu_record.py FOLDER/shard_*.json tests/gpu_record.json
set -euo pipefail
[ $# -ge 2 ] || { sed -n 's/^# Usage: //p' "$0" >&2; exit 1; }
program=$1 folder=$2 filter=${3:-Cuda*}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
if [ "$gpus" = 0 ]; then gpus=1; fi
shards=$((4 * gpus))
threads=$(($(nproc) / shards))
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=$((threads > 1 ? threads : 1))
mkdir -p "$folder"
rm -f "$folder"/shard_*

# The GPUs in the order in which shard $1 takes them: tests of one GPU take the first.
gpus_of() { for ((g = 0; g < gpus; ++g)); do printf '%s%d' "$([ $g = 0 ] || echo ,)" $((($1 + g) % gpus)); done; }

processes=()
for ((shard = 0; shard < shards; ++shard)); do
  CUDA_VISIBLE_DEVICES=$(gpus_of $shard) GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard \
    "$program" --gtest_filter="$filter" --gtest_output="json:$folder/shard_$shard.json" \
    >"$folder/shard_$shard.log" 2>&1 &
  processes+=($!)
done
failed=0
for ((shard = 0; shard < shards; ++shard)); do
  wait "${processes[shard]}" && continue
  failed=1
  log=$folder/shard_$shard.log
  if [ -s "$folder/shard_$shard.json" ]; then
    grep -a '^\[  FAILED  \] .*ms)$' "$log" || true
  else
    echo "crashed: $(grep -a '^\[ RUN' "$log" | tail -n 1), see $log"
  fi
done
echo "$(cat "$folder"/shard_*.log | grep -ac '^\[       OK') passed in $shards processes, $SECONDS s"
exit $failed
