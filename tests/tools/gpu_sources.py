#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the files that the GPU tests are built from, one a line: the build file, the code of kernels/, src/, models/, data/,
train/ and tests/cases/, and of tests/ the files with suites named Cuda*, what those include, the sources beside an
included header, and copy_band*, which one of them runs.
Usage: gpu_sources.py"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = {".h", ".c", ".cpp", ".cu", ".cuh"}
SUITE = re.compile(r"^(?:TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P)\(Cuda", re.M)
INCLUDE = re.compile(r'^#include "(tests/[^"]+)"', re.M)


def sources(folder):
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in CODE)


def gpu_tests():
    """Files of tests/ that a suite named Cuda* is built from."""
    wanted = [path for path in sources("tests") if SUITE.search(path.read_text())]
    found = set()
    while wanted:
        path = wanted.pop()
        if path in found:
            continue
        found.add(path)
        for name in INCLUDE.findall(path.read_text()):
            header = ROOT / name
            wanted += [other for other in (header, header.with_suffix(".cpp"), header.with_suffix(".c")) if other.is_file()]
    return sorted(found)


def main():
    code = [path for folder in ("kernels", "src", "models", "data", "train", "tests/cases") for path in sources(folder)]
    copied = sorted((ROOT / "tests/tools").glob("copy_band*"))
    for path in dict.fromkeys([ROOT / "CMakeLists.txt", *code, *gpu_tests(), *copied]):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
