#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# English novels after ten minutes of training: the recipe of text_1min.yaml with 12 layers of width 768 and dropout, which
# reads each byte about seven times; two seeds, 583 s each on an H200. Data: prepare novels
# Usage: bash train/boards/ten_minutes.sh [FOLDER]
cd "$(dirname "$0")/../.."
. train/boards/board.sh
board ten_minutes "$@"

larger=(--set model.layers=12 --set model.width=768 --set model.heads=12 --set model.dropout=0.1)
longer=(--set train.batch=4 --set train.steps=9400 --set train.eval_every=2350
        --set 'train.context_schedule=[[0, 768], [4700, 1536], [8400, 3072]]')
for seed in 0 1; do row "ten minutes" $seed text_1min.yaml "${larger[@]}" "${longer[@]}"; done
finish
