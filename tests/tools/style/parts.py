# SPDX-License-Identifier: MIT
"""The parts of weft, read from src/parts/parts.cmake."""
import re
from dataclasses import dataclass

from repo_files import read

TABLE = "src/parts/parts.cmake"
WORDS = {"FOLDERS", "REQUIRES", "HOLDS", "C_LIBRARY", "KERNELS",
         "REGISTERS_NOTHING", "NO_GPU_TESTS"}


@dataclass
class Part:
    name: str
    option: str
    folders: list
    requires: list
    no_gpu_tests: bool

    def holds(self, path):
        """Whether `path` lies in a folder of this part, or in that of its tests."""
        return any(self.held_by(folder, path) for folder in self.folders)

    @staticmethod
    def held_by(folder, path):
        return path.startswith((f"{folder}/", f"tests/{folder}/"))


def _list_after(word, words):
    if word not in words:
        return []
    rest = words[words.index(word) + 1:]
    return rest[:next((k for k, other in enumerate(rest) if other in WORDS), len(rest))]


def parts():
    """All parts, in the order of the table."""
    found = []
    text = re.sub(r"#[^\n]*", "", read(TABLE))
    for call in re.finditer(r'^weft_part\((\w+)\s+(\w+)\s+"[^"]*"([^)]*)\)', text, re.M):
        words = call.group(3).split()
        found.append(Part(call.group(1), call.group(2), _list_after("FOLDERS", words),
                          _list_after("REQUIRES", words), "NO_GPU_TESTS" in words))
    return found


def part_of(path, every):
    """The part in whose folders `path` lies, the innermost one, or None: it is in the core."""
    depth = lambda part: max(len(folder) for folder in part.folders if part.held_by(folder, path))
    return max((part for part in every if part.holds(path)), key=depth, default=None)


def needed_by(part, every):
    """The names of what `part` is built with: itself and, transitively, what it requires."""
    names = {part.name}
    for required in (other for other in every if other.name in part.requires):
        names |= needed_by(required, every)
    return names
