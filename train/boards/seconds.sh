#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# English novels after a few seconds of training: text_1min.yaml with fewer updates, three seeds of each length.
# Data: prepare novels
# Usage: bash train/boards/seconds.sh [FOLDER]
cd "$(dirname "$0")/../.."
. train/boards/board.sh
board seconds "$@"

for updates in 500 600 700; do
  shorter=(--set "train.steps=$updates" --set "train.eval_every=$updates"
           --set "train.context_schedule=[[0, 768], [$((updates * 9 / 10)), 1536]]")
  for seed in 0 1 2; do row "$updates updates" $seed text_1min.yaml "${shorter[@]}"; done
done
finish
