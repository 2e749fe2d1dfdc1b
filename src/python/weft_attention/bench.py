# SPDX-License-Identifier: MIT
"""Times weft_attention beside PyTorch's FlexAttention (compiled) and scaled_dot_product_attention: milliseconds forward, and
forward + backward, of the median run, as a Markdown table. Dense SDPA computes all causal pairs; masked SDPA takes the mask.

    python -m weft_attention.bench [--device cpu] [--n 4096,12288] [--heads 8] [--d 64] [--batch 4] [--dtype bfloat16]"""
import argparse

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
from torch.utils.benchmark import Timer  # it waits for the GPU

from . import attention, fixed, local, patterns, strided

MOST_MASKED = 1 << 26  # pairs: masks of more are not built for SDPA


def mask_of(kind, s, c):
    """The pattern as FlexAttention's mask: stride s, summaries of c positions."""
    return {
        "all": lambda b, h, q, k: q >= k,
        "local": lambda b, h, q, k: (q >= k) & (q - k < s),
        "strided": lambda b, h, q, k: (q >= k) & ((q - k) % s == 0),
        "fixed": lambda b, h, q, k: (q >= k) & ((q // s == k // s) | (k % s >= s - c)),
        "merged_strided": lambda b, h, q, k: (q >= k) & ((q - k < s) | ((q - k) % s == 0)),
    }[kind]


def cases(stride, c):
    return {"all": patterns.all(), "local": local(stride), "strided": strided(stride), "fixed": fixed(stride, c),
            "merged_strided": local(stride) | strided(stride)}


def peers(pattern, mask_mod, n, device):
    """name -> function of q, k, v (B, H, n, d); FlexAttention where there is a mask_mod."""
    found = {"weft": lambda q, k, v: attention(q, k, v, pattern, layout="bhtd"),
             "SDPA dense": lambda q, k, v: sdpa(q, k, v, is_causal=True)}
    if n * n <= MOST_MASKED:
        mask = torch.from_numpy(pattern.mask(n)[0]).to(device)
        found["SDPA masked"] = lambda q, k, v: sdpa(q, k, v, attn_mask=mask)
    if mask_mod:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        blocks = create_block_mask(mask_mod, None, None, n, n, device=device)
        found["FlexAttention"] = torch.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), dynamic=False)
    return found


def timed(function, inputs, seconds):
    """(ms forward, ms forward + backward), or the error."""
    def forward():
        with torch.no_grad():
            return function(*inputs)
    try:
        d_o = torch.randn_like(forward())
        both = lambda: torch.autograd.grad(function(*inputs), inputs, d_o)
        both()  # compiles what is compiled
        return [1e3 * Timer("f()", globals={"f": f}, num_threads=torch.get_num_threads()).blocked_autorange(min_run_time=seconds).median
                for f in (forward, both)]
    except Exception as problem:  # a peer that does not cover the case is a row of its own
        return f"{type(problem).__name__}: {str(problem).splitlines()[0][:80]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if cuda else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--n", default="4096,12288" if cuda else "1024", help="positions")
    parser.add_argument("--stride", type=int, default=128)
    for name, default in (("batch", 4 if cuda else 1), ("heads", 8 if cuda else 2), ("d", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", default="bfloat16" if cuda else "float32")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each timing")
    parser.add_argument("--no-flex", action="store_true", help="compiling FlexAttention takes most of the time")
    a = parser.parse_args()
    where = torch.cuda.get_device_name() if a.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}; PyTorch {torch.__version__}; batch {a.batch}, heads {a.heads}, d {a.d}, {a.dtype}\n")
    print("| n | pattern | by | forward ms | forward + backward ms | time / weft |\n|---|---|---|---|---|---|")
    for n in map(int, a.n.split(",")):
        inputs = [torch.randn(a.batch, n, a.heads, a.d, device=a.device, dtype=getattr(torch, a.dtype)).transpose(1, 2)
                  .requires_grad_() for _ in range(3)]
        for name, pattern in cases(a.stride, c := max(1, a.stride // 4)).items():
            ours, mask_mod = None, None if a.no_flex else mask_of(name, a.stride, c)
            for peer, function in peers(pattern, mask_mod, n, a.device).items():
                result = timed(function, inputs, a.seconds)
                if isinstance(result, str):
                    print(f"| {n} | {name} | {peer} | {result} | | |", flush=True)
                    continue
                ours = ours or result
                print(f"| {n} | {name} | {peer} | {result[0]:.3f} | {result[1]:.3f} | {result[0] / ours[0]:.2f}, "
                      f"{result[1] / ours[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
