#!/bin/bash
# Trains on a data file of GB gigabytes (20) with at most MB megabytes of memory (2048), and on a small file of
# the same tokens: the rates must agree within 10 %. A second start must not read the whole file again.
# Needs GB of disk in DIR, which is removed. Usage: large_data.sh BUILD/bin DIR [GB] [MB]
set -euo pipefail
bin=$(realpath "$1") dir=$2 gb=${3:-20} mb=${4:-2048}
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export XDG_CACHE_HOME=$PWD/cache OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
cat > tiny.yaml <<'Y'
name: large
data: {path: large.h5}
model: {vocab: 1000, context: 256, layers: 1, width: 32, heads: 2, position_axes: [256],
        attention: {kind: local, stride: 32}}
train: {steps: 200, batch: 4, warmup: 0, learning_rate: 1e-3, log_every: 1, eval_tokens: 2048}
Y
# Random numbers, and a hole up to the size: the data file has zeros there.
python3 - <<'P'
import random
random.seed(1)
with open("piece.bin", "wb") as f:
    f.write(b"".join(random.randrange(1000).to_bytes(2, "little") for _ in range(1 << 22)))
P
cp piece.bin raw.bin
truncate -s $((gb * 1000))MB raw.bin
( ulimit -d $((mb * 1024)); time "$bin/prepare" tokens raw.bin --vocab 1000 --split 0.98,0.01,0.01 --out large.h5 )
rm raw.bin
"$bin/prepare" tokens piece.bin --vocab 1000 --split 0.8,0.1,0.1 --out small.h5
ls -l large.h5 small.h5
run() {  # a name, a data file
  ( ulimit -v $((mb * 1024)); "$bin/train" --config tiny.yaml --set data.path="$PWD/$2" --out "$1" --device cpu ) \
    > "$1.log" 2>&1 || { cat "$1.log"; exit 1; }
}
seconds() { local from; from=$(date +%s.%N); "$@"; echo "$(date +%s.%N) - $from" | bc; }
echo "small: $(seconds run small small.h5) s; large: $(seconds run large large.h5) s, again" \
  "$(seconds run again large.h5) s"
python3 - <<'P'
import json, statistics
def rate(name):
    rates = [json.loads(line)["tokens_per_s"] for line in open(f"{name}/metrics.jsonl")]
    return statistics.median(rates[5:])
small, large = rate("small"), rate("again")
print(f"tokens/s: small {small:.0f}, large {large:.0f}")
assert large > 0.9 * small
P
