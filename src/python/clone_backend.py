# SPDX-License-Identifier: MIT
"""scikit-build-core, without source archives: the library is built from the whole clone."""
from scikit_build_core.build import *  # noqa: F401,F403


def build_sdist(*_):
    raise SystemExit("a source archive of src/python has no kernels: use `pip wheel ./src/python` in a clone of weft")
