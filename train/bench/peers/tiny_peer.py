#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a tiny model with the recipe of the paper in PyTorch on the CPU, and times our step of it in turn.

    tiny_peer.py --mode eager|compile --attention mask|gather      tokens/s of PyTorch: median, fastest
    tiny_peer.py --against build/cpu/bin/bench --rounds 5          both, in alternation: all rates and their ratio

PyTorch gets the better of two attentions: an additive mask over all pairs, or the keys of a block and of the summaries
gathered by hand. Same batch, context, f32, dropout 0, clipping at norm 1, fused AdamW. OPENBLAS_CORETYPE, where it
is set, holds for our side alone: unset it.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

BATCH, CONTEXT, LAYERS, WIDTH, HEADS, STRIDE, C, VOCAB = 8, 128, 2, 128, 4, 16, 4, 256


def attention(torch, kind):
    """q, k, v (B, H, n, D) -> (B, H, n, D): the block of a query and the last C positions of the blocks before it."""
    attend = torch.nn.functional.scaled_dot_product_attention
    at = torch.arange(CONTEXT)
    query, key = at[:, None], at[None, :]
    seen = (key <= query) & ((key // STRIDE == query // STRIDE) | (key % STRIDE >= STRIDE - C))
    if kind == "mask":
        bias = torch.zeros(CONTEXT, CONTEXT).masked_fill_(~seen, float("-inf"))
        return lambda q, k, v: attend(q, k, v, attn_mask=bias)
    blocks = CONTEXT // STRIDE
    summary = at[at % STRIDE >= STRIDE - C]
    own = at.view(blocks, STRIDE)
    of_block = torch.cat([summary.expand(blocks, -1), own], 1)  # keys of each block: the summaries, then its own
    ours = torch.stack([seen[own[b]][:, of_block[b]] for b in range(blocks)])
    for b in range(blocks):  # a summary of the block itself is among its own keys
        ours[b, :, : len(summary)] &= (summary // STRIDE < b)[None, :]
    bias = torch.zeros(ours.shape).masked_fill_(~ours, float("-inf"))[None].expand(BATCH * HEADS, -1, -1, -1)

    def gathered(q, k, v):
        shape = (BATCH * HEADS, blocks, STRIDE, q.shape[-1])
        def keys(t):
            t = t.reshape(shape)
            few = t[:, :, STRIDE - C:].reshape(shape[0], 1, -1, shape[3]).expand(-1, blocks, -1, -1)
            return torch.cat([few, t], 2)
        return attend(q.reshape(shape), keys(k), keys(v), attn_mask=bias).view(q.shape)

    return gathered


def model(torch, kind):
    nn, attend = torch.nn, attention(torch, kind)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            packed = self.qkv(self.norm1(x)).view(BATCH, CONTEXT, 3, HEADS, WIDTH // HEADS)
            q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)
            x = x + self.proj(attend(q, k, v).transpose(1, 2).reshape(x.shape))
            h = self.up(self.norm2(x))
            return x + self.down(h * torch.sigmoid(1.702 * h))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.start = nn.Parameter(torch.zeros(WIDTH))
            self.token = nn.Embedding(VOCAB, WIDTH)
            self.row = nn.Embedding(CONTEXT // STRIDE, WIDTH)
            self.column = nn.Embedding(STRIDE, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

        def forward(self, tokens):
            at = torch.arange(CONTEXT - 1)
            x = self.token(tokens[:, :-1]) + self.row(at // STRIDE) + self.column(at % STRIDE)
            x = torch.cat([self.start.expand(BATCH, 1, WIDTH), x], 1)
            for block in self.blocks:
                x = block(x)
            logits = self.output(self.norm(x))
            return nn.functional.cross_entropy(logits.view(-1, VOCAB), tokens.view(-1))

    return Model()


def train(mode, kind, steps, threads):
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    net = model(torch, kind)
    decayed = [p for p in net.parameters() if p.ndim >= 2]
    rest = [p for p in net.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), fused=True)
    loss_of = torch.compile(net, dynamic=False) if mode == "compile" else net
    tokens = torch.randint(0, VOCAB, (BATCH, CONTEXT))
    times = []
    for step in range(steps + 10):
        began = time.perf_counter()
        loss_of(tokens).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= 10:
            times.append(time.perf_counter() - began)
    tokens_a_step = BATCH * CONTEXT
    return {"mode": mode, "attention": kind, "tok_s": tokens_a_step / statistics.median(times),
            "tok_s_best": tokens_a_step / min(times)}


def ours(bench, steps):
    keys = [f"model.context={CONTEXT}", f"model.layers={LAYERS}", f"model.width={WIDTH}", f"model.heads={HEADS}",
            f"model.attention={{kind: fixed, stride: {STRIDE}, c: {C}}}", f"train.batch={BATCH}", "model.positions=learned",
            f"model.position_axes=[{CONTEXT // STRIDE}, {STRIDE}]", "model.qk_norm=none", "model.activation=gelu",
            "train.optimizer=adamw"]
    out = subprocess.run([bench, "step", "--config", "tiny.yaml", "--device", "cpu", "--steps", str(steps),
                          "--no-breakdown", "--json"] + [part for key in keys for part in ("--set", key)],
                         check=True, capture_output=True, text=True).stdout
    row = json.loads(out)
    return {"tok_s": row["tok_s"], "tok_s_best": row["tokens"] / row["ms_min"] * 1e3}


def alternate(options):
    peers = [(m, k) for m in options.mode.split(",") for k in options.attention.split(",")]
    rates = {"weft": []} | {f"{m}, {k}": [] for m, k in peers}
    for _ in range(options.rounds):
        rates["weft"].append(ours(options.against, options.steps))
        for m, k in peers:
            command = [sys.executable, __file__, "--mode", m, "--attention", k, "--steps", str(options.steps),
                       "--threads", str(options.threads)]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            rates[f"{m}, {k}"].append(json.loads(out))
    median = {name: statistics.median(r["tok_s"] for r in rows) for name, rows in rates.items()}
    best = {name: max(r["tok_s_best"] for r in rows) for name, rows in rates.items()}
    for name, rows in rates.items():
        print(f"{name:18} tok/s: median {median[name]:8.0f}  fastest step {best[name]:8.0f}  of each round "
              + " ".join(f"{r['tok_s']:.0f}" for r in rows))
    del median["weft"], best["weft"]
    ours_median = statistics.median(r["tok_s"] for r in rates["weft"])
    ours_best = max(r["tok_s_best"] for r in rates["weft"])
    print(f"weft / fastest peer: medians {ours_median / max(median.values()):.2f}, "
          f"fastest steps {ours_best / max(best.values()):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="eager", help="eager, compile; with --against several, separated by commas")
    parser.add_argument("--attention", default="mask", help="mask, gather; with --against several")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--against", help="the program bench: its step and PyTorch's in turn")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.against:
        return alternate(options)
    print(json.dumps(train(options.mode, options.attention, options.steps, options.threads)))


if __name__ == "__main__":
    main()
