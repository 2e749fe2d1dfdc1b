#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Attention of packages beside PyTorch's, for the shapes and patterns of rows of `bench attention --json`, in bf16: a JSON row
for each, with the keys of those rows. What is not installed, or does not cover a case, is a row with its error.

    package_peers.py weft.jsonl > peers.jsonl
    package_peers.py --shape 1,16,32768,128,128,1024,32 --modes all,local > peers.jsonl

weft: this repository's operator, by src/python. sdpa_cudnn: PyTorch's with cuDNN. fa3: FlashAttention-3 (torch.ops.flash_attn_3,
of flash_attn_3 or of the file _C.so of xformers 0.0.34, which --fa3 names). fa4: the package flash-attn-4. cudnn_flex:
cudnn.flex_attention of nvidia-cudnn-frontend, intervals of keys for each query. `strided` is dense attention of B, n / s, s * H,
a view: columns become heads. gathered_cudnn_flex: summaries of `fixed` put before the keys, so that a row has two intervals.

Each is compared with a masked softmax in f32 first: output and gradients of one head. Then it is timed in CUDA graphs, so that no
host time counts: medians of triton.testing.do_bench, which clears the second-level cache before each run."""
import argparse
import functools
import json
import os
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import by_hand
from compare_attention import rows_of, shape_of

LIMIT = 3e-2  # of the largest number of each result
CONTEXT = 8192  # queries of the reference at a time


def columns_as_heads(attend, s):
    """strided: (B, n, H, D) is (B, n / s, s * H, D) in memory."""
    def strided(q, k, v):
        q, k, v = (x.unflatten(1, (-1, s)).flatten(2, 3) for x in (q, k, v))
        return attend(q, k, v).unflatten(2, (s, -1)).flatten(1, 2)
    return strided


def sdpa_cudnn(q, k, v):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class FlashAttention3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, window):
        ctx.how = dict(softmax_scale=q.shape[3] ** -0.5, is_causal=not window, window_size_left=window - 1 if window else -1,
                       window_size_right=0 if window else -1)
        o, lse, *_ = torch.ops.flash_attn_3.fwd(q, k, v, num_splits=1, **ctx.how)
        ctx.save_for_backward(q, k, v, o, lse)
        return o

    @staticmethod
    def backward(ctx, d_o):
        q, k, v, o, lse = ctx.saved_tensors
        return *torch.ops.flash_attn_3.bwd(d_o, q, k, v, o, lse, **ctx.how)[:3], None


@functools.lru_cache(maxsize=None)
def load_fa3(path):
    if path:
        torch.ops.load_library(path)
    else:
        import flash_attn_3._C  # noqa: F401


def fa3(path, window):
    load_fa3(path)
    return lambda q, k, v: FlashAttention3.apply(q, k, v, window)


def fa4(window):
    from flash_attn.cute import flash_attn_func

    def attend(q, k, v):
        o = flash_attn_func(q, k, v, causal=True, window_size=(window - 1, 0) if window else (None, None))
        return o[0] if isinstance(o, tuple) else o
    return attend


def cudnn_flex(case, first, begin, end, keys):
    """Query i sees keys below first(i) and those from begin(i) to end(i)."""
    from cudnn.flex_attention import create_mask_plan, flex_attn_func
    i = torch.arange(case.N, device="cuda")
    intervals = torch.stack([f(i).expand(case.N) for f in (first, begin, end)]).int().repeat(1, case.B)[None].contiguous()
    q, k, v = (torch.empty(case.B, n, case.H, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
               for n, size in ((case.N, case.D), (keys, case.D), (keys, case.Dv)))
    plan = create_mask_plan(intervals, q, k, v, build_backward=True)
    return lambda q, k, v: flex_attn_func(q, k, v, mask_plan=plan)


def gathered(case):
    s, c, count = case.s, case.c, case.N // case.s * case.c
    attend = cudnn_flex(case, lambda i: i // s * c, lambda i: count + i // s * s, lambda i: count + i + 1, case.N + count)

    def with_summaries(x):
        return torch.cat([x.unflatten(1, (-1, s))[:, :, s - c:].flatten(1, 2), x], 1)
    return lambda q, k, v: attend(q, with_summaries(k), with_summaries(v))


class Case:
    """The shape and the pattern of a row."""

    def __init__(self, row):
        self.keys = {k: row[k] for k in ("case", "mode", "B", "H", "N", "D", "Dv", "s", "c")} | {"dtype": "bf16"}
        self.mode = row["mode"]
        self.B, self.H, self.N, self.D, self.Dv, self.s, self.c = shape_of(row)

    def weft(self):
        import weft_attention
        pattern = by_hand.cases(self.s, self.c)[self.mode][0]
        return lambda q, k, v: weft_attention.attention(q, k, v, pattern)

    def peers(self, path):
        """{name: what makes a function of q, k, v (B, N, H, size)}"""
        zero, after = torch.zeros_like, lambda i: i + 1
        if self.mode == "all":
            return {"weft": self.weft, "sdpa_cudnn": lambda: sdpa_cudnn, "fa3": lambda: fa3(path, 0), "fa4": lambda: fa4(0),
                    "cudnn_flex": lambda: cudnn_flex(self, after, after, after, self.N)}
        if self.mode == "local":
            return {"weft": self.weft, "fa3": lambda: fa3(path, self.s), "fa4": lambda: fa4(self.s),
                    "cudnn_flex": lambda: cudnn_flex(self, zero, lambda i: (i + 1 - self.s).clamp(0), after, self.N)}
        if self.mode == "strided":
            return {"weft": self.weft, "sdpa_cudnn": lambda: columns_as_heads(sdpa_cudnn, self.s),
                    "fa3": lambda: columns_as_heads(fa3(path, 0), self.s), "fa4": lambda: columns_as_heads(fa4(0), self.s)}
        if self.mode == "fixed":
            return {"weft": self.weft, "gathered_cudnn_flex": lambda: gathered(self)}
        return {"weft": self.weft}

    def inputs(self):
        torch.manual_seed(0)
        return [torch.randn(self.B, self.N, self.H, size, device="cuda", dtype=torch.bfloat16).requires_grad_()
                for size in (self.D, self.D, self.Dv)], torch.randn(self.B, self.N, self.H, self.Dv, device="cuda").bfloat16()

    @functools.lru_cache(maxsize=1)
    def expected(self):
        """Output and gradients of the last head of the last sequence, in f32, a few queries at a time."""
        inputs, d_o = self.inputs()
        q, k, v = (x[-1, :, -1].detach().float().requires_grad_() for x in inputs)
        sees, at, parts = by_hand.cases(self.s, self.c)[self.mode][1], torch.arange(self.N, device="cuda"), []
        for rows in at.split(CONTEXT):
            scores = (q[rows] @ k.T * self.D**-0.5).masked_fill(~sees(0, 0, rows[:, None], at), float("-inf"))
            part = torch.softmax(scores, -1) @ v
            part.backward(d_o[-1, rows, -1].float())
            parts.append(part.detach())
        return torch.cat(parts), q.grad, k.grad, v.grad

    def check(self, function, inputs, d_o):
        o = function(*inputs)
        got = o, *torch.autograd.grad(o, inputs, d_o)
        errors = [((x[-1, :, -1].float() - want).abs().max() / want.abs().max()).item() for x, want in zip(got, self.expected())]
        if not max(errors) <= LIMIT:
            raise ArithmeticError(f"o, dq, dk, dv are wrong by {', '.join(f'{e:.1e}' for e in errors)} of their largest numbers")
        return round(max(errors), 5)

    def times(self, make):
        function, (inputs, d_o) = make(), self.inputs()
        error = self.check(function, inputs, d_o)

        def forward():
            with torch.no_grad():
                function(*inputs)

        def both():
            torch.autograd.grad(function(*inputs), inputs, d_o)
        return {"fwd_ms": in_graph(forward), "fwdbwd_ms": in_graph(both), "error": error}


def in_graph(run):
    """Milliseconds."""
    from triton.testing import do_bench
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return round(do_bench(graph.replay, warmup=25, rep=150, return_mode="median"), 4)


def rows(arguments):
    for path in arguments.weft:
        yield from (row for row in rows_of(path) if "fwd_ms" in row and row.get("asked", "automatic") == "automatic")
    for shape in arguments.shape:
        numbers = dict(zip(("B", "H", "N", "D", "Dv", "s", "c"), map(int, shape.split(","))))
        yield from (numbers | {"case": "custom", "mode": mode} for mode in arguments.modes.split(","))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", nargs="*")
    parser.add_argument("--shape", action="append", default=[], metavar="B,H,n,Dqk,Dv,stride,c")
    parser.add_argument("--modes", default="all,local,strided,fixed", help="of --shape")
    parser.add_argument("--peers", help="those alone, separated by commas")
    parser.add_argument("--fa3", metavar="FILE", help="the library of FlashAttention-3's operators")
    a = parser.parse_args()
    for case in map(Case, rows(a)):
        for peer, make in case.peers(a.fa3).items():
            if a.peers and peer not in a.peers.split(","):
                continue
            try:
                result = case.times(make)
            except Exception as error:  # any: what cannot run is a row of the table, too
                result = {"error": repr(error)[:300]}
            print(json.dumps(case.keys | {"peer": peer} | result), flush=True)


if __name__ == "__main__":
    main()
