#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Trains with the config of an answer for a second, and judges its validation loss and its growth.
# Needs: train prepare
# Usage: test.sh ANSWER STEM   STEM: where files of this answer may lie
set -euo pipefail
answer=$1 stem=$2
here=$(dirname "$0")
enough=4.6  # bits per byte; who knows only how often each byte comes needs 4.44
mendable='^ *(learning_rate|warmup|clip|beta1|beta2|eps|weight_decay):'
export OMP_NUM_THREADS=1

failed() {
  echo "FAILED: $*"
  exit 1
}

keys() { grep -vE "^#|$mendable" "$1"; }

if ! changed=$(diff <(keys "$here/answers/solution.yaml") <(keys "$answer")); then
  failed "these keys may not change: $(grep '^[<>]' <<<"$changed" | head -n 2 | tr -s ' \n' ' ')"
fi
rm -rf "$stem.run" "$stem.h5" "$stem.txt"
head -c 60000 data/doyle.txt >"$stem.txt"
"$EXERCISE_BIN/prepare" text "$stem.txt" --out "$stem.h5" >/dev/null
"$EXERCISE_BIN/train" --config "$answer" --set "data.path=$stem.h5" --set seed=0 --out "$stem.run" \
  >"$stem.train.log" 2>&1 || failed "train says: $(tail -n 1 "$stem.train.log")"
grep -oE '^step [0-9]+/.*norm [^ ]+' "$stem.train.log"
bits=$(sed -n 's/^best validation: \([^ ]*\) bits.*/\1/p' "$stem.train.log")
awk -v bits="$bits" -v enough=$enough 'BEGIN { exit !(bits > 0 && bits < enough) }' ||
  failed "validation ends at $bits bits per byte, $enough are enough"
echo "passed: validation ends at $bits bits per byte"

growth=$(sed -n 's/^# growth: *//p' "$answer")
awk -v growth="$growth" 'BEGIN { want = 0.9 / sqrt(0.05); exit !(growth > 0.99 * want && growth < 1.01 * want) }' ||
  failed "your growth is $growth: what are m and v after k steps without a gradient, and m / sqrt(v)?"
echo "passed: the growth of the run that diverges"
