#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A recipe in weft and then, with the same windows, rates and updates, in PyTorch (train/bench/peers/train_peer.py) on one
# card: seconds of training, without what is compiled before it, and bits of the same share of the validation split.
# Data: prepare novels. WEFT_PYTHON names a Python that has PyTorch, PyYAML and h5py.
# Usage: bash train/boards/twin.sh [FOLDER] [CONFIG]         CONFIG, of bytes: text_1min.yaml when not given
cd "$(dirname "$0")/../.."
. train/boards/board.sh
board twin "${1:-}"
config=${2:-text_1min.yaml} python=${WEFT_PYTHON:-python3}
"$python" -c 'import h5py, torch, yaml'

row weft 0 "$config"
finish
say "PyTorch, $config"
data=$(sed -n 's/^  path: *//p' "$folder/weft_0/config.yaml" | head -n 1 | tr -d '"')
"$python" -c 'import h5py, sys
splits = h5py.File(sys.argv[1])
open(sys.argv[2], "wb").write(b"".join(splits[s][()].astype("u1").tobytes() for s in ("train", "valid", "test")))' \
  "$data" "$folder/text"
device=(--device cuda)
if ! have_gpu; then device=(--device cpu --eager); fi
PYTHONPATH=src/python "$python" train/bench/peers/train_peer.py train --config "configs/$config" \
  --data "$folder/text" "${device[@]}" | tee "$folder/pytorch.log"
ours=$(field elapsed_s <"$folder/weft_0/metrics.jsonl") theirs=$(field train_s <"$folder/pytorch.log")
printf '\n%s, commit %s, %s\n' "$card" "$commit" "$config"
printf 'weft: %s s, %s valid bits; PyTorch: %s s, %s valid bits, %s s of compilation; PyTorch / weft: %s\n' \
  "$ours" "$(field valid_bits <"$folder/weft_0/metrics.jsonl")" \
  "$theirs" "$(field valid_bits <"$folder/pytorch.log")" "$(field compile_s <"$folder/pytorch.log")" \
  "$(awk "BEGIN { printf \"%.2f\", $theirs / $ours }")" | tee "$folder/ratio.txt"
