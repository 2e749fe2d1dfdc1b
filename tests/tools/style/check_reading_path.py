#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The reading path stays short. Usage: check_reading_path.py [README] (leaves with 1 on errors)
The section "Reading path" of the root's README names at most 10 files, in backticks or links, which exist and have at most
1,200 lines together. `adamw.{h,cpp,cu}` is three files."""
import os
import re
import sys

from check_names import expanded, spans
from repo_files import ROOT, finish, read

MOST_FILES, MOST_LINES = 10, 1200
SOURCE = re.compile(r"\.(?:h|cpp|cu|cuh|yaml|py)$")


def section(text):
    """The text under the heading "Reading path"; None: there is none."""
    match = re.search(r"^#+ [^\n]*reading path[^\n]*\n(.*?)(?=^#+ |\Z)", text, re.S | re.M | re.I)
    return match and match.group(1)


def paths(text):
    """The source files that a section names, each once, in its order."""
    named = [path for _, span, inline in spans(text) if inline for path in expanded(span)]
    return list(dict.fromkeys(os.path.normpath(path) for path in named if SOURCE.search(path)))


def errors_of(text):
    """(errors, files, lines) of a README's text."""
    path = section(text)
    if path is None:
        return ['README.md: no section "Reading path"'], 0, 0
    files = paths(path)
    missing = [name for name in files if not os.path.isfile(os.path.join(ROOT, name))]
    lines = {name: len(read(name).splitlines()) for name in files if name not in missing}
    errors = [f"README.md: the reading path names {name}, which does not exist" for name in missing]
    if not files:
        errors.append("README.md: the reading path names no source file")
    if len(files) > MOST_FILES:
        errors.append(f"README.md: the reading path has {len(files)} files, at most {MOST_FILES} are wanted")
    if sum(lines.values()) > MOST_LINES:
        longest = ", ".join(f"{name} {lines[name]}" for name in sorted(lines, key=lines.get, reverse=True))
        errors.append(f"README.md: the reading path has {sum(lines.values())} lines, at most {MOST_LINES} are wanted: {longest}")
    return errors, len(files), sum(lines.values())


def main():
    with open(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        errors, files, lines = errors_of(file.read())
    finish(errors, f"reading path: {files} files, {lines} lines")


if __name__ == "__main__":
    main()
