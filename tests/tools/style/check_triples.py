#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every kernel struct of a header foo.h below kernels/ has a CPU form in foo*.cpp and a CUDA form in foo*.cu beside it; both
read each of its fields, and a case sets it. Usage: check_triples.py (leaves with 1 on errors)

Code reads a field where a function with a parameter of the kernel's type (or of a type that its template leaves open) says
parameter.field, or a class with such a member says member_.field. check() and its kin do not count: a shape that is looked
at is not yet used. A case of tests/cases/ sets a field by k.field = ..., or in Kernel{...}."""
import functools
import os
import re

from repo_files import ROOT, blanked, files, finish, read

# Kernel.field -> why the CPU form does not read it.
NOT_READ_ON_CPU = {
    "AttentionForward.form": "chooses between CUDA kernels",
    "AttentionBackward.form": "chooses between CUDA kernels",
    "AttentionBackward.scratch": "memory that a faster CUDA kernel takes",
    "AttentionDecode.longest": "chooses between CUDA kernels",
    "DecodeBlocks.prepared": "weights as a CUDA kernel reads them",
    "LinearActivationForward.form": "chooses between CUDA kernels",
    "LinearActivationBackward.form": "chooses between CUDA kernels",
    "NewtonSchulz.other": "memory that CUDA computes in",
    "NewtonSchulz.squares": "memory that CUDA computes in",
}
# Kernel.field -> why the CUDA form does not read it.
NOT_READ_ON_CUDA = {}
# Kernel.field -> why no case sets it.
NOT_SET_BY_CASES = {
    "DecodeBlocks.prepared": "the tests of the kernel that reads it set it",
}


def closing(code, opened, depth=0):
    """Where the bracket at `opened` is closed; with depth 1, the one around that place."""
    for found in re.compile(r"[({[\]})]").finditer(code, opened):
        depth += 1 if found.group() in "({[" else -1
        if depth == 0:
            return found.start()
    return len(code)


def split(code, separator):
    """`code` cut at the separators outside brackets."""
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(code):
        depth += (char in "({[") - (char in ")}]")
        if char == separator and depth == 0:
            parts.append(code[begin:at].strip())
            begin = at + 1
    return parts + [code[begin:].strip()]


def fields_of(body):
    """The data members that the body of a struct declares, in order."""
    body = re.sub(r"<[\w:\s*]*>", "", body)
    while function := re.search(r"\)\s*(?:const)?\s*\{", body):
        opened = function.end() - 1
        body = body[:function.start()] + ");" + body[closing(body, opened) + 1:]
    names = []
    for statement in split(body, ";"):
        declared = [re.split(r"[={\[]", part)[0].strip() for part in split(statement, ",")]
        if declared[0] and "(" not in declared[0] and not re.match(r"(static|using|friend|template)\b", statement):
            names += [re.search(r"\w+$", name).group() for name in declared]
    return names


def kernels():
    """(header, name, fields) of every kernel struct."""
    for header in files(".h"):
        if header.startswith("kernels/"):
            for found in re.finditer(r"^struct (\w+) (?=\{)", code_of(header), re.M):
                body = code_of(header)[found.end() + 1:closing(code_of(header), found.end())]
                if re.search(r"\bkName\b", body):
                    yield header, found.group(1), fields_of(body)


@functools.cache
def code_of(path):
    return blanked(read(path))


def included(path, seen):
    """`path` and the headers of kernels/ that it includes, directly or not."""
    if path not in seen and os.path.isfile(os.path.join(ROOT, path)):
        seen.add(path)
        for name in re.findall(r'^#include "(kernels/[^"]+)"', read(path), re.M):
            included(name, seen)
    return seen


@functools.cache
def kernel_names():
    return {kernel for _, kernel, _ in kernels()}


@functools.cache
def variables(path):
    """(type, whether a template leaves it open, name, code in which it is one) of parameters, members and locals that are or
    might be kernels."""
    code, found = code_of(path), []
    for match in re.finditer(r"(\bconst\s+)?(?:\b__grid_constant__\s+)?\b(\w+)\s*&?\s*\b(\w+)\s*([,);{])", code):
        const, kind, name, end = match.groups()
        is_open = kind == "auto" or bool(re.search(rf"\b(?:class|typename)\s+{kind}\b", code))
        if not is_open and kind not in kernel_names():
            continue
        if end in ";{":
            is_member = name.endswith("_")
            if is_member or not const:
                found.append((kind, False, name, code if is_member else code[match.start():closing(code, match.start(), 1)]))
            continue
        opened, depth = match.start(), 0
        while opened > 0 and depth < 1:  # back to the bracket of the list of parameters
            opened -= 1
            depth += (code[opened] == "(") - (code[opened] == ")")
        last = closing(code, opened)
        body = code.find("{", last)
        function = re.search(r"(\w+)\s*$", code[:opened][-80:])
        if body < 0 or ";" in code[last:body] or function and re.match("check|expect", function.group(1)):
            continue
        head = code[max(code.rfind(end, 0, opened) for end in ";}#"):opened]
        is_open = kind == "auto" or bool(re.search(rf"\b(?:class|typename)\s+{kind}\b", head))
        found.append((kind, is_open, name, code[opened:closing(code, body)]))
    return found


def uses(path, kernel):
    return [(name, code) for kind, is_open, name, code in variables(path) if kind == kernel or is_open]


def fields_read(paths, kernel):
    """Names that the code of these files reads of variables of the kernel's type."""
    return {field for path in paths for name, body in uses(path, kernel)
            for field in re.findall(rf"\b{name}\s*\.\s*(\w+)", body)}


def fields_set(paths, kernel, fields):
    """Those of the fields that cases set."""
    found = set()
    for path in paths:
        code = code_of(path)
        for name, body in uses(path, kernel):
            found |= {field for field in fields
                      if re.search(rf"\b{name}\.{field}\s*(?:=[^=]|\[|\.\w+\s*=[^=]|\.push_back)", body)}
        for match in re.finditer(rf"\b{kernel}\s*\w*\s*(?=\{{)", code):
            values = [value for value in split(code[match.end() + 1:closing(code, match.end())], ",") if value]
            named = [re.match(r"\.(\w+)\s*=", value) for value in values]
            found |= set(fields[:len(values)]) if not any(named) else {name.group(1) for name in named if name}
    return found


def definitions(sources, queue, kernel):
    """Those of the files named that define compute(queue, kernel)."""
    pattern = re.compile(rf"\bcompute\s*\(\s*{queue}\s*&\s*\w*\s*,\s*const\s+{kernel}\s*&\s*\w*\s*\)\s*\{{")
    return [path for path in sources if pattern.search(code_of(path))]


def main():
    errors, count, count_fields = [], 0, 0
    everything = files(".h", ".cpp", ".cu", ".cuh")
    cases = [path for path in everything if path.startswith("tests/cases/")]
    cuda = [path for path in everything if path.startswith("kernels/") and path.endswith((".cu", ".cuh"))]
    excused = {**NOT_READ_ON_CPU, **NOT_READ_ON_CUDA, **NOT_SET_BY_CASES}
    for header, kernel, fields in kernels():
        count, count_fields, stem = count + 1, count_fields + len(fields), header[:-2]
        is_set, cpu_form = fields_set(cases, kernel, fields), None
        errors += [f"{header}: no case in tests/cases/ sets {kernel}::{field}" for field in fields
                   if field not in is_set and f"{kernel}.{field}" not in NOT_SET_BY_CASES]
        for queue, suffix, excuses in (("CpuQueue", ".cpp", NOT_READ_ON_CPU), ("CudaQueue", ".cu", NOT_READ_ON_CUDA)):
            sources = [path for path in everything if re.fullmatch(re.escape(stem) + r"\w*" + re.escape(suffix), path)]
            found = definitions(sources, queue, kernel)
            if len(found) != 1 or stem + suffix not in everything:
                errors.append(f"{header}: compute({queue}&, const {kernel}&) must be in one file {stem}*{suffix} beside a "
                              f"{stem}{suffix}; found {found or 'none'}")
                continue
            paths = included(found[0], set()) - {header}
            if queue == "CpuQueue":
                cpu_form = found[0]
            else:  # the device's code, and host code that chooses between kernels
                paths |= {*cuda, *(path[:-2] + ".cpp" for path in paths if path[:-2] + ".cpp" in everything)} - {cpu_form}
            is_read = fields_read(paths, kernel)
            errors += [f"{header}: the {suffix} form of {kernel} does not read {field}" for field in fields
                       if field not in is_read and f"{kernel}.{field}" not in excuses]
        excused = {name: why for name, why in excused.items() if name not in {f"{kernel}.{field}" for field in fields}}
    errors += [f"check_triples.py excuses {name}, which no kernel has" for name in excused]
    finish(errors, f"triples: {count} kernels have both forms; both read their {count_fields} fields, and cases set them")


if __name__ == "__main__":
    main()
