#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# CIFAR-10 in one and in eight minutes of training: two seeds of cifar10_32l.yaml each. Data: prepare cifar10
# Usage: bash train/boards/cifar10.sh [FOLDER]
cd "$(dirname "$0")/../.."
. train/boards/board.sh
board cifar10 "$@"

for seed in 0 1; do row "a minute" $seed cifar10_32l.yaml; done
for seed in 0 1; do row "eight minutes" $seed cifar10_32l.yaml --set train.steps=38000; done
finish
