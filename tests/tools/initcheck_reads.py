#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sums up a log of compute-sanitizer --tool initcheck: for each kernel, size of access and allocation how many reads were
reported, and the bytes of the allocation from the first to the last. Usage: initcheck_reads.py LOG"""
import collections
import re
import sys


def main():
    reads = collections.defaultdict(lambda: [0, None, None])
    report = []

    def finish():
        text = " ".join(report).replace("(anonymous namespace)::", "")
        if not text.startswith("Uninitialized"):
            return
        kernel = re.search(r"\bat (?:0x[0-9a-f]+ in )?(.*?)(?:\+0x[0-9a-f]+)?(?: in \S+:\d+)? by thread", text)
        access = re.search(r"(?:Address|Access (?:at|to)) (0x[0-9a-f]+)", text)
        block = re.search(r"allocation at (?:address )?(0x[0-9a-f]+) of size ([\d,]+)", text)
        name = re.sub(r"\(.*|<.*", "", kernel.group(1)) if kernel else text[:100]
        size = re.search(r"of size (\d+)", text)
        entry = reads[name, size.group(1) if size else "?", block.group(2) if block else "?"]
        entry[0] += 1
        if access:
            at = int(access.group(1), 16) - (int(block.group(1), 16) if block else 0)
            entry[1] = at if entry[1] is None else min(entry[1], at)
            entry[2] = at if entry[2] is None else max(entry[2], at)

    for line in open(sys.argv[1], errors="replace"):
        if not line.startswith("========="):
            continue
        line = line[9:]
        if not line.startswith("     "):
            finish()
            report = []
        report.append(line.strip())
    finish()
    for (name, size, block), (count, first, last) in sorted(reads.items(), key=lambda item: -item[1][0]):
        where = "" if first is None else f", bytes {first:#x} to {last:#x}"
        print(f"  {count:7} reads of {size} bytes by {name}, allocation of {block} bytes{where}")
    print(f"  {sum(entry[0] for entry in reads.values())} reads in all")


if __name__ == "__main__":
    main()
