#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds the fuzzers and runs each from its seeds. Usage: run.sh [SECONDS each, default 30] (leaves with 1 on a finding,
# which lies in build/fuzz/found/ then)
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-30}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
mkdir -p build/fuzz/found
for target in layout config; do
  mkdir -p "build/fuzz/corpus_$target"
  echo "fuzz_$target, $seconds s"
  # The limit of memory is the sanitizer's, which leaves the input behind; libFuzzer's own may hang in its report.
  ASAN_OPTIONS=soft_rss_limit_mb=1024:allocator_may_return_null=0 timeout $((seconds + 120)) \
    "build/fuzz/bin/fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=0 -max_len=4096 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix=build/fuzz/found/ "build/fuzz/corpus_$target" "tests/fuzz/seeds/$target"
done
