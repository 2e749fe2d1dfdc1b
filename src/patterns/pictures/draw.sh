#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Draws the pictures beside this file, which the READMEs show: 48 positions in rows of 8.
# Usage: draw.sh [path of inspect]
set -euo pipefail
cd "$(dirname "$0")"
inspect=${1:-../../../build/cpu/bin/inspect}
draw() {
  "$inspect" --attention "$2" --length 48 --columns 8 --device cpu --png "$1.png" >/dev/null
}
draw all '{kind: all}'
draw local '{kind: local, stride: 8}'
draw strided '{kind: strided, stride: 8}'
draw fixed '{kind: fixed, stride: 8, c: 2}'
draw merged '{kind: merged, of: [{kind: local, stride: 8}, {kind: strided, stride: 8}]}'
