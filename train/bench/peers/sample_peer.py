#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Greedy sampling from a weft model in stock PyTorch: a static cache of keys and values, the keys of the pattern gathered
for each position, residual blocks compiled, on a GPU all launches of a token in one CUDA graph. Prints a JSON line: tokens/s,
ms to the first token, text.

    convert runs/tiny/best.h5 tiny.safetensors
    sample_peer.py --weights tiny.safetensors --prompt 'Holmes ' --length 200 [--batch 64] [--dtype bf16] [--mode eager]
    sample_peer.py ... --against build/cpu/bin/sample --checkpoint runs/tiny/best.h5 --rounds 3   both in turn, same text

Needs PyYAML and libweft_attention (WEFT_ATTENTION_LIBRARY), which draws the masks and computes nothing else."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../src/python"))
from weft_attention.patterns import of_config  # noqa: E402
from weft_attention.sparse_transformer import axis_index, load  # noqa: E402


class Keys:
    """Of one entry of model.attention: the keys of each position (n, H or 1, longest), and which of them are real."""

    def __init__(self, spec, n, heads, device):
        self.mask = torch.from_numpy(of_config(spec).mask(n, heads=heads)).to(device)
        mask = self.mask[:1] if bool((self.mask == self.mask[:1]).all()) else self.mask
        longest = int(mask.sum(-1).max())
        real, keys = mask.int().sort(dim=-1, descending=True, stable=True)
        self.keys = keys[..., :longest].transpose(0, 1).contiguous()
        self.real = real[..., :longest].transpose(0, 1).bool().contiguous()


def block_step(block, x, keys, values, listed, real, at, turn):
    """A residual block at position `at` (1) of its texts: what is compiled, once for all blocks."""
    def attend(q, k, v):
        keys.index_copy_(2, at, k)
        values.index_copy_(2, at, v)

        def gathered(cache):
            if len(listed) == 1:
                return cache.index_select(2, listed[0])
            return cache.gather(2, listed[None, :, :, None].expand(len(cache), -1, -1, cache.shape[-1]))
        return F.scaled_dot_product_attention(q, gathered(keys), gathered(values), attn_mask=real[None, :, None, :])
    return block(x, attend, turn)


class Decoder:
    """Of `batch` texts of at most n tokens."""

    def __init__(self, model, batch, n, mode):
        m = self.m = model.m
        self.model, self.device = model, model.token_embedding.device
        self.patterns = [Keys(spec, n, m.heads, self.device) for spec in m.attention]
        attention = model.blocks[0].attention
        room = lambda *shape: torch.zeros(batch, *shape, device=self.device, dtype=model.token_embedding.dtype)
        self.cache = [(room(m.heads, n, attention.qk), room(m.heads, n, attention.v)) for _ in model.blocks]
        self.token, self.drawn, self.at = room(1).long(), room(n).long(), torch.ones(1, dtype=torch.long, device=self.device)
        self.block = block_step if mode == "eager" else torch.compile(block_step, dynamic=False, mode=mode)
        self.step = self.recorded() if self.device.type == "cuda" else self.one

    def pattern(self, layer):
        return self.patterns[layer % len(self.patterns)]

    @torch.no_grad()
    def one(self):
        """Draws token `at` behind self.token, which is at - 1, and goes one further."""
        x, at = self.model.token_embedding[self.token], self.at
        for a, table in enumerate(self.model.position):
            x = x + table[axis_index(at - 1, self.m.position_axes, a)]
        turn = None if self.model.turn is None else self.model.turn.index_select(1, at)
        seen = [[t.index_select(0, at)[0] for t in (p.keys, p.real)] for p in self.patterns]
        for layer, block in enumerate(self.model.blocks):
            x = self.block(block, x, *self.cache[layer], *seen[layer % len(seen)], at, turn)
        self.token.copy_(self.logits(x).argmax(-1))
        self.drawn.index_copy_(1, at, self.token)
        at += 1

    def recorded(self):
        """one() as a CUDA graph."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.one()
        torch.cuda.synchronize()
        self.at.fill_(1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.one()
        return graph.replay

    def logits(self, x):
        output = self.model.output
        return F.linear(self.model.final_norm(x), self.model.token_embedding if output is None else output.weight)

    def read(self, tokens):
        """Fills the cache with the rows of a prompt (B, n) in one pass."""
        n, layers = tokens.shape[1], iter(range(len(self.model.blocks)))

        def attend(q, k, v):
            layer = next(layers)
            for cache, new in zip(self.cache[layer], (k, v)):
                cache[:, :, :n] = new
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.pattern(layer).mask[:, :n, :n])
        self.model.attends[n] = [attend] * len(self.patterns)
        self.model(tokens)
        del self.model.attends[n]

    @torch.no_grad()
    def sample(self, prompt, length):
        """Tokens (B, length), seconds, and seconds to the first of them."""
        wait = torch.cuda.synchronize if self.device.type == "cuda" else lambda: None
        begun, given = time.perf_counter(), prompt.shape[1]
        self.read(prompt)
        self.token.copy_(prompt[:, -1:])
        self.at.fill_(given)
        for i in range(length):
            self.step()
            if i == 0:
                wait()
                first = time.perf_counter() - begun
        wait()
        return self.drawn[:, given:given + length], time.perf_counter() - begun, first


def peer(a):
    torch.set_num_threads(a.threads)
    model = load(a.weights, a.device).to({"f32": torch.float32, "bf16": torch.bfloat16}[a.dtype])
    prompt = torch.tensor([list(a.prompt.encode())] * a.batch, device=a.device)
    decoder = Decoder(model, a.batch, prompt.shape[1] + a.length, a.mode)
    decoder.sample(prompt, min(8, a.length))  # compiles

    def run():
        drawn, seconds, first = decoder.sample(prompt, a.length)
        return {"tok_s": a.batch * a.length / seconds, "first_ms": 1e3 * first, "text": bytes(drawn[0].tolist()).decode("latin1")}
    return run


def ours(a):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "text")
        command = [a.against, "--checkpoint", a.checkpoint, "--prompt", a.prompt, "--length", str(a.length), "--temperature", "0",
                   "--count", str(a.batch), "--device", a.device, "--json", "--out", out]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        row = json.loads(said.strip().splitlines()[-1])
        return {"tok_s": row["tok_s"], "first_ms": row["first_ms"], "text": open(out, "rb").read(a.length).decode("latin1")}  # the first one


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--mode", default="default", help="eager, or one of torch.compile, without graphs of its own")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--against", help="the program sample: its speed and PyTorch's in turn")
    parser.add_argument("--checkpoint")
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    run = peer(a)
    if not a.against:
        return print(json.dumps(run()))
    theirs, mine = [], []
    for _ in range(a.rounds):
        theirs.append(run())
        mine.append(ours(a))
    same = {row["text"] for row in theirs + mine}
    median = lambda rows, key: round(statistics.median(row[key] for row in rows), 1)
    print(json.dumps({"weft_tok_s": median(mine, "tok_s"), "torch_tok_s": median(theirs, "tok_s"), "weft_first_ms": median(mine, "first_ms"),
                      "torch_first_ms": median(theirs, "first_ms"), "ratio": round(median(mine, "tok_s") / median(theirs, "tok_s"), 2),
                      "same_text": len(same) == 1, "torch": torch.__version__}))
    if len(same) > 1:
        sys.exit("error: the texts differ")


if __name__ == "__main__":
    main()
