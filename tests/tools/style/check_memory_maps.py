#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory map of the Hopper kernels' README has the sizes that the compiler checks: each of its rows is a
static_assert(sizeof(...)) beside the struct, and each of these is a row.
Usage: check_memory_maps.py (leaves with 1 on errors)"""
import re

from repo_files import files, finish, read

FOLDER = "kernels/attention/hopper/"
README = FOLDER + "README.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([\d,]+) \|", re.MULTILINE)
ASSERT = re.compile(r"static_assert\(sizeof\(((?:[^()]|\n)+)\) ==\s+([\d']+)\)")


def main():
    section = read(README).partition("\n## Memory maps\n")[2].partition("\n## ")[0]
    told = {name: int(size.replace(",", "")) for name, size in ROW.findall(section)}
    checked = {}
    for path in files(".cu", ".cuh"):
        if path.startswith(FOLDER):
            for name, size in ASSERT.findall(read(path)):
                checked[re.sub(r"\s+", " ", name)] = int(size.replace("'", ""))
    errors = [f"{README}: the row `{name}` says {told.get(name)} bytes, its static_assert {checked.get(name)}; "
              "both must be there and agree"
              for name in sorted(told.keys() | checked.keys()) if told.get(name) != checked.get(name)]
    if not checked:
        errors.append(f"{FOLDER}: no static_assert(sizeof(...) == ...); expected one for each storage")
    finish(errors, f"memory maps: {len(checked)} storages have the sizes that {README} tells")


if __name__ == "__main__":
    main()
