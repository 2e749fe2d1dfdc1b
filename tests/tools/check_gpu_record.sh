#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Says whether tests/gpu_record.json is of these sources and whether its tests passed.
# Usage: tests/tools/check_gpu_record.sh        exit 0: it is and they did
set -euo pipefail
cd "$(dirname "$0")/../.."
record=tests/gpu_record.json
[ -f "$record" ] || { echo "$record is missing: run 'bash tests/run.sh --record' on a machine with a GPU"; exit 1; }
field() { sed -n "s/.*\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$record" | head -n 1; }
recorded=$(field source_hash) now=$(tests/tools/source_hash.sh)
passed=$(field passed) failed=$(field failed) skipped=$(field skipped)
echo "GPU record: $(field device), driver $(field driver), $(field date): $passed passed, $failed failed, $skipped skipped"
if [ "$recorded" != "$now" ]; then
  echo "the sources have changed since (recorded $recorded, now $now)"
  git diff --name-only "$(field commit)" 2>/dev/null | LC_ALL=C sort |
    LC_ALL=C comm -12 - <(python3 tests/tools/gpu_sources.py | LC_ALL=C sort) | sed 's/^/  changed: /' || true
  exit 1
fi
[ "$failed" = 0 ] && [ "$passed" -gt 0 ] || { echo "not all of its tests passed"; exit 1; }
echo "it matches the sources"
