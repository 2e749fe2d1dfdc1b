# SPDX-License-Identifier: MIT
"""Sparse attention as operators of PyTorch: weft::attention and its gradient, on tensors of the CPU and of CUDA."""
import typing

import torch
from torch import Tensor, nn

from . import launch, library, patterns
from .dlpack import UNREADABLE, check_is_array, check_layout, check_pattern, checked_scale, segment_pair, unreadable

NARROW = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32)  # int32 holds these
PLAIN = {Tensor, nn.Parameter}
TWICE = "weft_attention has no second derivatives: its gradient cannot be differentiated"
FUNCTIONAL = ("weft_attention does not run under torch.func (vmap, grad, jvp) or in forward mode: use autograd.grad(), "
              "and give it a batch as the first axis")


def _results(q, k, v, *_):
    """o and lse, to be written."""
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty((*q.shape[:3], v.shape[3])), q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=dtype)


def _gradients(d_o, *inputs):
    return tuple(x.new_empty(x.shape) for x in inputs[:3])


@torch.library.custom_op("weft::attention", mutates_args=(), device_types=("cpu", "cuda"))
def _forward(q: Tensor, k: Tensor, v: Tensor, pattern: str, scale: float, q_segments: typing.Optional[Tensor],
             k_segments: typing.Optional[Tensor]) -> typing.Tuple[Tensor, Tensor]:
    return launch.forward(q, k, v, pattern, "bthd", scale, q_segments, k_segments)


@torch.library.custom_op("weft::attention_backward", mutates_args=(), device_types=("cpu", "cuda"))
def _backward(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, pattern: str, scale: float,
              q_segments: typing.Optional[Tensor],
              k_segments: typing.Optional[Tensor]) -> typing.Tuple[Tensor, Tensor, Tensor]:
    return launch.backward(d_o, q, k, v, o, lse, pattern, "bthd", scale, q_segments, k_segments)


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


class WeftAttention(torch.autograd.Function):
    """weft::attention of tensors that nothing traces: without the dispatcher, which costs the host more than the library."""

    @staticmethod
    def forward(ctx, q, k, v, pattern, layout, scale, q_segments, k_segments):
        o, lse = launch.forward(q, k, v, pattern, layout, scale, q_segments, k_segments)
        ctx.how = pattern, layout, scale
        ctx.save_for_backward(q, k, v, o, lse, q_segments, k_segments)
        return o

    @staticmethod
    def backward(ctx, d_o):
        *kept, lse, q_segments, k_segments = ctx.saved_tensors
        pattern, layout, scale = ctx.how
        rest = scale, q_segments, k_segments
        if _is_plain(d_o, *kept) and not torch.is_grad_enabled():
            gradients = launch.backward(d_o, *kept, lse, pattern, layout, *rest)
        else:
            gradients = (_swapped(x, layout) for x in
                         _backward(*(_swapped(x, layout) for x in (d_o, *kept)), lse, pattern, *rest))
        return (*gradients, None, None, None, None, None)


def _swapped(x, layout):
    return x.transpose(1, 2) if layout == "bhtd" else x


def _is_plain(*tensors):
    """Whether nothing traces, fakes or records what is done to these tensors."""
    return (not torch.compiler.is_compiling() and PLAIN.issuperset(map(type, tensors))
            and torch._C._len_torch_dispatch_stack() == 0)


def _refuse_transforms():
    if (torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0):
        raise RuntimeError(FUNCTIONAL)  # PyTorch would drop the tangents of forward mode without a word


def _tensor(name, x):
    if isinstance(x, Tensor):
        return x
    check_is_array(name, x)
    try:
        return torch.from_dlpack(x)
    except UNREADABLE as error:
        raise unreadable(name, error) from error


def _segments(segments, q, k):
    of_q, of_k = segment_pair(segments)
    first = _tensor("segments of queries", of_q)
    pair = first, first if of_k is of_q else _tensor("segments of keys", of_k)
    for name, s, x in (("queries", pair[0], q), ("keys", pair[1], k)):
        launch.check_dense(f"segments of {name}", s)
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


def _autocast(*inputs):
    device = "cuda" if inputs[0].is_cuda else "cpu"
    if torch.is_autocast_enabled(device) and inputs[0].dtype != torch.float64:
        return [x.to(torch.get_autocast_dtype(device)) for x in inputs]
    return inputs


def _by_operator(q, k, v, pattern, layout, scale, q_segments, k_segments):
    launch.check_tensors(q, k, v, layout)
    q, k, v = (_swapped(x, layout) for x in (q, k, v))
    return _swapped(_forward(q, k, v, pattern, scale, q_segments, k_segments)[0], layout)


def attention(q, k, v, pattern, layout="bthd", scale=None, segments=None):
    """attention() of tensors; the package has its description."""
    k, v = _tensor("k", k), _tensor("v", v)
    check_layout(layout, pattern)
    scale = checked_scale(scale)
    if not torch.compiler.is_compiling():
        _refuse_transforms()
    q, k, v = _autocast(q, k, v)
    pair = None, None
    if segments is not None:
        launch.check_tensors(q, k, v, layout)
        pair = _segments(segments, _swapped(q, layout), _swapped(k, layout))
    arguments = q, k, v, pattern.text, layout, scale, *pair
    if not _is_plain(q, k, v):
        return _by_operator(*arguments)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return WeftAttention.apply(*arguments)
    return launch.forward(*arguments)[0]


class Attention(nn.Module):
    """Self-attention of a Transformer block: x (B, T, width), segments -> (B, T, width). One projection to q, k and v, the
    pattern, one projection back."""

    def __init__(self, width, heads, pattern, bias=True):
        super().__init__()
        width, heads = library.positive(width, "width"), library.positive(heads, "heads")
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got {width} and {heads}")
        check_pattern(pattern)
        patterns.made(pattern.text, heads)
        self.heads, self.pattern = heads, pattern
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)

    def forward(self, x, segments=None):
        width = self.qkv.in_features
        if len(x.shape) != 3 or x.shape[2] != width:
            raise ValueError(f"x must be (batch, time, width) = (B, T, {width}), got {tuple(x.shape)}")
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).unbind(2)
        return self.proj(attention(q, k, v, self.pattern, segments=segments).flatten(2))

    def extra_repr(self):
        return f"heads={self.heads}, pattern={self.pattern}"
