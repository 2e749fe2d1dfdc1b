# SPDX-License-Identifier: MIT
"""Sparse attention for PyTorch. Patterns need numpy alone; attention() and Attention need PyTorch 2.6 or later."""
import importlib.util

from .patterns import (Cost, Pattern, all, bigbird, block, by_head, by_layout, convolution, fixed, local, longformer,
                       merged, strided, summary)

if importlib.util.find_spec("torch"):
    from .op import Attention, attention, clear_plans
else:
    def __getattr__(name):
        needs = ": it needs PyTorch" if name in ("Attention", "attention", "clear_plans") else ""
        raise AttributeError(f"weft_attention has no {name}{needs}")
