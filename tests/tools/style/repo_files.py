# SPDX-License-Identifier: MIT
"""What the checks beside this file share: the files of the repository, C++ text without comments, and reporting."""
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
CXX = (".h", ".cpp", ".cu", ".cuh")


def files(*suffixes):
    """Paths from the root, tracked or new and not ignored, that exist and have one of the suffixes (none: all)."""
    command = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    names = sorted({name for name in listed if name and os.path.isfile(os.path.join(ROOT, name))})
    return [name for name in names if not suffixes or name.endswith(suffixes)]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.[^']*|[^\\'])'",
    re.S)


def blanked(text):
    """C++ text with comments, strings and characters replaced by spaces; lines keep their numbers."""
    return _NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def finish(errors, what):
    """Prints the errors, or what was found to be right, and leaves."""
    for error in errors:
        print(error)
    if errors:
        sys.exit(1)
    print(what)
