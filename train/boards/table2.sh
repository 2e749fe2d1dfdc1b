#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The patterns of Table 2 of arXiv 1904.10509 at equal steps: dense, fixed, strided and local in turn; text and images.
# Three seeds of each: text with the recipe of text_1min.yaml, images with that of cifar10_32l.yaml; and one seed of
# text with the recipe of 2019. Data: prepare novels, prepare cifar10
# Usage: bash train/boards/table2.sh [FOLDER]
cd "$(dirname "$0")/../.."
. train/boards/board.sh
board table2 "$@"

pattern() {  # of a name, with blocks of $2 positions
  case $1 in
    dense) echo '{kind: all}' ;;
    fixed) echo "{kind: fixed, stride: $2, c: $(($2 / 4))}" ;;
    strided) echo "[{kind: strided, stride: $2}, {kind: local, stride: $2}]" ;;
  esac
}

text=(--set train.steps=1500 --set 'train.context_schedule=[[0, 1536], [1000, 12288]]' --set train.eval_every=1500)
deeper=(--set model.layers=12 --set train.batch=2)
images=(--set train.steps=2400 --set train.eval_every=2400)
for name in fixed strided dense; do
  for seed in 0 1 2; do
    row "text, $name" $seed text_1min.yaml "${text[@]}" "${deeper[@]}" --set "model.attention=$(pattern $name 128)"
  done
done
for name in fixed strided dense; do
  row "text, $name, recipe of 2019" 0 novels_12l.yaml "${text[@]}" --set train.batch=2 \
    --set "model.attention=$(pattern $name 128)"
  for seed in 0 1 2; do
    row "images, $name" $seed cifar10_32l.yaml "${images[@]}" --set "model.attention=$(pattern $name 96)"
  done
done
finish
