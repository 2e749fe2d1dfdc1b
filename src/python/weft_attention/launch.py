# SPDX-License-Identifier: MIT
"""Calls of the library on tensors of the CPU or of CUDA. What calls of equal shapes, strides and types share is kept, so that
such a call costs the host little: see README.md."""
import torch

from . import library
from .dlpack import caches, check_shapes, planned

DTYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.float64: 4}  # weft_dtype
ALIGNMENT = 16  # bytes, of CUDA rows; memory that PyTorch allocates starts at a multiple of it
_calls = {}  # what _call_of() looks up
caches.append(_calls)


def check_dense(name, x):
    if x.layout != torch.strided or (not torch.compiler.is_compiling() and x.is_nested):
        kind = "a nested one" if x.layout == torch.strided else x.layout
        raise ValueError(f"{name} must be a dense tensor, got {kind}; try .to_dense(), or padding and segments=")


def check_tensors(q, k, v, layout):
    """ValueError for what the library cannot see: it knows pointers and strides, not tensors."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_dense(name, x)
        if x.dim() != 4:
            raise ValueError(f"{name} must have 4 axes, {layout}, got {tuple(x.shape)}")
        if x.device != q.device or x.device.type not in ("cpu", "cuda"):
            also = "" if x is q else f", {name} on {x.device}"
            raise ValueError(f"q is on {q.device}{also}: expected the CPU or one CUDA device for all; "
                             f'try {name}.to("{"cpu" if x is q else q.device}")')
        if q.dtype not in DTYPES:
            raise ValueError(f"q is {q.dtype}: expected float32, float16, bfloat16 or float64; try q.float()")
        if x.dtype != q.dtype:
            raise ValueError(f"q is {q.dtype}, {name} {x.dtype}: expected one type for all; try {name}.to({q.dtype})")
    check_shapes(*(x.transpose(1, 2) if layout == "bhtd" else x for x in (q, k, v)))


def _swapped(axes, layout):
    """Shape or strides in the order of `layout` as (batch, time, heads, size), or the other way around."""
    return (axes[0], axes[2], axes[1], axes[3]) if layout == "bhtd" else tuple(axes)


def _dense(shape):
    return shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1


def _not_captured():
    if torch.cuda.is_current_stream_capturing():  # its graph holds addresses of tables
        raise RuntimeError("weft_attention: this pattern and these shapes are new: run them once before a CUDA graph is captured")


def _in_place(x, layout):
    """Whether the library can read rows of these strides."""
    step = ALIGNMENT // x.element_size() if x.is_cuda else 1
    shape, strides = _swapped(x.shape, layout), _swapped(x.stride(), layout)
    return (strides[3] == 1 or shape[3] == 1) and all(
        s >= 0 and (s % step == 0 or n <= 1) for n, s in zip(shape[:3], strides[:3]))


def _copy(x):
    return x.clone(memory_format=torch.contiguous_format)


class _Call:
    """A plan, and the arguments of both passes without scale, segments and addresses."""

    def __init__(self, q, k, v, pattern, layout, aligned):
        check_tensors(q, k, v, layout)
        inputs = q, k, v
        shapes = [_swapped(x.shape, layout) for x in inputs]
        (B, n_q, H, d_qk), (_, n_k, _, d_v) = shapes[0], shapes[2]
        self.device = q.device.index if q.is_cuda else library.CPU
        self.plan = planned(pattern, H, n_q, n_k, d_qk, d_v, self.device,
                            before=_not_captured if q.is_cuda else lambda: None)
        self.lse, self.lse_type = (B, H, n_q), torch.float64 if q.dtype == torch.float64 else torch.float32
        self.workspace = self.plan.workspace_size(B, DTYPES[q.dtype])
        copied = [not _in_place(x, layout) or (q.is_cuda and not aligned) for x in inputs]
        self.copied = copied if any(copied) else None
        views = [library.View(0, *_swapped(_dense(x.shape) if copy else x.stride(), layout)[:3])
                 for x, copy in zip(inputs, copied)]
        common = dict(zip("qkv", views), batch=B, dtype=DTYPES[q.dtype])
        # Results are dense in the order (batch, time, heads, size), whatever `layout` is.
        o, *gradients = (B, n_q, H, d_v), *shapes
        self.o, *self.gradients = [(_swapped(s, layout), _swapped(_dense(s), layout)) for s in (o, *gradients)]
        stored = [library.View(0, *_dense(s)[:3]) for s in (o, *gradients)]
        self.forward = library.ForwardArgs(o=stored[0], **common)
        self.backward = library.BackwardArgs(o=stored[0], d_o=stored[0], **dict(zip(("dq", "dk", "dv"), stored[1:])), **common)

    def readable(self, *inputs):
        return [_copy(x) if copy else x for x, copy in zip(inputs, self.copied)] if self.copied else inputs

    def run(self, args, scale, q_segments, k_segments):
        args.scale = scale
        if q_segments is not None:
            args.q_segments, args.k_segments = q_segments.data_ptr(), k_segments.data_ptr()
        if self.device != library.CPU:
            args.stream = torch._C._cuda_getCurrentRawStream(self.device)
        self.plan.run(args)


def _call_of(q, k, v, pattern, layout):
    try:
        aligned = (q.data_ptr() | k.data_ptr() | v.data_ptr()) % ALIGNMENT == 0
        key = (pattern, layout, aligned, q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(),
               q.dtype, k.dtype, v.dtype, q.device, k.device, v.device)
    except RuntimeError:  # sparse tensors have no address
        check_tensors(q, k, v, layout)
        raise
    call = _calls.get(key)
    if call is None:
        call = _calls[key] = _Call(q, k, v, pattern, layout, aligned)
    return call


def _set(view, x, strides, layout):
    """Fills in a view that has these strides of o; returns what keeps the memory."""
    if x.stride() != strides or (x.is_cuda and x.data_ptr() % ALIGNMENT):
        if not _in_place(x, layout) or (x.is_cuda and x.data_ptr() % ALIGNMENT):
            x = _copy(x)
        view.batch_stride, view.time_stride, view.head_stride = _swapped(x.stride(), layout)[:3]
    view.data = x.data_ptr()
    return x


def forward(q, k, v, pattern, layout, scale, q_segments, k_segments):
    """o and lse. `pattern` is a text, scale 0 the usual one; segments are int32 and contiguous, or both None."""
    call = _call_of(q, k, v, pattern, layout)
    q, k, v = call.readable(q, k, v)
    o, lse = q.new_empty_strided(*call.o), q.new_empty(call.lse, dtype=call.lse_type)
    args = library.ForwardArgs.from_buffer_copy(call.forward)
    args.q.data, args.k.data, args.v.data, args.o.data = q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr()
    args.lse = lse.data_ptr()
    call.run(args, scale, q_segments, k_segments)
    return o, lse


def backward(d_o, q, k, v, o, lse, pattern, layout, scale, q_segments, k_segments):
    """dq, dk and dv, of what forward() took and gave and the gradient of o."""
    call = _call_of(q, k, v, pattern, layout)
    q, k, v = call.readable(q, k, v)
    lse, scratch = lse.contiguous(), q.new_empty(call.workspace, dtype=torch.uint8)
    dq, dk, dv = [q.new_empty_strided(*of) for of in call.gradients]
    args = library.BackwardArgs.from_buffer_copy(call.backward)
    args.q.data, args.k.data, args.v.data = q.data_ptr(), k.data_ptr(), v.data_ptr()
    args.dq.data, args.dk.data, args.dv.data = dq.data_ptr(), dk.data_ptr(), dv.data_ptr()
    o, d_o = _set(args.o, o, call.o[1], layout), _set(args.d_o, d_o, call.o[1], layout)
    args.lse, args.workspace, args.workspace_bytes = lse.data_ptr(), scratch.data_ptr(), call.workspace
    call.run(args, scale, q_segments, k_segments)
    return dq, dk, dv
