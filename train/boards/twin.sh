#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A recipe in weft and then, with the same windows, rates and updates, in PyTorch (train/bench/peers/train_peer.py) on one
# card: seconds of training, without what is compiled before it, and bits of the same share of the validation split.
# Data: prepare novels; TEXT is what it was made from. Python needs PyTorch and PyYAML; WEFT_PYTHON names one that has them.
# Usage: bash train/boards/twin.sh TEXT [FOLDER] [CONFIG]         CONFIG: text_1min.yaml when not given
[ $# -ge 1 ] || { sed -n 's/^# Usage: //p' "$0" >&2; exit 1; }
text=$(realpath "$1")
cd "$(dirname "$0")/../.."
. train/boards/board.sh
board twin "${2:-}"
config=${3:-text_1min.yaml}

row weft 0 "$config"
finish
say "PyTorch, $config"
device=(--device cuda)
if ! have_gpu; then device=(--device cpu --eager); fi
PYTHONPATH=src/python "${WEFT_PYTHON:-python3}" train/bench/peers/train_peer.py train --config "configs/$config" \
  --data "$text" "${device[@]}" | tee "$folder/pytorch.log"
ours=$(field elapsed_s <"$folder/weft_0/metrics.jsonl") theirs=$(field train_s <"$folder/pytorch.log")
printf '\n%s, commit %s, %s\n' "$card" "$commit" "$config"
printf 'weft: %s s, %s valid bits; PyTorch: %s s, %s valid bits, %s s of compilation; PyTorch / weft: %s\n' \
  "$ours" "$(field valid_bits <"$folder/weft_0/metrics.jsonl")" \
  "$theirs" "$(field valid_bits <"$folder/pytorch.log")" "$(field compile_s <"$folder/pytorch.log")" \
  "$(awk "BEGIN { printf \"%.2f\", $theirs / $ours }")" | tee "$folder/ratio.txt"
