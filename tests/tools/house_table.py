#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sizes of the repository as a Markdown table: lines and entries of each folder, words of each README, and the lines of the
reading path in README.md. Usage: house_table.py [REVISION...] (HEAD); one column a revision."""
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
CODE = (".h", ".cpp", ".cu", ".cuh", ".py", ".sh")


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, check=True).stdout


def texts_of(revision):
    """{path: bytes} of every file of a revision."""
    paths = git("ls-tree", "-r", "-z", "--name-only", revision).decode().split("\0")[:-1]
    names = "".join(f"{revision}:{path}\n" for path in paths)
    batch = subprocess.run(["git", "-C", ROOT, "cat-file", "--batch"], input=names.encode(), capture_output=True, check=True).stdout
    texts, at = {}, 0
    for path in paths:
        end = batch.index(b"\n", at)
        size = int(batch[at:end].split()[-1])
        texts[path] = batch[end + 1:end + 1 + size]
        at = end + size + 2
    return texts


def reading_path(readme):
    """Files of the section `## Reading path`: those that its list links. Older READMEs have a paragraph that quotes them."""
    section = re.search(r"^## Reading path\n(.*?)(?=^## |\Z)", readme, re.S | re.M)
    if section:
        return re.findall(r"^(?:\d+\.|[-*]) .*?\]\(([\w./]+)\)", section.group(1), re.M)
    paragraph = re.search(r"^\*\*A reading path\*\*.*?(?=\n\n)", readme, re.S | re.M)
    return re.findall(r"`([\w./]+)`", paragraph.group()) if paragraph else []


def entries_of(paths):
    """{folder: names of files and folders in it}"""
    entries = {}
    for path in paths:
        parts = path.split("/")
        for depth in range(len(parts)):
            entries.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    return {folder: len(names) for folder, names in entries.items()}


def rows_of(revision):
    """{(group, row): text}, in the order of the table."""
    texts = texts_of(revision)
    lines = {path: text.count(b"\n") for path, text in texts.items()}
    words = {path: len(text.split()) for path, text in texts.items() if os.path.basename(path) == "README.md"}
    code = [path for path in texts if path.endswith(CODE)]
    entries = entries_of(texts)
    rows = {("lines", "code without tests"): sum(lines[p] for p in code if not p.startswith("tests/"))}
    for top in ("kernels", "src", "models", "data", "train", "tests"):
        rows["lines", f"{top}/"] = sum(lines[p] for p in code if p.startswith(top + "/"))
    for top in ("kernels", "src", "models", "data", "train", "configs", "tests"):
        inside = {n: f for f, n in entries.items() if f == top or f.startswith(top + "/")}
        rows["most entries", f"{top}/"] = f"{max(inside)} (`{inside[max(inside)]}/`)"
    rows["words", "all READMEs"] = sum(words.values())
    for path in sorted(words, key=lambda p: (p.count("/"), p)):
        rows["words", f"`{path}`"] = words[path]
    path = reading_path(texts["README.md"].decode())
    rows["reading path", "files"] = len(path)
    rows["reading path", "lines"] = sum(lines.get(p, 0) for p in path)
    rows["reading path", "lines of `README.md`"] = lines["README.md"]
    return rows


def main():
    revisions = sys.argv[1:] or ["HEAD"]
    columns = [rows_of(revision) for revision in revisions]
    number = lambda value: f"{value:,}" if isinstance(value, int) else value
    print(f"| | | {' | '.join(revisions)} |\n|---|---|{'---|' * len(revisions)}")
    for key in dict.fromkeys(key for column in columns for key in column):
        print(f"| {key[0]} | {key[1]} | {' | '.join(number(column.get(key, '')) for column in columns)} |")


if __name__ == "__main__":
    main()
