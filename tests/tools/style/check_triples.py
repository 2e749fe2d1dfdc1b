#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every kernel struct of a header foo.h below kernels/ has a CPU form in foo*.cpp and a CUDA form in foo*.cu beside it.
Usage: check_triples.py (leaves with 1 on errors)"""
import re

from repo_files import blanked, files, finish, read

# Kernel struct -> why it has no CUDA form.
CPU_ONLY = {}


def definitions(sources, queue, kernel):
    """Definitions of run(queue, kernel), not declarations, in the files named."""
    pattern = re.compile(rf"\brun\s*\(\s*{queue}\s*&\s*\w*\s*,\s*const\s+{kernel}\s*&\s*\w*\s*\)\s*\{{")
    return [path for path in sources if pattern.search(blanked(read(path)))]


def main():
    errors, kernels = [], 0
    everything = files(".h", ".cpp", ".cu")
    for header in (path for path in everything if re.fullmatch(r"kernels/(\w+/)*\w+\.h", path)):
        bodies = re.findall(r"^struct (\w+) \{(.*?)^\};", read(header), re.S | re.M)
        structs = [name for name, body in bodies if re.search(r"\bkName\b", body)]
        stem = header[:-2]
        for kernel in structs:
            kernels += 1
            for queue, suffix in (("CpuQueue", ".cpp"), ("CudaQueue", ".cu")):
                if queue == "CudaQueue" and kernel in CPU_ONLY:
                    continue
                if stem + suffix not in everything:
                    errors.append(f"{header}: {kernel} needs {stem}{suffix}")
                    continue
                sources = [path for path in everything if re.fullmatch(re.escape(stem) + r"\w*" + re.escape(suffix), path)]
                found = definitions(sources, queue, kernel)
                if len(found) != 1:
                    errors.append(f"{header}: run({queue}&, const {kernel}&) is defined in {found or 'no ' + stem + '*' + suffix}")
    finish(errors, f"triples: {kernels} kernels have both forms")


if __name__ == "__main__":
    main()
