# SPDX-License-Identifier: MIT
"""Times weft_attention beside PyTorch's FlexAttention (compiled) and scaled_dot_product_attention: milliseconds forward, and
forward + backward, of the median run, as a Markdown table. Masked SDPA takes the pattern as a mask, dense SDPA computes all
causal pairs. Before it is timed, what computes the pattern is checked against a masked SDPA in f32: output and gradients.

    python -m weft_attention.bench [--device cpu] [--n 12288] [--patterns fixed,local] [--dtype bfloat16] > table.md"""
import argparse

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
from torch.utils.benchmark import Timer  # it waits for the GPU

from . import attention, fixed, local, patterns, strided

LIMITS = {torch.bfloat16: 3e-2, torch.float16: 1e-2, torch.float32: 3e-3}  # of the largest number of each result


def cases(s, c):
    """name -> the pattern, and its predicate as FlexAttention wants it: stride s, summaries of c positions."""
    return {
        "all": (patterns.all(), lambda b, h, q, k: q >= k),
        "local": (local(s), lambda b, h, q, k: (q >= k) & (q - k < s)),
        "strided": (strided(s), lambda b, h, q, k: (q >= k) & ((q - k) % s == 0)),
        "fixed": (fixed(s, c), lambda b, h, q, k: (q >= k) & ((q // s == k // s) | (k % s >= s - c))),
        "merged_strided": (local(s) | strided(s), lambda b, h, q, k: (q >= k) & ((q - k < s) | ((q - k) % s == 0))),
    }


def peers(pattern, predicate, mask, flex):
    """name -> function of q, k, v (B, H, n, d)."""
    yield "weft", lambda q, k, v: attention(q, k, v, pattern, layout="bhtd")
    yield "SDPA masked", lambda q, k, v: sdpa(q, k, v, attn_mask=mask)
    if flex:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        blocks = create_block_mask(predicate, None, None, *mask.shape, device=mask.device)
        yield "FlexAttention", torch.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), dynamic=False)
    yield "SDPA dense", lambda q, k, v: sdpa(q, k, v, is_causal=True)


def results(function, inputs, d_o):
    o = function(*inputs)
    return o, *torch.autograd.grad(o, inputs, d_o)


def check(function, inputs, d_o, mask):
    """Of the first head; heads do not know of each other."""
    one = [x[:1, :1].detach().float().requires_grad_() for x in inputs]
    wanted = results(lambda q, k, v: sdpa(q, k, v, attn_mask=mask), one, d_o[:1, :1].float())
    for name, got, want in zip(("o", "dq", "dk", "dv"), results(function, inputs, d_o), wanted):
        error = ((got[:1, :1].float() - want).abs().max() / want.abs().max()).item()
        if not error <= LIMITS[d_o.dtype]:
            raise ArithmeticError(f"{name} is wrong by {error:.1e} of its largest number")


def timed(function, inputs, d_o, seconds):
    """ms forward, ms forward + backward."""
    for f in (lambda: function(*inputs), lambda: results(function, inputs, d_o)):
        f()  # compiles what is compiled
        timer = Timer("f()", globals={"f": f}, num_threads=torch.get_num_threads())
        yield 1e3 * timer.blocked_autorange(min_run_time=seconds).median


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if cuda else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--n", default="12288" if cuda else "1024", help="positions")
    parser.add_argument("--patterns", default="fixed,strided,merged_strided", help="of all, local, strided, fixed, merged_strided")
    for name, default in (("stride", 128), ("batch", 4 if cuda else 1), ("heads", 8 if cuda else 2), ("d", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", default="bfloat16" if cuda else "float32", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--seconds", type=float, default=0.2, help="for each timing")
    parser.add_argument("--no-flex", action="store_true", help="compiling FlexAttention takes most of the time")
    a = parser.parse_args()
    where = torch.cuda.get_device_name() if a.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}; PyTorch {torch.__version__}; batch {a.batch}, heads {a.heads}, d {a.d}, {a.dtype}\n")
    print("| n | pattern | by | forward ms | forward + backward ms | time / weft |\n|---|---|---|---|---|---|")
    wrong = False
    for n in map(int, a.n.split(",")):
        inputs = [torch.randn(a.batch, n, a.heads, a.d, device=a.device, dtype=getattr(torch, a.dtype)).transpose(1, 2)
                  .requires_grad_() for _ in range(3)]
        d_o, at = torch.randn_like(inputs[2]), torch.arange(n, device=a.device)
        for name in a.patterns.split(","):
            pattern, predicate = cases(a.stride, max(1, a.stride // 4))[name]
            mask, ours = predicate(0, 0, at[:, None], at[None, :]), None
            for peer, function in peers(pattern, predicate, mask, not a.no_flex):
                try:
                    if peer != "SDPA dense":
                        check(function, inputs, d_o, mask)
                    forward, both = timed(function, inputs, d_o, a.seconds)
                    ours = ours or (forward, both)
                    cells = f"{forward:.3f} | {both:.3f} | {forward / ours[0]:.2f}, {both / ours[1]:.2f}"
                except Exception as problem:  # a peer that does not cover the case is a row of its own
                    wrong, ours = wrong or peer == "weft", ours or (float("nan"),) * 2
                    cells = f"{type(problem).__name__}: {str(problem).splitlines()[0][:80]} | |"
                print(f"| {n} | {name} | {peer} | {cells} |", flush=True)
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
