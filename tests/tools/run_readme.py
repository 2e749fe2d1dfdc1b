#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the commands of a README: every fenced block whose info string is 'bash ci'. Usage: run_readme.py README.md"""
import re
import subprocess
import sys


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    blocks = re.findall(r"^```bash ci\n(.*?)^```", text, re.S | re.M)
    if not blocks:
        sys.exit(f"{sys.argv[1]}: no block marked 'bash ci'")
    for block in blocks:
        for command in filter(None, (line.split("  #")[0].strip() for line in block.replace("\\\n", " ").splitlines())):
            print(f"\n$ {command}", flush=True)
            result = subprocess.run(["bash", "-euo", "pipefail", "-c", command])
            if result.returncode:
                sys.exit(f"{sys.argv[1]}: '{command}' left with {result.returncode}")


if __name__ == "__main__":
    main()
