#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What PyTorch offers for the shapes and patterns of rows of `bench attention --json`, in bf16: a JSON row for each, with the
keys of those rows. Needs a GPU and PyTorch 2.5 or later; errors are rows, too.

    torch_peers.py weft.jsonl > peers.jsonl

sdpa_cudnn, sdpa_flash: scaled_dot_product_attention with that backend (flash: queries and keys padded to the size of values).
flex_plain: FlexAttention with the pattern as its mask. transposed_*: a time axis of (rows, stride) turned around, which makes
columns of `strided` sequences of their own. joined_flex: local and transposed strided, joined by their log-sum-exp.
gathered_flex: summaries of `fixed` put before the keys, so that the mask has few blocks.

Compiling takes far longer than timing: first processes side by side compile everything into PyTorch's cache. Medians of
triton.testing.do_bench, which clears the second-level cache before each run."""
import argparse
import concurrent.futures
import json
import multiprocessing
import os

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention

import by_hand
from compare_attention import rows_of, shape_of

DEVICE = "cuda"
BLOCK = 128  # edge of FlexAttention's blocks
LONGEST_MASK = 1 << 17  # masks as written are evaluated pair by pair
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


class Case:
    """The shape and the pattern of a row; its functions take q, k and v of (B, H, N, size) and give (B, H, N, Dv)."""

    def __init__(self, row):
        self.keys = {k: row[k] for k in ("case", "mode", "B", "H", "N", "D", "Dv", "s", "c")} | {"dtype": "bf16"}
        self.mode = row["mode"]
        self.B, self.H, self.N, self.Dqk, self.Dv, self.s, self.c = shape_of(row)

    def block_mask(self, mask, keys):
        """create_block_mask() in rows of blocks, so that no table of all pairs is held."""
        rows = -(-self.N // BLOCK)
        if self.N > LONGEST_MASK:
            some, every = self.blocks_of_gathered()
        else:
            some, every = (torch.zeros(rows, -(-keys // BLOCK), dtype=torch.bool, device=DEVICE) for _ in range(2))
            k = torch.arange(keys, device=DEVICE)
            for row in range(rows):
                q = torch.arange(row * BLOCK, min(self.N, (row + 1) * BLOCK), device=DEVICE)[:, None]
                seen = F.pad(mask(0, 0, q, k[None, :]).expand(len(q), keys), (0, -keys % BLOCK)).view(len(q), -1, BLOCK)
                some[row], every[row] = seen.any(2).any(0), seen.all(2).all(0)
        ordered = lambda blocks: (blocks.sum(-1).int()[None, None],
                                  torch.argsort(blocks.int(), dim=-1, descending=True, stable=True).int()[None, None])
        return BlockMask.from_kv_blocks(*ordered(some & ~every), *ordered(every), BLOCK_SIZE=BLOCK, mask_mod=mask, seq_lengths=(self.N, keys))

    def blocks_of_gathered(self):
        """Of gathered_flex, where strides are whole blocks: those with any and with only seen pairs."""
        of_stride, in_block = self.s // BLOCK, BLOCK // self.c
        row = torch.arange(self.N // BLOCK, device=DEVICE)[:, None]
        summary = torch.arange(self.N // self.s * self.c // BLOCK, device=DEVICE)[None, :]
        own, same = row.T, row // of_stride == row.T // of_stride
        return (torch.cat([summary * in_block < row // of_stride, same & (own <= row)], 1),
                torch.cat([summary * in_block + in_block - 1 < row // of_stride, same & (own < row)], 1))

    def sdpa(self, backend):
        def attend(q, k, v):
            if backend == "flash" and self.Dqk < self.Dv:
                q, k = (F.pad(x, (0, self.Dv - self.Dqk)) for x in (q, k))
            with sdpa_kernel(BACKENDS[backend]):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.Dqk**-0.5)
        return attend

    def flex(self):
        mask = self.block_mask(by_hand.cases(self.s, self.c)[self.mode][1], self.N)
        return lambda q, k, v: flex_attention(q, k, v, block_mask=mask)

    def gathered(self):
        mask = self.block_mask(by_hand.seen_of_gathered(self.N, self.s, self.c), self.N + self.N // self.s * self.c)
        return by_hand.gathered(self.N, self.s, self.c, DEVICE, mask)

    def peers(self):
        """{name: what makes the function}"""
        makers = {}
        if self.mode == "all":
            makers = {"sdpa_" + b: lambda b=b: self.sdpa(b) for b in BACKENDS}
        if self.mode == "strided":
            makers = {"transposed_sdpa_" + b: lambda b=b: by_hand.transposed(self.s, self.sdpa(b)) for b in BACKENDS}
        if self.mode == "fixed":
            makers = {"gathered_flex": self.gathered}
        if self.N > LONGEST_MASK:
            return makers
        if self.mode == "merged_strided":
            makers = {"joined_flex": lambda: by_hand.joined(self.N, self.s, DEVICE)}
        return makers | {"flex_plain": self.flex}

    def prepared(self, make):
        """Compiles both passes; returns what runs the forward pass alone, and both."""
        function = torch.compile(make(), dynamic=False)
        inputs = [torch.randn(self.B, self.H, self.N, size, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
                  for size in (self.Dqk, self.Dqk, self.Dv)]
        gradient = torch.randn_like(function(*inputs))

        def forward():
            with torch.no_grad():
                return function(*inputs)

        def both():
            return torch.autograd.grad(function(*inputs), inputs, gradient)
        forward()
        both()
        return forward, both

    def times(self, make):
        from triton.testing import do_bench
        ms = [do_bench(run, warmup=25, rep=150, return_mode="median") for run in self.prepared(make)]
        return dict(zip(("fwd_ms", "fwdbwd_ms"), (round(t, 4) for t in ms)))

    def rows(self, measure):
        for peer, make in self.peers().items():
            try:
                result = measure(self, make)
            except Exception as error:  # any: what cannot run is a row of the table, too
                result = {"error": repr(error)[:300]}
            torch.compiler.reset()
            yield self.keys | {"peer": peer} | result


def compiled(row):
    """Leaves what is compiled in PyTorch's cache."""
    return list(Case(row).rows(lambda case, make: {"compiled": len(case.prepared(make))}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    rows = {shape_of(row) + (row["mode"],): row for row in rows_of(parser.parse_args().weft) if "fwd_ms" in row}
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compiled, rows.values()))
    for row in rows.values():
        for timed in Case(row).rows(Case.times):
            print(json.dumps(timed), flush=True)


if __name__ == "__main__":
    main()
