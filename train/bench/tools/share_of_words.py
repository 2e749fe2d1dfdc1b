#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The share of the words of a text that are in Debian's wamerican. Usage: sample ... | share_of_words.py [LIST]

Words are cut at spaces and dashes; case, and punctuation at their ends, do not count."""
import re
import sys


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/dict/american-english"
    known = {line.strip().lower() for line in open(path, encoding="utf-8")}
    parts = re.split(r"[\s—-]+", sys.stdin.buffer.read().decode("utf-8", "replace"))
    words = [w for part in parts if (w := re.sub(r"^\W+|\W+$", "", part).lower())]
    unknown = [w for w in words if w not in known]
    print(f"{1 - len(unknown) / len(words):.1%} of {len(words)} words are known; not these: {' '.join(unknown)}")


if __name__ == "__main__":
    main()
