#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the test of an exercise with your answer, or checks the tests themselves.
# Usage: bash tests/exercises/run.sh NUMBER                      your answer: passed, or what is wrong
#        bash tests/exercises/run.sh --check-answers [NUMBER...] the file with the hole and each wrong
#                                                                answer must fail, the solution must pass
# What is compiled goes to build/exercises/. An exercise on a library or a program says what to build.
set -euo pipefail
cd "$(dirname "$0")/../.."
. .ci/packages.sh
preset=$(preset_here)
here=tests/exercises
scratch=build/exercises
library=build/$preset/lib
export EXERCISE_BIN=build/$preset/bin
flags=(-std=c++20 -O1 -I. -Wall -Wextra -Wno-unused-parameter -D_GLIBCXX_ASSERTIONS)
if [ "$preset" = cuda ]; then flags+=(-DWEFT_CUDA); fi

folder_of() {  # NUMBER -> NN_name
  local found
  found=$(cd $here && compgen -G "$(printf '%02d' "$((10#$1))")_*") ||
    { echo "no exercise $1; $here/README.md lists them" >&2; exit 2; }
  echo "$found"
}

answer_of() {  # NN_name -> the file with the hole
  local file
  for file in "$here/$1"/exercise.{cpp,yaml,txt}; do
    if [ -f "$file" ]; then echo "$file"; fi
  done
}

test_of() { if [ -f "$here/$1/test.cpp" ]; then echo "$here/$1/test.cpp"; else echo "$here/$1/test.sh"; fi; }

# What the test needs: a line `Needs: TARGET...` names libraries and programs of the build.
needs_of() { sed -n 's/^\(\/\/\|#\) Needs: //p' "$(test_of "$1")"; }

require() {  # NN_name: ends unless what its test needs was built
  local target missing=()
  for target in $(needs_of "$1"); do
    [ -e "$library/lib$target.so" ] || [ -x "$EXERCISE_BIN/$target" ] || missing+=("$target")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "exercise $1 needs ${missing[*]}; build first:" >&2
  echo "  cmake --preset $preset && cmake --build --preset $preset --target ${missing[*]}" >&2
  exit 2
}

compile_test() {  # NN_name
  mkdir -p "$scratch/$1"
  [ -f "$here/$1/test.cpp" ] || return 0
  ${CXX:-c++} "${flags[@]}" -c "$here/$1/test.cpp" -o "$scratch/$1/test.o"
}

# Compiles an answer and runs the test with it: 0 it passed, 1 it failed, 2 it did not compile.
try() {  # NN_name ANSWER
  local stem links=() status=0
  stem=$scratch/$1/$(basename "${2%.*}")
  if [ ! -f "$here/$1/test.cpp" ]; then
    timeout 100 bash "$here/$1/test.sh" "$2" "$stem" || status=$?
  else
    if [ -n "$(needs_of "$1")" ]; then links=("-L$library" -lweft -lweft_kernels "-Wl,-rpath,$PWD/$library"); fi
    ${CXX:-c++} "${flags[@]}" "$2" "$scratch/$1/test.o" "${links[@]}" -pthread -o "$stem" || return 2
    (ulimit -c 0 -v 8000000 && exec timeout 20 "$stem" 2>&1) || status=$?  # memory in KiB
  fi
  case $status in
    0 | 1 | 2) return $status ;;
    124) echo "FAILED: it did not end in time" ;;
    *) echo "FAILED: the program ended with code $status after the last part that passed" \
      "(134: an index out of range; 139: a bad address)" ;;
  esac
  return 1
}

# One row of the table: what became of an answer, and whether that is as it must be.
check_answer() {  # NN_name ANSWER
  local log status=0 verdict=wrong said what
  log=$scratch/$1/$(basename "$2").log
  try "$1" "$2" >"$log" 2>&1 || status=$?
  said=$(grep -m 1 '^FAILED' "$log" || true)
  what=$(sed -n 's/^\(\/\/\|#\) Rejected with: //p' "$2")
  case $2 in
    */solution.*) if [ $status = 0 ]; then verdict=ok; fi ;;
    */wrong_*) if [ $status = 1 ] && [ -n "$what" ] && grep -qF -- "$what" <<<"$said"; then verdict=ok; fi ;;
    *) if [ $status = 1 ] && [ -n "$said" ]; then verdict=ok; fi ;;
  esac
  case $status in
    0) said=passed ;;
    2) said="does not compile: $(head -n 1 "$log")" ;;
  esac
  printf '%-5s %-20s %-12s %s\n' "$verdict" "$1" "$(basename "${2%.*}")" "${said:0:150}"
}

check_answers() {  # NN_name...
  local folder table=$scratch/table.txt pairs=() count bad=0
  for folder; do
    require "$folder"
    count=$(compgen -G "$here/$folder/answers/wrong_*" | wc -l)
    [ "$count" -ge 3 ] || { echo "$folder has $count wrong answers; three are needed"; bad=1; }
    for answer in "$(answer_of "$folder")" "$here/$folder"/answers/*; do
      pairs+=("$folder" "$answer")
    done
  done
  printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 bash "$0" --compile-test
  printf '%s\n' "${pairs[@]}" | xargs -P "$(nproc)" -n 2 bash "$0" --check-answer | sort -k 2 >"$table"
  cat "$table"
  if grep -qv '^ok ' "$table"; then bad=1; fi
  echo "$(grep -c '^ok ' "$table") of $((${#pairs[@]} / 2)) answers are judged as they must be, in $SECONDS s"
  return $bad
}

case ${1:-} in
  --check-answers)
    shift
    folders=()
    if [ $# = 0 ]; then set -- $(cd $here && ls -d [0-9][0-9]_* | cut -c 1-2); fi
    for number; do folders+=("$(folder_of "$number")"); done
    check_answers "${folders[@]}"
    ;;
  --compile-test) compile_test "$2" ;;
  --check-answer) check_answer "$2" "$3" ;;
  [0-9]*)
    folder=$(folder_of "$1")
    require "$folder"
    compile_test "$folder"
    answer=$(answer_of "$folder")
    status=0
    try "$folder" "$answer" || status=$?
    if [ $status = 0 ]; then echo "exercise $folder: passed"; fi
    if [ $status = 1 ]; then echo "exercise $folder: not yet; edit $answer"; fi
    if [ $status = 2 ]; then echo "exercise $folder: $answer does not compile"; fi
    exit $status
    ;;
  *)
    sed -n '3,7s/^# //p' "$0" >&2
    exit 2
    ;;
esac
