#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Includes point one way, and no folder is crowded. Usage: check_layers.py (leaves with 1 on errors)
1. Between the floors: kernels <- src <- models, data <- train <- tests.
2. Inside them: APART lists what may not include what.
3. The core includes no file of a part, a part only its own and those of parts that it requires.
4. A folder has at most 25 entries."""
import os
import re

from parts import needed_by, part_of, parts
from repo_files import CXX, ROOT, files, finish, line_of, read

MAY_INCLUDE = {
    "kernels": {"kernels"},
    "src": {"kernels", "src"},
    "models": {"kernels", "src", "models"},
    "data": {"kernels", "src", "data"},
    "train": {"kernels", "src", "models", "data", "train"},
    "tests": {"kernels", "src", "models", "data", "train", "tests"},
}
FLOORS = ["kernels/layers", "kernels/optimizer", "kernels/linear", "kernels/attention", "kernels/sampling"]
FORMS = [f"kernels/attention/{form}" for form in ("simple", "ampere", "hopper")]
# What lies in the first folder includes nothing from the others. A trailing "/*" names the files of a folder alone.
APART = {
    "kernels/*": FLOORS,
    "kernels/device": FLOORS,
    "kernels/attention": ["kernels/linear", "kernels/sampling"],
    **{form: [other for other in FORMS if other != form] for form in FORMS},
    "models": ["data"],
    "train/trainer": ["train/bench", "train/sampling"],
    "train/program": ["train/trainer", "train/bench", "train/sampling"],
}
MOST_ENTRIES = 25


def inside(path, folder):
    return os.path.dirname(path) == folder[:-2] if folder.endswith("/*") else path.startswith(folder + "/")


def apart(path, target):
    """The rule that forbids this include, or None."""
    for folder, others in APART.items():
        if inside(path, folder):
            for other in others:
                if inside(target, other) and not inside(path, other):
                    return f"{folder} may not include {other}"
    return None


def names_a_part(path, target, every):
    """What is wrong with this include where `target` is in a part, or None."""
    part, own = part_of(target, every), part_of(path, every)
    if part is None or (own is not None and part.name in needed_by(own, every)):
        return None
    if own is None:
        return f"the core may not name the part {part.name}; see src/parts/parts.h"
    return f"the part {own.name} does not require the part {part.name}"


def crowded(paths):
    entries = {}
    for path in paths:
        parts = path.split("/")
        for k in range(1, len(parts)):
            entries.setdefault("/".join(parts[:k]), set()).add(parts[k])
    return [f"{folder}/: {len(names)} entries; the limit is {MOST_ENTRIES}: move files that belong together into a folder"
            for folder, names in sorted(entries.items()) if len(names) > MOST_ENTRIES], len(entries)


def main():
    errors, count, every = [], 0, parts()
    for path in files(*CXX):
        layer, text = path.split("/")[0], read(path)
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.M):
            count += 1
            where, target = f"{path}:{line_of(text, match.start())}", match.group(1)
            if not os.path.isfile(os.path.join(ROOT, target)):
                errors.append(f'{where}: "{target}" is not a path from the root of the repository')
            elif target.split("/")[0] not in MAY_INCLUDE.get(layer, set()):
                errors.append(f'{where}: {layer}/ may not include "{target}"')
            elif rule := apart(path, target) or names_a_part(path, target, every):
                errors.append(f'{where}: "{target}": {rule}')
    full, folders = crowded(files())
    finish(errors + full, f"layers: {count} includes point the right way; {folders} folders have at most {MOST_ENTRIES} entries")


if __name__ == "__main__":
    main()
