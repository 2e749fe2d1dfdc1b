#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Copies band/forward out of weft: kernels/attention/hopper/band/forward.cuh, with what it includes,
must be few files that plain nvcc compiles, and agree with kernels/attention/definition.h.
Usage: copy_band.py [--run] [FOLDER]
--run: also runs the program, on a Hopper GPU. FOLDER: where the copy stays; else it is deleted."""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[4]
KERNEL = "kernels/attention/hopper/band/forward.cuh"
DEFINITION = "kernels/attention/definition.h"
MAIN = "tests/kernels/attention/hopper/copy_band_main.cu"
MOST_FILES = 17


def closure(file, found):
    """Adds `file`, and what it includes of weft, to `found`."""
    if file in found:
        return
    found.append(file)
    for included in re.findall(r'^#include "([^"]+)"', (ROOT / file).read_text(), re.MULTILINE):
        closure(included, found)


def find_nvcc():
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not pathlib.Path(nvcc).exists():
        sys.exit("copy_band.py: no nvcc, neither in PATH nor in /usr/local/cuda/bin")
    return nvcc


def copy_out(folder, run):
    files = []
    closure(KERNEL, files)
    if len(files) > MOST_FILES:
        sys.exit(f"copy_band.py: {KERNEL} includes {len(files)} files, at most {MOST_FILES} are "
                 f"wanted:\n  " + "\n  ".join(files))
    for file in [*files, DEFINITION]:
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target)
    shutil.copy(ROOT / MAIN, folder / "main.cu")
    lines = sum(len((ROOT / file).read_text().splitlines()) for file in files)
    command = [find_nvcc(), "-std=c++20", "-arch=sm_90a", "-I.", "main.cu", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    print(f"band/forward: {len(files)} files, {lines} lines, compiled outside of the repository")
    if run:
        subprocess.run(["./main"], cwd=folder, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    options = parser.parse_args()
    try:
        if options.folder:
            options.folder.mkdir(parents=True, exist_ok=True)
            copy_out(options.folder, options.run)
            return
        with tempfile.TemporaryDirectory() as folder:
            copy_out(pathlib.Path(folder), options.run)
    except subprocess.CalledProcessError as failed:
        sys.exit(f"copy_band.py: {failed.cmd[0]} failed")


if __name__ == "__main__":
    main()
