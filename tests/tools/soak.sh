#!/usr/bin/env bash
# Trains on the CPU while processes are killed, stopped, interrupted and find the disk full at random moments,
# and goes on each time. Then trains as far without any of that: checkpoints must be the same bytes.
#   bash tests/tools/soak.sh [minutes, default 30]   WEFT_BIN: folder of the programs; SEED: of the moments
set -euo pipefail
minutes=${1:-30}
cd "$(dirname "$0")/../.."
bin=$(realpath "${WEFT_BIN:-build/cpu/bin}")
RANDOM=${SEED:=$RANDOM}
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true; rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

"$bin/prepare" text data/doyle.txt --out "$folder/data.h5" >/dev/null
cat >"$folder/soak.yaml" <<END
name: soak
data: {path: $folder/data.h5}
model:
  {vocab: 256, context: 64, layers: 2, width: 32, heads: 2, dropout: 0.1, position_axes: [8, 8],
   attention: [{kind: local, stride: 8}, {kind: strided, stride: 8}]}
train:
  {steps: 10000000, batch: 4, learning_rate: 3e-3, warmup: 20, ema_decay: 0.99, log_every: 10, eval_every: 50,
   eval_tokens: 2000, save_every: 20, keep: 3}
END

fail() {
  echo "soak: $1 (SEED=$SEED)" >&2
  tail -n 3 "$folder/err" "$folder/second" >&2
  exit 1
}
arguments() {  # of the run that is disturbed, as far as it has come
  echo --config "$folder/soak.yaml" --device cpu --out "$folder/run"
  if [ -e "$folder/run/latest.h5" ]; then echo --resume; fi
}
start() {  # $1: most kilobytes that a file may have
  rm -f "$folder/out"
  (ulimit -f "${1:-unlimited}" && exec env --default-signal=HUP "$bin/train" $(arguments) >"$folder/out" 2>"$folder/err") &
  pid=$!
}
doze() { sleep "$(printf '%d.%03d' $((RANDOM % ${1:-3})) $((RANDOM % 1000)))"; }  # less than so many seconds
signal() { kill "-$1" "$pid" 2>/dev/null || fail "the run ended by itself before SIG$1"; }
ends_with() {
  local code=0
  wait "$pid" 2>/dev/null || code=$?
  pid=
  [ "$code" = "$1" ] || fail "exit code $code, expected $1, after $2"
}
until_training() {  # its first step is done
  local tries=0
  until grep -qs '^first step done' "$folder/out"; do
    kill -0 "$pid" 2>/dev/null || fail "the run did not start"
    [ $((tries += 1)) -le 3000 ] || fail "the run did not start within 60 s"
    sleep 0.02
  done
}

declare -A count=([KILL]=0 [STOP]=0 [TERM]=0 [HUP]=0 [full]=0 [second]=0)
end=$((SECONDS + ${minutes} * 36))  # of 60: the rest is for the run that is compared
while [ $SECONDS -lt $end ]; do
  kind=$((RANDOM % 12))
  case $kind in
    [0-4])  # anywhere, in its start, too
      start
      doze
      signal KILL
      ends_with 137 SIGKILL
      count[KILL]=$((count[KILL] + 1))
      ;;
    [5-6])
      start
      until_training
      doze 2
      signal STOP
      doze 2
      signal CONT
      doze 2
      signal TERM
      ends_with 0 'SIGSTOP, SIGCONT and SIGTERM'
      count[STOP]=$((count[STOP] + 1))
      ;;
    [7-8])
      name=$([ $kind = 7 ] && echo TERM || echo HUP)
      start
      until_training
      doze 2
      signal "$name"
      ends_with 0 "SIG$name"
      count[$name]=$((count[$name] + 1))
      ;;
    9)
      start
      until_training
      "$bin/train" $(arguments) --max-steps 1 >/dev/null 2>"$folder/second" && fail 'two trainers in one folder'
      grep -qE 'is in use by another train|holds a run already' "$folder/second" || fail 'a second trainer'
      signal KILL
      ends_with 137 SIGKILL
      count[second]=$((count[second] + 1))
      ;;
    *)
      start $((100 + RANDOM % 300))  # a checkpoint has 700
      ends_with 1 'a full disk'
      [ "$(grep -c '' "$folder/err")" = 1 ] && grep -q 'free some space' "$folder/err" || fail 'words on a full disk'
      count[full]=$((count[full] + 1))
      ;;
  esac
done

start
until_training
signal TERM
ends_with 0 SIGTERM
steps=$(tail -n 3 "$folder/out" | sed -n 's/.*stopped after step \([0-9]*\) of.*/\1/p')
"$bin/train" --config "$folder/soak.yaml" --device cpu --out "$folder/whole" --max-steps "$steps" \
  >"$folder/out" 2>"$folder/err" || fail 'the undisturbed run'
for file in latest.h5 best.h5 config.yaml; do
  cmp "$folder/run/$file" "$folder/whole/$file" || fail "$file differs after $steps steps"
done
echo "soak: $steps steps, SIGKILL ${count[KILL]}, SIGSTOP ${count[STOP]}, SIGTERM ${count[TERM]}, SIGHUP ${count[HUP]}," \
  "full disk ${count[full]}, second trainer ${count[second]}; the same bytes as undisturbed (SEED=$SEED)"
