# SPDX-License-Identifier: MIT
"""weft::eager, eager.cpp compiled for the PyTorch that is installed: calls that nothing traces then cost the host a fraction.

    python -m weft_attention.extension

needs a C++17 compiler (CXX, or c++) and takes half a minute. The file goes to a cache folder, and later processes load it from
there. Without it the same is done in Python."""
import functools
import hashlib
import os
import subprocess
import tempfile
import warnings

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE, HEADER = os.path.join(HERE, "eager.cpp"), "src/capi/weft_attention.h"
HEADERS = HERE, os.path.join(HERE, "../../..")  # of a wheel, of a clone


def _header_folder():
    for folder in HEADERS:
        if os.path.exists(os.path.join(folder, HEADER)):
            return folder
    raise FileNotFoundError(f"{HEADER} is neither in {HEADERS[0]} nor in {HEADERS[1]}: install the package again")


def path():
    """Where it is, or will be. The name changes with PyTorch and with what it is compiled from."""
    digest = hashlib.sha256(torch.__version__.encode())
    for name in (SOURCE, os.path.join(_header_folder(), HEADER)):
        with open(name, "rb") as file:
            digest.update(file.read())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "weft_attention", f"eager-{digest.hexdigest()[:16]}.so")


def build():
    """Compiles it; returns its path."""
    from torch.utils.cpp_extension import include_paths, library_paths
    made = path()
    os.makedirs(os.path.dirname(made), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(made)) as folder:
        part = os.path.join(folder, "eager.so")
        command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-fPIC", "-shared", SOURCE, "-o", part,
                   f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-I" + _header_folder()]
        command += ["-I" + p for p in include_paths()] + ["-L" + p for p in library_paths()]
        done = subprocess.run(command + ["-ltorch", "-ltorch_cpu", "-lc10"], stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise RuntimeError(f"compiling {SOURCE} failed; weft_attention works without it, in Python:\n{done.stderr[-2000:]}")
        os.replace(part, made)
    operator.cache_clear()
    return made


@functools.lru_cache(maxsize=None)
def operator():
    """weft::eager, or None where it was not built."""
    if not hasattr(torch.ops.weft, "eager"):  # a process registers it once
        try:
            if not os.path.exists(path()):
                return None
            torch.ops.load_library(path())
        except OSError as problem:
            warnings.warn(f"weft_attention works in Python, as its extension cannot be loaded: {problem}")
            return None
    return torch.ops.weft.eager.default


if __name__ == "__main__":
    print(build())
