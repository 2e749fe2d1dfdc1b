#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""READMEs and the tree agree. Usage: check_names.py (leaves with 1 on errors)
1. A path in backticks or in a link of a README exists, seen from its folder or from the root.
2. Every file is on a map: the README of its folder, or of a folder above, names it: by name
   (`tape.h`), by stem (`tape`, in the README of its own folder), by pattern (`picture*`,
   `tape.{h,cpp}`), or by its folder (`golden/`), when that folder has no README of its own.
3. Under a heading `Helpers of PATH`, the first column of a table names what the code beside that
   file has, or kernels/device/."""
import difflib
import fnmatch
import os
import re

from repo_files import files, finish, line_of, read

EXTENSION = re.compile(r"\.(?:h|cpp|cu|cuh|py|sh|yaml|md|txt|json)$")
# What programs write, and names of files that READMEs tell the reader to write.
MADE = re.compile(r"^(?:build|runs)/|(?:^|/)(?:config\.yaml|(?:options|about)\.txt|gpu_record\.json|\*\.?\w*|"
                  r"(?:foo|stair|gradient_noise)(?:_test)?\.(?:\w+|\{.*\}))$")
UNMAPPED = {".gitignore", ".git-blame-ignore-revs"}


def expanded(word):
    """Alternatives of a word with braces: a.{h,cpp} -> a.h, a.cpp."""
    match = re.search(r"\{([^{}]*)\}", word)
    if not match:
        return [word]
    before, after = word[:match.start()], word[match.end():]
    alternatives = [before + part.strip() + after for part in match.group(1).split(",")]
    return [w for alternative in alternatives for w in expanded(alternative)]


def spans(text):
    """(offset, word, inline): words of inline code and links; fenced blocks have inline False."""
    for block in re.finditer(r"^```[^\n]*\n(.*?)^```", text, re.S | re.M):
        yield from ((block.start(), word, False) for word in block.group(1).split())
    prose = re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group()), text,
                   flags=re.S | re.M)
    for match in re.finditer(r"`([^`\n]+)`|\]\(([^)#\s]+)", prose):
        words = (match.group(1) or match.group(2)).split()
        yield from ((match.start(), word.rstrip(",;:"), len(words) == 1) for word in words)


def is_path(word, folder, folders):
    if not re.fullmatch(r"[\w.*/+-]+", word) or MADE.search(word):
        return False
    if word.startswith(("/", "-", ".", "*.")):
        return False
    first = word.split("/")[0]
    starts = {first, os.path.join(folder, first)}
    return bool(EXTENSION.search(word)) or ("/" in word and starts & folders)


def exists(word, folder, known):
    if "/" not in word:  # a file of this name, anywhere below
        below = (os.path.basename(path) for path in known if path.startswith(folder))
        return any(fnmatch.fnmatch(name, word) for name in below)
    seen_from = {os.path.normpath(os.path.join(folder, word)), os.path.normpath(word)}
    return any(fnmatch.fnmatch(path, name) for path in known for name in seen_from)


def mentions(word, folder, path):
    """Does this word, in the README of `folder`, put `path` on the map?"""
    inside = os.path.relpath(path, folder or ".")
    if any(fnmatch.fnmatch(name, word) for name in (inside, path, os.path.basename(path))):
        return True
    if word.endswith("/"):
        return inside.startswith(word) or path.startswith(word)
    return fnmatch.fnmatch(os.path.splitext(inside)[0], word)


def missing(where, word, known):
    """The error of a path that does not exist, with what to write instead where a name is near."""
    names = {os.path.basename(path): path for path in known}
    near = difflib.get_close_matches(os.path.basename(word.rstrip("/")), names, n=1, cutoff=0.8)
    advice = "correct the path (from the README's folder or the root), or take it out"
    if near:
        advice = f"write `{names[near[0]]}`, if that is meant"
    return f"{where}: `{word}` does not exist: {advice}"


def unmapped(path, readme):
    """The error of a file that no map names, with the heading of the map to put it on."""
    if not readme:
        return f"{path}: on no map: its folder needs a README.md that names it"
    heading = re.search(r"^## (?:Files|Map|The files here)$", read(readme), re.M)
    name = os.path.relpath(path, os.path.dirname(readme))
    where = f"{readme}, under '{heading.group()}'" if heading else readme
    return f"{path}: on no map: add `{name}`, with what it is for, to {where}"


def lost_helpers(readme, text, every):
    """Errors of names that a section `Helpers of PATH` explains and its code does not have."""
    for section in re.finditer(r"^## Helpers of (\S+)\n(.*?)(?=^## |\Z)", text, re.S | re.M):
        file = next((path for path in every if path.endswith("/" + section.group(1))), None)
        if not file:
            yield f"{readme}: '## Helpers of {section.group(1)}': there is no such file: rename it"
            continue
        folders = (os.path.dirname(file) + "/", "kernels/device/")
        code = "\n".join(read(path) for path in every if path.startswith(folders))
        for row in re.finditer(r"^\| (`[^|]*) \|", section.group(2), re.M):
            for name in re.findall(r"`(\w+)", row.group(1)):
                if not re.search(rf"\b{name}\b", code):
                    where = line_of(text, section.start(2) + row.start())
                    yield f"{readme}:{where}: `{name}` is not in {folders[0]}: write its new name"


def main():
    every = files()
    folders = {path[:k] for path in every for k in range(len(path)) if path[k] == "/"} | {"."}
    known = set(every) | folders
    errors, words_of = [], {}
    for readme in (path for path in every if os.path.basename(path) == "README.md"):
        folder, text = os.path.dirname(readme), read(readme)
        words_of[folder] = set()
        for offset, span, inline in spans(text):
            for word in expanded(span):
                words_of[folder].add(word)
                if inline and is_path(word, folder, folders) and not exists(word, folder, known):
                    errors.append(missing(f"{readme}:{line_of(text, offset)}", word, known))
        errors += lost_helpers(readme, text, every)
    mapped_folders = {folder for folder in words_of if folder}
    for path in every:
        if os.path.basename(path) == "README.md" or path in UNMAPPED:
            continue
        above = [f for f in words_of if f == "" or path.startswith(f + "/")]
        nearest = max(above, key=len, default=None)
        of_nearest = words_of.get(nearest, set())
        higher = {w for f in above if f != nearest for w in words_of[f] if not w.endswith("/")}
        if not any(mentions(w, nearest, path) for w in of_nearest) and \
           not any(mentions(w, "", path) for w in higher if "." in w):
            readme = None if nearest is None else os.path.join(nearest, "README.md")
            errors.append(unmapped(path, readme))
    finish(errors, f"names: {len(words_of)} READMEs and {len(every)} files agree "
                   f"({len(mapped_folders)} folders have a README)")


if __name__ == "__main__":
    main()
