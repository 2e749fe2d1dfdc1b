# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What the boards share: runs of one commit on one card, a JSON row for each, a table and curves from the rows.
# Sourced by the scripts beside it, from the root of the clone:
#   board NAME [FOLDER]       where the rows go: FOLDER/rows.jsonl, runs/boards/NAME when not given
#   row LABEL SEED CONFIG [options of train]   trains, scores valid and test, adds a row; a row that is there stays
#   finish                    prints the table, writes it to FOLDER/table.md, and the curves to FOLDER/curves.html
# Where there are several GPUs (CUDA_VISIBLE_DEVICES, else all), each trains a row; its output is in FOLDER/ROW.log.
# A board that was stopped goes on with the runs that were stopped. Rows of another commit are refused.
set -euo pipefail
. .ci/packages.sh

board() {
  exec 3>&1  # rows say on it that they have ended
  folder=${2:-runs/boards/$1}
  bin=build/$(preset_here)/bin
  [ -x "$bin/train" ] || { echo "error: $bin/train is not built; first: bash train/quickstart.sh" >&2; exit 1; }
  commit=${WEFT_COMMIT:-$(git describe --always --dirty --abbrev=8 --exclude '*')}
  card=CPU
  if have_gpu; then card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1); fi
  IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES:-}"
  if [ ${#gpus[@]} = 0 ] && have_gpu; then mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader); fi
  declare -gA running=()  # the GPU of a process
  trap stop_rows INT TERM
  rows=$folder/rows.jsonl
  mkdir -p "$folder"
  touch "$rows"
  if grep -v "\"commit\": \"$commit\", \"card\": \"$card\"" "$rows" >&2; then
    echo "error: $rows has rows of another commit or card (above); expected $commit, $card: take another folder" >&2
    exit 1
  fi
}

# field NAME: the last number of that name in the JSON lines on stdin.
field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" | tail -n 1; }

# Whether a run has made all its steps: `train` ends well after Ctrl-C, too.
is_complete() { [ "$(field step <"$1/metrics.jsonl")" = "$(sed -n 's/^  steps: *//p' "$1/config.yaml")" ]; }

# Saves what is under way, and leaves.
stop_rows() {
  for process in "${!running[@]}"; do kill -TERM -- "-$process" 2>/dev/null; done
  wait
  echo "stopped; the same command goes on" >&2
  exit 1
}

# Waits for one of the rows that are under way.
wait_for_row() {
  local process status=0
  wait -n -p process "${!running[@]}" || status=$?
  unset "running[$process]"
  if [ $status != 0 ]; then tail -n 5 "$folder"/*.log >&2; stop_rows; fi
}

row() {
  local label=$1 seed=$2
  if grep -q "\"row\": \"$label\", \"seed\": $seed," "$rows"; then return 0; fi
  if [ ${#gpus[@]} -lt 2 ]; then
    train_row "$@"
    return
  fi
  while [ ${#running[@]} = ${#gpus[@]} ]; do wait_for_row; done
  local gpu taken=" ${running[*]} "
  for gpu in "${gpus[@]}"; do [[ $taken == *" $gpu "* ]] || break; done
  say "$label, seed $seed, on GPU $gpu"
  set -m  # a process group each, which a signal ends
  (
    trap : INT TERM  # until what it runs has saved
    CUDA_VISIBLE_DEVICES=$gpu train_row "$@"
  ) >"$folder/${label//[^A-Za-z0-9]/_}_$seed.log" 2>&1 &
  set +m
  running[$!]=$gpu
}

# One row, in this process.
train_row() {
  local label=$1 seed=$2 config=$3
  shift 3
  local run=$folder/${label//[^A-Za-z0-9]/_}_$seed
  if [ ${#gpus[@]} -lt 2 ]; then say "$label, seed $seed"; fi
  if [ ! -e "$run/latest.h5" ]; then
    "$bin/train" --config "$config" --set seed="$seed" --no-report --out "$run" "$@"
  elif ! is_complete "$run"; then
    "$bin/train" --resume "$run"
  fi
  is_complete "$run" || { echo "error: $run was stopped; the same command goes on with it" >&2; exit 1; }
  local valid test seconds
  valid=$("$bin/evaluate" "$run/latest.h5" --split valid | field bits)
  test=$("$bin/evaluate" "$run/latest.h5" --split test | field bits)
  seconds=$(field elapsed_s <"$run/metrics.jsonl")
  printf '{"row": "%s", "seed": %s, "valid": %s, "test": %s, "seconds": %s, "commit": "%s", "card": "%s", "command": "%s"}\n' \
    "$label" "$seed" "$valid" "$test" "$seconds" "$commit" "$card" "train --config $config --set seed=$seed $*" >>"$rows"
  printf '\n== %s, seed %s: %.4f valid bits, %.4f test bits, %.0f s\n' "$label" "$seed" "$valid" "$test" "$seconds" >&3
}

# Of the seeds of each row: mean and standard error, least and most.
finish() {
  while [ ${#running[@]} != 0 ]; do wait_for_row; done
  awk -F'"' '
    function number(name) {
      match($0, "\"" name "\": [0-9.e+-]+")
      return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) + 0
    }
    function summary(name, row,   i, n, mean, squares, least, most, v) {
      n = count[row]
      for (i = 1; i <= n; ++i) mean += of[row, name, i] / n
      least = most = of[row, name, 1]
      for (i = 1; i <= n; ++i) {
        v = of[row, name, i]
        squares += (v - mean) ^ 2
        if (v < least) least = v
        if (v > most) most = v
      }
      if (n == 1) return sprintf("%.4f", mean)
      return sprintf("%.4f ± %.4f (%.4f to %.4f)", mean, sqrt(squares / (n - 1) / n), least, most)
    }
    {
      if (!($4 in count)) order[++lines] = $4
      i = ++count[$4]
      of[$4, "valid", i] = number("valid")
      of[$4, "test", i] = number("test")
      seconds[$4] += number("seconds")
    }
    END {
      print "| | seeds | valid bits | test bits | seconds |\n|---|---|---|---|---|"
      for (i = 1; i <= lines; ++i) {
        row = order[i]
        printf "| %s | %d | %s | %s | %.0f |\n", row, count[row], summary("valid", row), summary("test", row),
               seconds[row] / count[row]
      }
    }' "$rows" >"$folder/table.md"
  say "$card, commit $commit: mean ± standard error (least to most)"
  cat "$folder/table.md"
  local runs=("$folder"/*/)
  if [ ${#runs[@]} -gt 1 ]; then "$bin/report" "${runs[@]%/}" --out "$folder/curves.html"; fi
}
