#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# From a clean machine to a trained, evaluated and sampled model: installs packages, builds, makes a small corpus of the
# project's own sources and prose (no network needed), trains configs/tiny.yaml on whatever device there is.
# Usage: bash train/quickstart.sh          under 8 minutes on 2 cores without a GPU
set -euo pipefail
cd "$(dirname "$0")/.."
. train/packages.sh

install_packages
preset=$(preset_here)
say "building with the preset '$preset' ($(nproc) cores)"
configure "$preset"
cmake --build --preset "$preset" --target train evaluate sample inspect prepare bench attention selftest
bin=build/$preset/bin

say "a corpus of this project's own sources and prose"
mkdir -p runs
find README.md kernels src models data configs train tests -type f \
  \( -name '*.md' -o -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.yaml' \) |
  LC_ALL=C sort | xargs cat >runs/tiny.txt
"$bin"/prepare text runs/tiny.txt --out runs/tiny.h5

say "what a layer of the model attends to"
"$bin"/inspect --config tiny.yaml --pattern 0,0 --length 48

say "training configs/tiny.yaml"
rm -rf runs/tiny
"$bin"/train --config tiny.yaml --set data.path=runs/tiny.h5 --out runs/tiny

say "evaluating on the test split"
"$bin"/evaluate --checkpoint runs/tiny/best.h5 --data runs/tiny.h5 --split test

say "sampling"
"$bin"/sample --checkpoint runs/tiny/best.h5 --prompt '// ' --length 120 --temperature 0.8 --seed 1

say "done: the run is in runs/tiny; README.md says what to try next"
