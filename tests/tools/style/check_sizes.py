#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Functions have at most 60 lines; those of tests and tables of the kernel cases may be longer.
Usage: check_sizes.py [--list] (leaves with 1 on errors); --list prints the ten longest."""
import re
import sys

from repo_files import CXX, blanked, files, finish, read

FUNCTION_LINES = 60
UNLIMITED = ("tests/",)
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum)\b|\bextern\s*$")


def functions(text):
    """(first line, lines) of each function: a block in a namespace or class that is no scope and no initialiser."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), blanked(text), flags=re.M)
    found, scopes, head, start, opened, depth = [], [], 0, 0, 0, 0  # depth: open braces in the block at hand
    for match in re.finditer(r"[{};]", code):
        at, brace = match.start(), match.group()
        if depth:
            depth += {"{": 1, "}": -1, ";": 0}[brace]
            if depth == 0 and "(" in code[start:opened] and code[start:opened].rstrip()[-1:] != "=":
                found.append((code.count("\n", 0, start) + 1, code.count("\n", start, at) + 1))
            if depth == 0:
                head = at + 1
        elif brace == "{":
            before = code[head:at]
            outside = re.sub(r"<[^<>]*>|\([^()]*\)", "", before)  # "class" in a template or parameter list
            if SCOPE.search(outside) and "(" not in outside:
                scopes.append(at)
                head = at + 1
            else:
                start, opened, depth = head + len(before) - len(before.lstrip()), at, 1
        else:
            if brace == "}" and scopes:
                scopes.pop()
            head = at + 1
    return found


def python_functions(text):
    lines, found = text.split("\n"), []
    for number, line in enumerate(lines):
        if match := re.match(r"( *)def ", line):
            body = [k for k in range(number + 1, len(lines)) if lines[k].strip()]
            end = next((k for k in body if len(lines[k]) - len(lines[k].lstrip()) <= len(match.group(1))), len(lines))
            last = max((k for k in body if k < end), default=number)
            found.append((number + 1, last - number + 1))
    return found


def main():
    errors, sizes, count = [], [], 0
    for path in files(*CXX, ".py", ".sh", "CMakeLists.txt"):
        if path.startswith(UNLIMITED):
            continue
        text, count = read(path), count + 1
        of_file = functions(text) if path.endswith(CXX) else python_functions(text) if path.endswith(".py") else []
        sizes += [(lines, f"{path}:{first}") for first, lines in of_file]
    sizes.sort(reverse=True)
    errors += [f"{where}: a function of {lines} lines, at most {FUNCTION_LINES}: split it where a step ends"
               for lines, where in sizes if lines > FUNCTION_LINES]
    if "--list" in sys.argv:
        print("\n".join(f"{lines:5} {where}" for lines, where in sizes[:10]))
    finish(errors, f"sizes: {len(sizes)} functions of {count} files are within the limit")


if __name__ == "__main__":
    main()
