#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs selftest with the functions of an answer in place of weft's: the dynamic linker takes those of
# a preloaded library first.
# Needs: selftest
# Usage: test.sh ANSWER STEM   STEM: where files of this answer may lie
set -euo pipefail
answer=$1 stem=$2
log=$stem.selftest.log
export OMP_NUM_THREADS=1

${CXX:-c++} -std=c++20 -O1 -I. -shared -fPIC "$answer" -o "$stem.so" || exit 2
LD_PRELOAD=$stem.so timeout 60 "$EXERCISE_BIN/selftest" --device cpu --cases 250 --seed 2001 \
  >"$log" 2>&1 && { tail -n 1 "$log"; exit 0; }
if grep -q '^FAILED case' "$log"; then
  grep '^FAILED case' "$log" | sed 's/; alone: .*//'
  echo "one case alone: LD_PRELOAD=$stem.so $EXERCISE_BIN/selftest --device cpu --case NUMBER"
else
  echo "FAILED: selftest did not end in time, or crashed; its last line: $(tail -n 1 "$log")"
fi
exit 1
