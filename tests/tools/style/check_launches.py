#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every CUDA launch, copy and set is on the queue's stream, and nothing in kernels/ waits.
Usage: check_launches.py (leaves with 1 on errors)"""
import re

from repo_files import blanked, files, finish, line_of, read

STREAM = re.compile(r"\b(?:q|queue)\.stream\Z")
ASYNC = re.compile(r"\bcuda(?:Memcpy|Memset|Malloc|Free)\w*Async\s*\(")
WAITS = re.compile(r"\bcuda(?:Memcpy|Memset|Malloc|Free|DeviceSynchronize|StreamSynchronize|Memcpy2D)\s*\(")
# Files that may wait -> why.
MAY_WAIT = {
    "kernels/queue.cu": "finish() checks each launch at the higher WEFT_DEBUG levels",
    "kernels/memory.cu": "memory and copies, which are no kernels",
}


def arguments(code, opened, closing):
    """The arguments from `opened` to the text `closing`, split at the commas outside brackets."""
    parts, depth, begin, at = [], 0, opened, opened
    while depth or not code.startswith(closing, at):
        if at >= len(code):
            return None
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if code[at] == "," and depth == 0:
            parts.append(code[begin:at].strip())
            begin = at + 1
        at += 1
    return parts + [code[begin:at].strip()]


def main():
    errors, launches = [], 0
    for path in (p for p in files(".cu", ".cuh") if not p.startswith("tests/")):
        code = blanked(read(path))
        for match in re.finditer("<<<", code):
            launches += 1
            configuration = arguments(code, match.end(), ">>>")
            if not configuration or len(configuration) < 4 or not STREAM.search(configuration[3]):
                errors.append(f"{path}:{line_of(code, match.start())}: a launch needs four arguments between <<< and >>>, "
                              f"the last one queue.stream; got {configuration}")
        for match in re.finditer(r"\bcudaLaunchKernel\w*\s*\(", code):
            launches += 1
            body = code[code.rfind("\n}", 0, match.start()) + 1:match.end()]  # the function so far
            if not re.search(r"\.stream\s*=\s*(?:q|queue)\.stream\b", body):
                errors.append(f"{path}:{line_of(code, match.start())}: a launch configuration without '.stream = queue.stream'")
        for match in ASYNC.finditer(code):
            called = arguments(code, match.end(), ")")
            if not called or not STREAM.search(called[-1]):
                errors.append(f"{path}:{line_of(code, match.start())}: the last argument must be queue.stream; got {called}")
        for match in () if path in MAY_WAIT else WAITS.finditer(code):
            errors.append(f"{path}:{line_of(code, match.start())}: kernels neither wait nor allocate: {match.group()}")
    finish(errors, f"launches: {launches} launches are on the queue's stream")


if __name__ == "__main__":
    main()
