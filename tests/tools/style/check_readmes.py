#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The front page and its reading path stay short. Usage: check_readmes.py (leaves with 1 on errors)
1. README.md has at most 180 lines of at most 100 columns. No other README has a limit, and text
   that programs write (between `<!-- ...: generated -->` and `<!-- end -->`) counts under none.
2. The list under `## Reading path` has at most 10 stops. A stop links the files to read, and says
   in one sentence what the reader can explain afterwards.
3. train/README.md has a line that installs the packages of .ci/packages.sh."""
import os
import re

from repo_files import files, finish, line_of, read

FRONT, LINES, COLUMNS, STOPS = "README.md", 180, 100, 10
GENERATED = re.compile(r"^<!-- [\w ]+: generated -->\n.*?^<!-- end -->\n", re.S | re.M)
LINK = re.compile(r"\]\(([\w./]+)\)")


def without_generated(text):
    """The text with generated lines left empty: other lines keep their numbers."""
    return GENERATED.sub(lambda match: re.sub(r"[^\n]", "", match.group()), text)


def stops(text):
    """(offset, item) of each item of the numbered list under `## Reading path`."""
    section = re.search(r"^## Reading path\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    if not section:
        return []
    items = re.finditer(r"^\d+\. .*?(?=^\d+\. |^\n|\Z)", section.group(1), re.S | re.M)
    return [(section.start(1) + item.start(), item.group()) for item in items]


def check_front_page(text):
    own = without_generated(text)
    lines = text.count("\n") - sum(match.group().count("\n") for match in GENERATED.finditer(text))
    if lines > LINES:
        yield (f"{FRONT}: {lines} lines, {LINES} are allowed: move what a newcomer does not need "
               "to the README of its folder, and link it")
    for number, line in enumerate(own.split("\n"), 1):
        if len(line) > COLUMNS:
            yield f"{FRONT}:{number}: {len(line)} columns, {COLUMNS} are allowed: break the line"


def check_reading_path(text):
    found = stops(text)
    if not found:
        yield (f"{FRONT}: no reading path: add a numbered list under '## Reading path', each item "
               "a link to a file and a sentence")
    if len(found) > STOPS:
        yield f"{FRONT}: {len(found)} stops on the reading path, {STOPS} are allowed: take one out"
    for offset, item in found:
        where = f"{FRONT}:{line_of(text, offset)}"
        if not LINK.search(item):
            yield f"{where}: this stop links no file: write [name](path/of/name)"
        if len(re.sub(r"\[.*?\]\(.*?\)", "", item).split()) < 6:
            yield f"{where}: this stop has no sentence: say what the reader can explain afterwards"


def check_packages():
    """The line that installs what a build needs has the packages of .ci/packages.sh."""
    named = re.search(r"^    apt-get install ((?:.*\\\n)*.*)", read("train/README.md"), re.M)
    needed = re.search(r"^packages=\(([^)]*)\)", read(".ci/packages.sh"), re.M).group(1).split()
    if not named or named.group(1).replace("\\\n", " ").split() != needed:
        yield f"train/README.md: the line 'apt-get install' must name {' '.join(needed)}, as .ci/packages.sh"


def main():
    text = read(FRONT)
    readmes = [path for path in files(".md") if os.path.basename(path) == FRONT]
    errors = [*check_front_page(text), *check_reading_path(text), *check_packages()]
    finish(errors, f"readmes: {len(readmes)} READMEs, {len(stops(text))} stops on the reading path")


if __name__ == "__main__":
    main()
