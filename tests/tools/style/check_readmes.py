#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""READMEs and the reading path stay short. Usage: check_readmes.py (leaves with 1 on errors)
README.md has at most 150 lines of 100 columns, any other README 180 lines, all together 12,000 words; the files that the list
under `## Reading path` links are at most 10 and have at most 1,200 lines."""
import os
import sys

from repo_files import ROOT, files, finish, read

sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
from house_table import reading_path  # noqa: E402

FRONT_LINES, FRONT_COLUMNS, LINES, WORDS, PATH_FILES, PATH_LINES = 150, 100, 180, 12000, 10, 1200


def main():
    texts = {path: read(path) for path in files(".md") if os.path.basename(path) == "README.md"}
    errors = []

    def limit(where, what, number, most):
        if number > most:
            errors.append(f"{where}: {number} {what}, at most {most} are allowed")

    for path, text in texts.items():
        limit(path, "lines", text.count("\n"), FRONT_LINES if path == "README.md" else LINES)
    for number, line in enumerate(texts["README.md"].split("\n"), 1):
        limit(f"README.md:{number}", "columns", len(line), FRONT_COLUMNS)
    words = sum(len(text.split()) for text in texts.values())
    limit("all READMEs", "words", words, WORDS)
    path = reading_path(texts["README.md"])
    lines = sum(read(name).count("\n") for name in path)
    limit("the reading path", "files", len(path), PATH_FILES)
    limit("the reading path", "lines", lines, PATH_LINES)
    if not path:
        errors.append("README.md: no list under '## Reading path'")
    finish(errors, f"readmes: {len(texts)} READMEs of {words} words, {len(path)} files of {lines} lines on the reading path")


if __name__ == "__main__":
    main()
