#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""libweft_attention on PyTorch tensors: ctypes, data_ptr and the current stream, as a torch.autograd.Function.
Usage: torch_attention.py --library libweft_attention.so [--device cpu|cuda] [--filter TEXT]

Compares outputs and gradients of every pattern with a dense masked softmax in f64 and prints a table: errors relative to the
largest value, as a share of what is allowed, 2 x the error of the same softmax in the same precision plus rounding. Leaves
with 1 on failure, with 77 where PyTorch is missing."""
import argparse
import ctypes
import sys

try:
    import torch
except ImportError:
    print("skipped: this Python has no PyTorch (WEFT_PYTHON names another)")
    sys.exit(77)

from torch_attention_cases import BATCH, D_QK, D_V, HEADS, cases

POINTER, INT64, INT32, SIZE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_size_t
DTYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.float64: 4}
PREDICATE = ctypes.CFUNCTYPE(INT32, POINTER, INT32, INT64, INT64)


class Spec(ctypes.Structure):  # weft_pattern_spec
    pass


LIST = ctypes.POINTER(INT64)
Spec._fields_ = [
    ("size", SIZE), ("kind", ctypes.c_char_p), ("stride", INT64), ("c", INT64), ("num_verts", INT64), ("block", INT64),
    ("vertsize", INT64), ("causal", INT32), ("of", ctypes.POINTER(ctypes.POINTER(Spec))), ("of_count", SIZE), ("prefix", INT64),
    ("documents", LIST), ("documents_count", SIZE), ("length", INT64), ("window", INT64), ("dilation", LIST),
    ("dilation_count", SIZE), ("globals", LIST), ("globals_count", SIZE), ("random", INT64), ("seed", ctypes.c_uint64),
    ("grid", LIST), ("grid_count", SIZE), ("filter", LIST), ("filter_count", SIZE), ("step", INT64), ("transposed", INT32)]


class Layout(ctypes.Structure):  # weft_layout
    _fields_ = [("size", SIZE), ("active", POINTER), ("heads", INT64), ("q_blocks", INT64), ("k_blocks", INT64),
                ("block", INT64), ("causal", INT32), ("keep", PREDICATE), ("user", POINTER)]


class View(ctypes.Structure):  # weft_input, weft_output
    _fields_ = [("data", POINTER), ("batch_stride", INT64), ("time_stride", INT64), ("head_stride", INT64)]

    @classmethod
    def of(cls, x):
        assert x.stride(3) == 1, "the last axis must be contiguous"
        return cls(x.data_ptr(), x.stride(0), x.stride(1), x.stride(2))


COMMON = [("size", SIZE), ("batch", INT64), ("dtype", INT32), ("form", INT32), ("scale", ctypes.c_double)]


class ForwardArgs(ctypes.Structure):
    _fields_ = COMMON + [(name, View) for name in "qkvo"] + [
        ("lse", POINTER), ("q_segments", POINTER), ("k_segments", POINTER), ("stream", POINTER)]


class BackwardArgs(ctypes.Structure):
    _fields_ = COMMON + [(name, View) for name in ("q", "k", "v", "o", "d_o")] + [("lse", POINTER)] + [
        (name, View) for name in ("dq", "dk", "dv")] + [
        ("q_segments", POINTER), ("k_segments", POINTER), ("workspace", POINTER), ("workspace_bytes", SIZE), ("stream", POINTER)]


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.weft_last_error.restype = self.c.weft_pattern_name.restype = ctypes.c_char_p
        for name in ("weft_pattern_name", "weft_pattern_destroy", "weft_attention_plan_destroy"):
            getattr(self.c, name).argtypes = [POINTER]

    def call(self, name, *arguments):
        if getattr(self.c, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self.c.weft_last_error().decode()}")

    def spec(self, kind, **fields):
        """A weft_pattern_spec; lists become arrays that live as long as it does."""
        spec = Spec()
        self.call("weft_pattern_spec_init", ctypes.byref(spec), SIZE(ctypes.sizeof(spec)))
        spec.kind, spec.kept = kind.encode(), []
        for name, value in fields.items():
            if name == "of":
                inner = [self.spec(**one) for one in value]
                value = (ctypes.POINTER(Spec) * len(inner))(*map(ctypes.pointer, inner))
                spec.kept.append(inner)
            elif isinstance(value, list):
                value = (INT64 * len(value))(*value)
            if hasattr(spec, f"{name}_count"):
                setattr(spec, f"{name}_count", len(value))
            spec.kept.append(value)
            setattr(spec, name, value)
        return spec


class Pattern:
    def __init__(self, library, heads, active=None, block=0, causal=False, keep=None, **named):
        """Named by `kind` and its fields, or a layout: `active` is (heads or 1, blocks, blocks), keep(head, i, j) -> bool."""
        self.library, self.heads, self.handle = library, heads, POINTER()
        if active is None:
            spec = library.spec(causal=int(causal), block=block, **named)
            library.call("weft_pattern_create", ctypes.byref(spec), heads, ctypes.byref(self.handle))
        else:
            active = active.to(torch.uint8).contiguous()
            predicate = PREDICATE(lambda _, head, i, j: int(keep(head, i, j))) if keep else PREDICATE(0)
            layout = Layout(ctypes.sizeof(Layout), active.data_ptr(), *active.shape, block, causal, predicate, None)
            library.call("weft_pattern_create_layout", ctypes.byref(layout), heads, ctypes.byref(self.handle))
        self.name = library.c.weft_pattern_name(self.handle).decode()

    def mask(self, n_q, n_k):
        mask = torch.empty(self.heads, n_q, n_k, dtype=torch.uint8)
        for head in range(self.heads):
            self.library.call("weft_pattern_mask", self.handle, head, INT64(n_q), INT64(n_k), POINTER(mask[head].data_ptr()))
        return mask.bool()

    def __del__(self):
        self.library.c.weft_pattern_destroy(self.handle)


class Plan:
    def __init__(self, pattern, n_q, n_k, d_qk, d_v, device):
        self.library, self.handle, self.device = pattern.library, POINTER(), device
        number = (device.index or 0) if device.type == "cuda" else -1
        self.library.call("weft_attention_plan_create", pattern.handle, INT64(n_q), INT64(n_k), INT64(d_qk), INT64(d_v), number,
                          ctypes.byref(self.handle))

    def form(self, dtype, segments=False):
        name = ctypes.c_char_p()
        self.library.call("weft_attention_plan_form", self.handle, DTYPES[dtype], 0, int(segments), ctypes.byref(name))
        return name.value.decode()

    def workspace(self, batch, dtype):
        size = SIZE()
        self.library.call("weft_attention_workspace_size", self.handle, INT64(batch), DTYPES[dtype], ctypes.byref(size))
        return torch.empty(size.value + 16, dtype=torch.uint8, device=self.device)

    def launch(self, name, args, q, segments):
        args.size, args.batch, args.dtype = ctypes.sizeof(args), q.shape[0], DTYPES[q.dtype]
        if segments is not None:
            args.q_segments, args.k_segments = (s.data_ptr() for s in segments)
        if q.is_cuda:
            args.stream = torch.cuda.current_stream(q.device).cuda_stream
        self.library.call(name, self.handle, ctypes.byref(args))

    def __del__(self):
        self.library.c.weft_attention_plan_destroy(self.handle)


class SparseAttention(torch.autograd.Function):
    """o = SparseAttention.apply(q, k, v, plan, segments): q (B, n_q, H, d_qk), k (B, n_k, H, d_qk), v (B, n_k, H, d_v), any
    strides of the first three axes; segments: None, or int32 tensors (B, n_q) and (B, n_k)."""

    @staticmethod
    def forward(ctx, q, k, v, plan, segments=None):
        o = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
        lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], device=q.device,
                          dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
        args = ForwardArgs(q=View.of(q), k=View.of(k), v=View.of(v), o=View.of(o), lse=lse.data_ptr())
        plan.launch("weft_attention_forward", args, q, segments)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.plan, ctx.segments, ctx.lse = plan, segments, lse
        return o

    @staticmethod
    def backward(ctx, d_o):
        q, k, v, o, lse = ctx.saved_tensors
        d_o = d_o.contiguous()
        dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
        scratch = ctx.plan.workspace(q.shape[0], q.dtype)
        start = scratch.data_ptr() + -scratch.data_ptr() % 16
        args = BackwardArgs(q=View.of(q), k=View.of(k), v=View.of(v), o=View.of(o), d_o=View.of(d_o), lse=lse.data_ptr(),
                            dq=View.of(dq), dk=View.of(dk), dv=View.of(dv), workspace=start, workspace_bytes=scratch.numel() - 16)
        ctx.plan.launch("weft_attention_backward", args, q, ctx.segments)
        return dq, dk, dv, None, None


def dense(q, k, v, mask):
    """The definition, in the precision of q: mask (B or 1, H, n_q, n_k). Rows that see nothing give 0."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[3] ** -0.5
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.einsum("bhij,bjhd->bihd", torch.softmax(scores, -1) * mask, v)


def gradients(function, inputs, d_o):
    inputs = [x.detach().requires_grad_() for x in inputs]
    o = function(*inputs)
    return [x.detach() for x in (o, *torch.autograd.grad(o, inputs, d_o))]


def error(got, exact):
    gap = (got.double() - exact).abs().max() / exact.abs().max().clamp_min(1)
    return gap.item() if torch.isfinite(got).all() else float("inf")


def packed_inputs(case, dtype, device, generator):
    """q, k, v as columns of one projection where lengths agree, as a model has them; the gradient of o."""
    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).to(device)
    rows = max(case.n_q, case.n_k)
    together = normal(BATCH, rows, HEADS, 2 * D_QK + D_V)
    q, k, v = together[:, :case.n_q, :, :D_QK], together[:, :case.n_k, :, D_QK:2 * D_QK], together[:, :case.n_k, :, 2 * D_QK:]
    return (q, k, v), normal(BATCH, case.n_q, HEADS, D_V)


def compare(library, case, dtype, device):
    """Shares of the allowed errors of o, dq, dk, dv (more than 1: failed), and the form that ran."""
    generator = torch.Generator().manual_seed(len(case.title) + case.n_q)
    pattern = Pattern(library, HEADS, **case.pattern)
    mask = pattern.mask(case.n_q, case.n_k)
    case.check_mask(mask, HEADS)
    plan = Plan(pattern, case.n_q, case.n_k, D_QK, D_V, device)
    del pattern  # a plan stands on its own
    inputs, d_o = packed_inputs(case, dtype, device, generator)
    segments, mask = None, mask[None].to(device)
    if case.segments:
        segments = [torch.randint(-1, 3, (BATCH, n), generator=generator).sort()[0].int().to(device) for n in (case.n_q, case.n_k)]
        rows, columns = segments[0][:, None, :, None], segments[1][:, None, None, :]
        mask = mask & (rows == columns) & (rows >= 0)
    exact = gradients(lambda q, k, v: dense(q, k, v, mask), [x.double() for x in inputs], d_o.double())
    plain = gradients(lambda q, k, v: dense(q, k, v, mask), inputs, d_o)
    runs = [gradients(lambda q, k, v: SparseAttention.apply(q, k, v, plan, segments), inputs, d_o) for _ in range(2)]
    floor = (64 if dtype == torch.float64 else 8) * torch.finfo(dtype).eps  # f64 is compared with f64 itself
    shares = [error(got, want) / (2 * error(same, want) + floor) for got, same, want in zip(runs[0], plain, exact)]
    if not all(torch.equal(first, second) for first, second in zip(*runs)):
        raise RuntimeError("two runs differ in their bits")
    empty = (~mask.any(-1)).expand(BATCH, -1, -1).transpose(1, 2)
    if (runs[0][0][empty] != 0).any() or (runs[0][1][empty] != 0).any():
        raise RuntimeError("a row that sees nothing has an output or a gradient")
    return shares, plan.form(dtype, segments is not None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--filter", default="", help="only cases whose title contains this")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("skipped: this PyTorch has no GPU")
        return 77
    torch.manual_seed(0)
    device = torch.device(arguments.device, 0) if arguments.device == "cuda" else torch.device("cpu")
    dtypes = [torch.float32, torch.float64] if device.type == "cpu" else [torch.float32, torch.float16, torch.bfloat16]
    library, failures, count = Library(arguments.library), 0, 0
    print(f"{'pattern':44} {'dtype':9} {'kernels':15} share of the allowed error: o, dq, dk, dv")
    for case in cases():
        for dtype in dtypes if arguments.filter in case.title else ():
            count += 1
            try:
                shares, form = compare(library, case, dtype, device)
                failed = not all(share <= 1 for share in shares)
                text = f"{form:15} {'  '.join(f'{share:.2f}' for share in shares)}"
            except (RuntimeError, AssertionError) as problem:
                failed, text = True, str(problem)
            failures += failed
            print(f"{case.title:44} {str(dtype)[6:]:9} {text}{'  FAILED' if failed else ''}", flush=True)
    print(f"{count - failures} of {count} passed on {arguments.device}, PyTorch {torch.__version__}")
    return 1 if failures or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
