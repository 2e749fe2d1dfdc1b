#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# From a clean machine to a trained, evaluated and sampled model: installs packages, builds the programs and trains
# configs/tiny.yaml on data/doyle.txt, on the GPU if there is one. README.md shows what it prints.
# Usage: bash train/quickstart.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/packages.sh

corpus=data/doyle.txt
sha256=4b4fdeaa5ac6cccd38d8edb52d07c7924a903811dc14a5535d7b2213c5c3c9da
echo "$sha256  $corpus" | sha256sum --check --status ||
  { echo "error: $corpus has changed, so the README's figures do not hold: run 'git checkout $corpus'" >&2; exit 1; }

install_packages
preset=$(preset_here)
say "building with the preset '$preset' ($(nproc) cores)"
configure "$preset"
cmake --build --preset "$preset" --target train evaluate sample inspect prepare selftest
bin=build/$preset/bin

say "preparing $corpus"
mkdir -p runs
"$bin"/prepare text "$corpus" --out runs/tiny.h5

say "drawing what a layer of the model attends to"
"$bin"/inspect --config tiny.yaml --pattern 0,0 --length 48

say "training configs/tiny.yaml"
rm -rf runs/tiny
"$bin"/train --config tiny.yaml --set data.path=runs/tiny.h5 --out runs/tiny

say "evaluating on the test split"
"$bin"/evaluate --checkpoint runs/tiny/best.h5 --data runs/tiny.h5 --split test

say "sampling what follows 'Holmes ': temperature 0.7, top-p 0.95, seed 1"
"$bin"/sample --checkpoint runs/tiny/best.h5 --prompt 'Holmes ' --length 240 --temperature 0.7 --top-p 0.95 --seed 1

say "done: the run is in runs/tiny; README.md says what to try next"
