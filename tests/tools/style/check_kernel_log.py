#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The log of a CUDA build with -Xptxas=-v: no Hopper kernel spills registers, and the compiler serialises no wgmma. Usage: check_kernel_log.py LOG (leaves with 1 on errors)"""
import re
import sys

from repo_files import finish

COMPILING = re.compile(r"Compiling entry function '(\S+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
# C7508: setmaxnreg is ignored. C7510, C7512 and their kin: wgmma instructions are serialised.
REFUSED = re.compile(r"\((C7508|C751\d)\)")
HOPPER = re.compile(r"9attention6hopper|17linear_activation|11linear_rows")  # mangled namespaces


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    errors, kernels, current = [], 0, ""
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for number, line in enumerate(log, 1):
            if REFUSED.search(line):
                errors.append(f"{sys.argv[1]}:{number}: {line.strip()}")
            if found := COMPILING.search(line):
                current = found.group(1)
                kernels += bool(HOPPER.search(current))
            if (found := SPILLS.search(line)) and HOPPER.search(current):
                if any(int(size) for size in found.groups()):
                    errors.append(f"{sys.argv[1]}:{number}: {current}: {found.group(0)}; there must be none")
                current = ""
    if not kernels:
        errors.append(f"{sys.argv[1]}: no Hopper kernel in it; build from nothing with -DCMAKE_CUDA_FLAGS=-Xptxas=-v and "
                      "the target 90a-real")
    finish(errors, f"kernel log: {kernels} Hopper kernels, nothing spilled, nothing serialised")


if __name__ == "__main__":
    main()
