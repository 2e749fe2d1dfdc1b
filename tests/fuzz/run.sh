#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds the fuzzers and runs each from its seeds, as many at a time as there are cores.
# Usage: run.sh [SECONDS each, default 30] [TARGET...] (leaves with 1 on a finding, which lies in build/fuzz/found/ then).
# Each fuzz_<target>.cpp, here or beside the tests of a part, is a target; its seeds are seeds/<target>/ and
# what make_seeds.py makes.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-30}
shift || true
clang=clang-16  # before 16, clang does not take the ranges of g++'s library, and Debian 12 has 14 as `clang`
command -v "$clang" >/dev/null || clang=clang
cmake --preset fuzz -DCMAKE_C_COMPILER="$clang" -DCMAKE_CXX_COMPILER="${clang/clang/clang++}" >/dev/null
cmake --build --preset fuzz
mkdir -p build/fuzz/found
python3 tests/fuzz/make_seeds.py build/fuzz/seeds
targets=("$@")
[ ${#targets[@]} -gt 0 ] || for source in $(find tests -name "fuzz_*.cpp"); do
  target=$(basename "$source" .cpp)
  targets+=("${target#fuzz_}")
done
fuzz() {
  local target=$1 seeds=() folder
  if ! [ -x "build/fuzz/bin/fuzz_$target" ]; then
    echo "fuzz_$target: not built (its library is missing)"
    return
  fi
  for folder in "tests/fuzz/seeds/$target" "build/fuzz/seeds/$target"; do [ -d "$folder" ] && seeds+=("$folder"); done
  mkdir -p "build/fuzz/corpus_$target"
  echo "fuzz_$target, $seconds s"
  # The limit of memory is the sanitizer's, which leaves the input behind; libFuzzer's own may hang in its report.
  ASAN_OPTIONS=soft_rss_limit_mb=1024:allocator_may_return_null=0 timeout $((seconds + 120)) \
    "build/fuzz/bin/fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=0 -max_len=4096 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix=build/fuzz/found/ "build/fuzz/corpus_$target" "${seeds[@]}"
}
export -f fuzz
export seconds
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I {} bash -euo pipefail -c 'fuzz {}' || exit 1
