#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Published Triton kernels for attention to chosen blocks, beside weft's `topk_blocks`: blocks of 64, 8 a
query, n 12,288, D 64. The choices of `fla` and `nsa` are weft's and stand ready: kernels alone are compared.
Needs a GPU, PyTorch, and the packages on PYTHONPATH; one that is missing or fails is a line, too.

    fla   parallel_nsa of flash-linear-attention, bf16. At least 16 query heads share a key head and a choice:
          B 2, 16 query heads, 1 key head have the queries and pairs of B 4, H 8, and a sixteenth of its keys.
    nsa   native_sparse_attend of native-sparse-attention-pytorch, B 4, H 8. It computes in f16.
    moba  parallel_moba of flash-linear-attention over PyTorch's own FlashAttention-2, B 4, H 8, bf16. Each
          query chooses for itself, and that is counted: it is part of the function."""
import functools
import sys
import types

import torch

from content_peer import block_counts, chosen_blocks, dense
from timed import timed

BLOCK, MOST = 64, 8


def choices(q, k, heads):
    """(B, heads, n, MOST) blocks for each query; -1: none."""
    return chosen_blocks(q[:, :heads], k, BLOCK, MOST).repeat_interleave(BLOCK, 2)


def nsa_of_fla(q, k, v):
    from fla.ops.nsa.parallel import parallel_nsa
    blocks = choices(q, k, 1).transpose(1, 2).sort(-1, descending=True).values
    counts = (blocks >= 0).sum(-1)
    rows = lambda x: x.transpose(1, 2).contiguous()
    return lambda q, k, v: parallel_nsa(rows(q), rows(k), rows(v), block_indices=blocks.contiguous(),
                                        block_counts=counts, block_size=BLOCK).transpose(1, 2)


def nsa_of_lucidrains(q, k, v):
    from native_sparse_attention_pytorch.triton_native_sparse_attention import native_sparse_attend
    others = choices(q, k, q.shape[1])[..., 1:].contiguous()  # the own block is seen without being named
    return lambda q, k, v: native_sparse_attend(q, k, v, BLOCK, others.clamp_min(0), others >= 0)


def torch_as_flash_attn():
    """What parallel_moba calls of the package flash-attn, from PyTorch's copy of FlashAttention-2."""
    aten = torch.ops.aten

    def forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, causal, **_):
        y, lse, *_ = aten._flash_attention_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                                   max_seqlen_k, 0.0, causal, False, scale=softmax_scale)
        return y, lse, None, None

    def backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                 max_seqlen_k, softmax_scale, causal, **_):
        unused = torch.zeros(2, dtype=torch.uint64, device=q.device)  # state of a dropout
        gradients = aten._flash_attention_backward(
            dout, q, k, v, out, softmax_lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0,
            causal, unused, unused[0], scale=softmax_scale)
        for to, x in zip((dq, dk, dv), gradients):
            to.copy_(x)

    module, interface = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.flash_attn_interface")
    module.flash_attn_varlen_func = module.flash_attn_func = forward
    interface._flash_attn_varlen_forward, interface._flash_attn_varlen_backward = forward, backward
    return {"flash_attn": module, "flash_attn.flash_attn_interface": interface}


def moba_of_fla(q, k, v):
    sys.modules.update(torch_as_flash_attn())
    from fla.ops.moba.parallel import parallel_moba
    n = q.shape[2]
    ends = torch.tensor([0, n], dtype=torch.int32, device=q.device)
    row = lambda x: x.transpose(0, 1)[None].contiguous()  # a call each: it scores across sequences
    return lambda q, k, v: torch.cat([parallel_moba(*(row(x[b]) for x in (q, k, v)), ends, n, BLOCK, MOST)
                                      for b in range(len(q))]).transpose(1, 2)


def moba_counts(q, k):
    """Of MoBA: each query chooses blocks before its own."""
    n, at = q.shape[2], torch.arange(q.shape[2], device=q.device) // BLOCK
    gates = q @ k.bfloat16().unflatten(2, (-1, BLOCK)).mean(3).float().mT  # means are bf16 there
    gates = gates.masked_fill(torch.arange(n // BLOCK, device=q.device) >= at[:, None], -torch.inf)
    best = gates.topk(MOST - 1, -1)
    seen = torch.zeros_like(gates, dtype=torch.bool).scatter(-1, best.indices, best.values > -torch.inf)
    seen.scatter_(-1, at.expand(*q.shape[:2], n)[..., None], True)
    return seen.repeat_interleave(BLOCK, 3).tril().long()


def main():
    ours = lambda q, k: block_counts(q, k, BLOCK, MOST)
    for name, prepare, B, H, key_heads, counts in (("fla", nsa_of_fla, 2, 16, 1, ours),
                                                   ("nsa", nsa_of_lucidrains, 4, 8, 8, ours),
                                                   ("moba", moba_of_fla, 4, 8, 8, moba_counts)):
        torch.manual_seed(1)
        q, dy = torch.randn(2, B, H, 12288, 64, device="cuda", dtype=torch.bfloat16)
        k, v = torch.randn(2, B, key_heads, 12288, 64, device="cuda", dtype=torch.bfloat16)
        inputs = [x.requires_grad_() for x in (q, k, v)]
        ready = functools.partial(prepare, q.detach(), k.detach(), v.detach())
        timed(name, lambda q, k, v: dense(q, k, v, counts(q[:, :1], k)), ready, inputs, dy, H // key_heads)


if __name__ == "__main__":
    main()
