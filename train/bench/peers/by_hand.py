# SPDX-License-Identifier: MIT
"""Sparse attention as a PyTorch user would write it by hand: functions of q, k (B, H, n, Dqk) and v (B, H, n, Dv) that give
(B, H, n, Dv), for any dtype, differentiable. `scale` is 1 / sqrt(Dqk) throughout."""
import os
import sys

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../src/python"))
from weft_attention.bench import cases  # noqa: E402


def to_columns(x, s):
    """(B, H, rows * s, D) -> (B * s, H, rows, D): positions a stride apart become neighbours."""
    B, H, n, D = x.shape
    return x.view(B, H, n // s, s, D).permute(0, 3, 1, 2, 4).reshape(B * s, H, n // s, D)


def from_columns(x, s):
    B, H, rows, D = x.shape
    return x.view(B // s, s, H, rows, D).permute(0, 2, 3, 1, 4).reshape(B // s, H, rows * s, D)


def dense(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def transposed(s, attend=dense):
    """strided: one causal sequence for each column."""
    return lambda q, k, v: from_columns(attend(*(to_columns(x, s) for x in (q, k, v))), s)


def flex(kind, n, s, c, device):
    mask = create_block_mask(cases(s, c)[kind][1], None, None, n, n, device=device)
    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask)


def with_summaries(x, s, c):
    """The last c positions of each block, put before all positions."""
    B, H, n, D = x.shape
    return torch.cat([x.view(B, H, n // s, s, D)[:, :, :, s - c:].reshape(B, H, n // s * c, D), x], 2)


def seen_of_gathered(n, s, c):
    count = n // s * c

    def seen(b, h, q, k):
        own = k - count
        return ((k < count) & (k // c < q // s)) | ((own >= 0) & (q >= own) & (q // s == own // s))
    return seen


def gathered(n, s, c, device, mask=None):
    """fixed: summaries before the keys, so that FlexAttention's mask has few blocks."""
    mask = mask or create_block_mask(seen_of_gathered(n, s, c), None, None, n, n + n // s * c, device=device)
    return lambda q, k, v: flex_attention(q, with_summaries(k, s, c), with_summaries(v, s, c), block_mask=mask)


def in_blocks(n, s, c, device):
    """fixed, where FlexAttention has no backward pass (CPU): each block with the summaries and its own keys."""
    at, count = torch.arange(n, device=device).view(-1, s), n // s * c
    keys = torch.cat([torch.arange(count, device=device).expand(len(at), -1), at + count], 1)
    seen = seen_of_gathered(n, s, c)(0, 0, at[..., None], keys[:, None])

    def attend(q, k, v):
        q, k, v = (x.unflatten(2, (-1, s)) for x in (q, k, v))
        k, v = (torch.cat([x[..., s - c:, :].flatten(2, 3)[:, :, None].expand(-1, -1, n // s, -1, -1), x], 3) for x in (k, v))
        return scaled_dot_product_attention(q, k, v, attn_mask=seen).flatten(2, 3)
    return attend


def masked(kind, n, s, c, device):
    """A mask over all pairs."""
    at = torch.arange(n, device=device)
    seen = cases(s, c)[kind][1](0, 0, at[:, None], at)
    return lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=seen)


def joined(n, s, device):
    """merged local and strided: each by itself, joined by their log-sum-exp. A query's own key is the local part's."""
    local = create_block_mask(cases(s, 0)["local"][1], None, None, n, n, device=device)
    earlier = create_block_mask(lambda b, h, q, k: q > k, None, None, n // s, n // s, device=device)

    def attend(q, k, v):
        near, near_lse = flex_attention(q, k, v, block_mask=local, return_lse=True)
        far, far_lse = flex_attention(*(to_columns(x, s) for x in (q, k, v)), block_mask=earlier, return_lse=True)
        far, far_lse = from_columns(far, s), from_columns(far_lse[..., None], s)[..., 0]
        both = torch.logaddexp(near_lse, far_lse)
        share = lambda lse: torch.exp(lse - both)[..., None].to(v.dtype)
        return near * share(near_lse) + far * share(far_lse)
    return attend


def best(spec, n, device):
    """For a pattern of a config (a mapping with kind, stride, c): what is fastest in stock PyTorch at n positions."""
    kind, s, c = spec["kind"], spec.get("stride", 128), spec.get("c", 32)
    if kind == "all" or (kind == "local" and s >= n):
        return dense
    if kind == "merged":
        parts = {part["kind"]: part.get("stride", 128) for part in spec["of"]}
        if set(parts) == {"local", "strided"} and parts["local"] == parts["strided"] and n % parts["local"] == 0:
            return masked("merged_strided", n, parts["local"], c, device) if device == "cpu" else joined(n, parts["local"], device)
    elif kind == "strided" and n % s == 0:
        return transposed(s)
    elif kind == "local":
        return (masked if device == "cpu" else flex)("local", n, s, c, device)
    elif kind == "fixed" and n % s == 0:
        return (in_blocks if device == "cpu" else gathered)(n, s, c, device)
    raise SystemExit(f"no form by hand of {spec} at {n} positions: expected all, local, strided, fixed or a merged pair")
