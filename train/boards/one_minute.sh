#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# English novels after one minute of training: five seeds of text_1min.yaml. Data: prepare novels
# Usage: bash train/boards/one_minute.sh [FOLDER]
cd "$(dirname "$0")/../.."
. train/boards/board.sh
board one_minute "$@"

for seed in 0 1 2 3 4; do row text_1min $seed text_1min.yaml; done
finish
