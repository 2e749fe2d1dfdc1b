#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# From a clean machine to a trained, evaluated and sampled model: installs packages, builds the programs and trains
# configs/tiny.yaml on data/doyle.txt, on the GPU if there is one. README.md shows what it prints.
# It changes no run that is there: a second start writes runs/tiny_2, and so on.
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
build "$preset" daily
bin=build/$preset/bin

mkdir -p runs
run=$(free_run runs/tiny)
if [ "$run" != runs/tiny ]; then say "runs/tiny stays as it is: this run goes to $run"; fi
say "preparing $corpus"
"$bin"/prepare text "$corpus" --out "$run.h5"

say "drawing what a layer of the model attends to"
"$bin"/inspect --config tiny.yaml --pattern 0,0 --length 48

say "training configs/tiny.yaml"
"$bin"/train --config tiny.yaml --set data.path="$run.h5" --out "$run"

say "evaluating on the test split"
"$bin"/evaluate --checkpoint "$run/best.h5" --data "$run.h5" --split test

say "sampling what follows 'Holmes ': temperature 0.7, top-p 0.95, seed 1"
"$bin"/sample --checkpoint "$run/best.h5" --prompt 'Holmes ' --length 240 --temperature 0.7 --top-p 0.95 --seed 1

config=tiny.yaml
if [ "$preset" = cuda ]; then config=text_1min.yaml; fi
say "done in $(minutes $SECONDS): the run is in $run"
cat <<END
open $run/report.html in a browser: curves, samples, and what a position sees
type next:
  export PATH=\$PWD/$bin:\$PATH
  sample --checkpoint $run/best.h5 --prompt 'It was ' --length 500
  prepare text my_corpus.txt --out my.h5                                # any text of yours
  train --config $config --set data.path=my.h5 --out runs/my
README.md, "Train your own", goes on from there
END
