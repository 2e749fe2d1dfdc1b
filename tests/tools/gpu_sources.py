#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the files that the GPU tests are built from, one a line.
These are the build file, the code of kernels/, src/, models/, data/, train/ and tests/cases/, the
files of tests/ with suites named Cuda*, and copy_band*, which one of them runs. Files of a part
marked NO_GPU_TESTS (src/parts/parts.cmake) count only when one of the others includes them.
What counts as included: a header, and the source beside it.
Usage: gpu_sources.py"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools/style"))
from parts import part_of, parts  # noqa: E402

CODE = {".h", ".c", ".cpp", ".cu", ".cuh"}
FOLDERS = ("kernels", "src", "models", "data", "train", "tests/cases")
SUITE = re.compile(r"^(?:TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P)\(Cuda", re.M)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def sources(folder):
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in CODE)


def with_included(paths):
    """These files, and all that they include, directly or not."""
    wanted, found = list(paths), set()
    while wanted:
        path = wanted.pop()
        if path in found:
            continue
        found.add(path)
        for name in INCLUDE.findall(path.read_text()):
            header = ROOT / name
            wanted += [other for other in (header, *map(header.with_suffix, (".cpp", ".c", ".cu")))
                       if other.is_file()]
    return found


def main():
    every = parts()

    def is_tested(path):
        part = part_of(path.relative_to(ROOT).as_posix(), every)
        return part is None or not part.no_gpu_tests

    code = [path for folder in FOLDERS for path in sources(folder) if is_tested(path)]
    tests = [path for path in sources("tests") if SUITE.search(path.read_text())]
    for path in (path for folder in (*FOLDERS, "tests") for path in sources(folder)):
        part = part_of(path.relative_to(ROOT).as_posix(), every)
        if part and part.no_gpu_tests and (path.suffix in (".cu", ".cuh") or path in tests):
            sys.exit(f"{path.relative_to(ROOT)}: the part {part.name} is marked NO_GPU_TESTS in "
                     "src/parts/parts.cmake, but this file runs on a GPU")
    copied = (ROOT / "tests/tools").glob("copy_band*")
    for path in sorted(with_included([*code, *tests, *copied])):
        print(path.relative_to(ROOT))
    print("CMakeLists.txt")


if __name__ == "__main__":
    main()
