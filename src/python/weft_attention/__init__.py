# SPDX-License-Identifier: MIT
"""Sparse attention for PyTorch, and for any arrays with __dlpack__. attention() of tensors and Attention need PyTorch 2.6 or
later, which is imported where it is asked for; Sampler needs numpy and libweft_sampler."""
import importlib.util
import sys

from . import dlpack
from .dlpack import clear_plans
from .patterns import (Cost, Pattern, all, bigbird, block, by_head, by_layout, convolution, fixed, local, longformer,
                       merged, strided, summary)

if "torch" in sys.modules:
    from . import op  # before a graph is traced that has its operators


def attention(q, k, v, pattern, layout="bthd", scale=None, segments=None):
    """o_i = sum over the keys j that `pattern` lets query i see of softmax_j(scale q_i . k_j) v_j; 0 where there are none.

    q (B, T, H, D), k (B, S, H, D), v (B, S, H, Dv) -> (B, T, H, Dv); with layout="bhtd" heads come before time. Strides
    are free. f32, f16, bf16; f64 on the CPU. On CUDA D and Dv are multiples of 8 up to 256. scale: 1 / sqrt(D).
    segments: integers (B, T), or a pair (B, T), (B, S): a query sees keys of its own number alone, none below 0.
    Tensors of PyTorch give one, with its gradient; under autocast q, k and v become its type. Other arrays with __dlpack__
    (numpy, JAX, CuPy) are read in place, without PyTorch, and give one of the kind of q, or an object with __dlpack__ where
    that has no from_dlpack(); they have no gradient. ValueError says what is wrong with an argument."""
    if hasattr(q, "__torch_function__"):
        from . import op
        return op.attention(q, k, v, pattern, layout, scale, segments)
    return dlpack.attention(q, k, v, pattern, layout, scale, segments)


def __getattr__(name):
    if name == "Attention" and importlib.util.find_spec("torch"):
        from .op import Attention
        return Attention
    if name == "Sampler":
        from .sampler import Sampler
        return Sampler
    needs = ": it needs PyTorch" if name == "Attention" else ""
    raise AttributeError(f"weft_attention has no {name}{needs}")
