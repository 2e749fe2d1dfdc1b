# SPDX-License-Identifier: MIT
"""Sparse attention as operators of PyTorch: weft::attention and its gradient, on tensors of the CPU and of CUDA."""
import typing

import torch
from torch import Tensor, nn

from . import library
from .dlpack import check_layout, check_shapes, planned

DTYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.float64: 4}  # weft_dtype
NARROW = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32)  # int32 holds these
ALIGNMENT = 16  # bytes, of CUDA rows and of the workspace
TWICE = "weft_attention has no second derivatives: its gradient cannot be differentiated"
FUNCTIONAL = ("weft_attention does not run under torch.func (vmap, grad, jvp) or in forward mode: use autograd.grad(), "
              "and give it a batch as the first axis")


def _not_captured():
    if torch.cuda.is_current_stream_capturing():  # its graph holds addresses of tables
        raise RuntimeError("weft_attention: this pattern and these shapes are new: run them once before a CUDA graph is captured")


def _plan_of(q, k, v, pattern):
    _, n_q, heads, d_qk = q.shape
    return planned(pattern, heads, n_q, k.shape[1], d_qk, v.shape[3], q.device.index if q.is_cuda else library.CPU,
                   before=_not_captured if q.is_cuda else lambda: None)


def _readable(x):
    """x, or a copy of it where the library could not read x in place."""
    step = ALIGNMENT // x.element_size() if x.is_cuda else 1
    fits = x.stride(3) == 1 or x.shape[3] == 1
    fits = fits and all(s >= 0 and (s % step == 0 or n <= 1) for n, s in zip(x.shape[:3], x.stride()[:3]))
    return x if fits and x.data_ptr() % (ALIGNMENT if x.is_cuda else 1) == 0 else x.contiguous()


def _launch(plan, args, q, scale, segments, views):
    for name, x in views.items():
        setattr(args, name, library.View(x.data_ptr(), *x.stride()[:3]))
    args.batch, args.dtype, args.scale = q.shape[0], DTYPES[q.dtype], scale
    args.q_segments, args.k_segments = (None if s is None else s.data_ptr() for s in segments)
    if q.is_cuda:
        args.stream = torch.cuda.current_stream(q.device).cuda_stream
    plan.run(args)


def _results(q, k, v, *_):
    """o and lse, to be written."""
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty((*q.shape[:3], v.shape[3])), q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=dtype)


def _gradients(d_o, *inputs):
    return tuple(x.new_empty(x.shape) for x in inputs[:3])


@torch.library.custom_op("weft::attention", mutates_args=(), device_types=("cpu", "cuda"))
def _forward(q: Tensor, k: Tensor, v: Tensor, pattern: str, scale: float, q_segments: typing.Optional[Tensor],
             k_segments: typing.Optional[Tensor]) -> typing.Tuple[Tensor, Tensor]:
    o, lse = _results(q, k, v)
    q, k, v = map(_readable, (q, k, v))
    args = library.ForwardArgs(lse=lse.data_ptr())
    _launch(_plan_of(q, k, v, pattern), args, q, scale, (q_segments, k_segments), dict(q=q, k=k, v=v, o=o))
    return o, lse


@torch.library.custom_op("weft::attention_backward", mutates_args=(), device_types=("cpu", "cuda"))
def _backward(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, pattern: str, scale: float,
              q_segments: typing.Optional[Tensor],
              k_segments: typing.Optional[Tensor]) -> typing.Tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = _gradients(d_o, q, k, v)
    d_o, q, k, v, o, lse = (*map(_readable, (d_o, q, k, v, o)), lse.contiguous())
    ready = _plan_of(q, k, v, pattern)
    scratch = torch.empty(ready.workspace_size(q.shape[0], DTYPES[q.dtype]) + ALIGNMENT, dtype=torch.uint8, device=q.device)
    start = scratch.data_ptr() + -scratch.data_ptr() % ALIGNMENT
    args = library.BackwardArgs(lse=lse.data_ptr(), workspace=start, workspace_bytes=scratch.numel() - ALIGNMENT)
    _launch(ready, args, q, scale, (q_segments, k_segments),
            dict(q=q, k=k, v=v, o=o, d_o=d_o, dq=dq, dk=dk, dv=dv))
    return dq, dk, dv


def _keep(ctx, inputs, output):
    q, k, v, ctx.pattern, ctx.scale, q_segments, k_segments = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(q, k, v, *output, q_segments, k_segments)


def _gradient(ctx, d_o, _):
    *kept, q_segments, k_segments = ctx.saved_tensors
    return (*_backward(d_o, *kept, ctx.pattern, ctx.scale, q_segments, k_segments), None, None, None, None)


def _refuse(text):
    def refuse(*_, **__):
        raise RuntimeError(text)
    return refuse


_forward.register_fake(_results)
_backward.register_fake(_gradients)
_forward.register_autograd(_gradient, setup_context=_keep)
_backward.register_autograd(_refuse(TWICE))
_forward.register_vmap(_refuse(FUNCTIONAL))
_backward.register_vmap(_refuse(FUNCTIONAL))


def _checked(q, k, v, pattern, layout):
    """ValueError for what the library cannot see: it knows pointers and strides, not tensors."""
    if not torch.compiler.is_compiling() and (torch._C._are_functorch_transforms_active()
                                              or torch.autograd.forward_ad._current_level >= 0):
        raise RuntimeError(FUNCTIONAL)  # PyTorch would drop the tangents of forward mode without a word
    check_layout(layout, pattern)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            raise ValueError(f"{name} must have 4 axes, {layout}, got {tuple(x.shape)}")
        if x.device != q.device or x.device.type not in ("cpu", "cuda"):
            raise ValueError(f"q is on {q.device}, {name} on {x.device}: expected the CPU or one CUDA device")


def _checked_tensors(q, k, v):
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype != q.dtype or x.dtype not in DTYPES:
            raise ValueError(f"q is {q.dtype}, {name} {x.dtype}: expected float32, float16, bfloat16 or float64 for all")
    check_shapes(q, k, v)


def _segments(segments, q, k):
    if segments is None:
        return None, None
    pair = segments if isinstance(segments, (tuple, list)) else (segments, segments)
    for name, s, x in (("queries", pair[0], q), ("keys", pair[1], k)):
        if (tuple(s.shape) != tuple(x.shape[:2]) or s.device != q.device or s.dtype.is_floating_point
                or s.dtype.is_complex):
            raise ValueError(f"segments of {name} must be integers {tuple(x.shape[:2])} on {q.device}, "
                             f"got {s.dtype} {tuple(s.shape)} on {s.device}")
    if all(s.dtype in NARROW for s in pair):
        return tuple(s.to(torch.int32).contiguous() for s in pair)
    ranked = _ranked(pair[:1] if pair[0] is pair[1] else pair)
    return ranked[0], ranked[-1]


def _ranked(segments):
    """int32 that are equal where the integers are: the rank of each in its sequence, -1 below 0. Sorting has fixed shapes,
    so that it compiles and is captured by CUDA graphs."""
    wide, hidden = [], []
    for s in segments:
        above = s.dtype == torch.uint64  # its numbers from 2^63 on are below 0 as int64, and no padding
        wide.append(s.view(torch.int64) if above else s.to(torch.int64))
        hidden.append(torch.zeros_like(wide[-1], dtype=torch.bool) if above else wide[-1] < 0)
    hidden = torch.cat(hidden, 1)
    ordered, place = torch.cat(wide, 1).sort(1)
    rank = torch.zeros_like(ordered)
    rank[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(1)
    rank = torch.empty_like(rank).scatter(1, place, rank).masked_fill(hidden, -1).to(torch.int32)
    return tuple(s.contiguous() for s in rank.split([s.shape[1] for s in segments], 1))


def attention(q, k, v, pattern, layout="bthd", scale=None, segments=None):
    """attention() of tensors; the package has its description."""
    k, v = (x if isinstance(x, Tensor) else torch.from_dlpack(x) for x in (k, v))
    _checked(q, k, v, pattern, layout)
    if torch.is_autocast_enabled(q.device.type) and q.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(q.device.type)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if layout == "bhtd":
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    _checked_tensors(q, k, v)
    q_segments, k_segments = _segments(segments, q, k)
    o, _ = _forward(q, k, v, pattern.text, 0.0 if scale is None else float(scale), q_segments, k_segments)
    return o.transpose(1, 2) if layout == "bhtd" else o


class Attention(nn.Module):
    """Self-attention of a Transformer block: x (B, T, width), segments -> (B, T, width). One projection to q, k and v, the
    pattern, one projection back."""

    def __init__(self, width, heads, pattern, bias=True):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} must be a multiple of heads {heads}")
        self.heads, self.pattern = heads, pattern
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)

    def forward(self, x, segments=None):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).unbind(2)
        return self.proj(attention(q, k, v, self.pattern, segments=segments).flatten(2))

    def extra_repr(self):
        return f"heads={self.heads}, pattern={self.pattern}"
