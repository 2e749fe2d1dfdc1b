#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Includes point one way: kernels <- src <- models, data <- train <- tests. Usage: check_layers.py (leaves with 1 on errors)"""
import os
import re

from repo_files import CXX, ROOT, files, finish, line_of, read

MAY_INCLUDE = {
    "kernels": {"kernels"},
    "src": {"kernels", "src"},
    "models": {"kernels", "src", "models"},
    "data": {"kernels", "src", "data"},
    "train": {"kernels", "src", "models", "data", "train"},
    "tests": {"kernels", "src", "models", "data", "train", "tests"},
}


def main():
    errors, count = [], 0
    for path in files(*CXX):
        layer, text = path.split("/")[0], read(path)
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.M):
            count += 1
            where, target = f"{path}:{line_of(text, match.start())}", match.group(1)
            if not os.path.isfile(os.path.join(ROOT, target)):
                errors.append(f'{where}: "{target}" is not a path from the root of the repository')
            elif target.split("/")[0] not in MAY_INCLUDE.get(layer, set()):
                errors.append(f'{where}: {layer}/ may not include "{target}"')
    finish(errors, f"layers: {count} includes point the right way")


if __name__ == "__main__":
    main()
