#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes model.h5: weights, tokens, and what PyTorch makes of them (logits, loss, gradients) for each pattern.

The model is written down here once more, from the paper (arXiv 1904.10509, section 5), with dense masks. PyTorch
computes in f64 on weights that are exact in f32. Needs torch, numpy and h5py; run it from anywhere:
python3 tests/golden/make_golden.py
"""
import math
import pathlib

import h5py
import numpy
import torch

VOCAB, CONTEXT, LAYERS, WIDTH, HEADS, HIDDEN = 17, 48, 2, 32, 2, 64
POSITION_AXES = (6, 8)
BATCH, LENGTH = 2, 45
STRIDE, C, NUM_VERTS = 8, 2, 2
EPS = 1e-5


def allowed(kind, head, i, j):
    """May query i of this head see key j?"""
    if j > i:
        return False
    if kind == "all":
        return True
    if kind == "local":
        return i - j < STRIDE
    if kind == "strided":
        return (i - j) % STRIDE == 0
    summary = STRIDE - C * (head % NUM_VERTS + 1)
    return i // STRIDE == j // STRIDE or summary <= j % STRIDE < summary + C


def make_weights():
    generator = torch.Generator().manual_seed(1)
    weights = {}

    def add(name, shape, std, offset=0.0):
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * std + offset
        weights[name] = values.float().double().requires_grad_()

    add("token_embedding", (VOCAB, WIDTH), 0.5)
    add("start", (WIDTH,), 0.5)
    for axis, rows in enumerate(POSITION_AXES):
        add(f"position.{axis}", (rows, WIDTH), 0.5)
    for layer in range(LAYERS):
        for norm in ("attention_norm", "mlp_norm"):
            add(f"blocks.{layer}.{norm}.weight", (WIDTH,), 0.2, 1.0)
            add(f"blocks.{layer}.{norm}.bias", (WIDTH,), 0.2)
        for name, rows, columns in (("attention.qkv", 3 * WIDTH, WIDTH), ("attention.proj", WIDTH, WIDTH),
                                    ("mlp.up", HIDDEN, WIDTH), ("mlp.down", WIDTH, HIDDEN)):
            add(f"blocks.{layer}.{name}.weight", (rows, columns), 1.5 / math.sqrt(columns))
            add(f"blocks.{layer}.{name}.bias", (rows,), 0.2)
    add("final_norm.weight", (WIDTH,), 0.2, 1.0)
    add("final_norm.bias", (WIDTH,), 0.2)
    add("output.weight", (VOCAB, WIDTH), 0.3)
    return weights


def norm(x, weights, name):
    return torch.nn.functional.layer_norm(x, (WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"], EPS)


def linear(x, weights, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def attention(x, weights, name, mask):
    batch, length, _ = x.shape
    q, k, v = (part.reshape(batch, length, HEADS, -1).transpose(1, 2)
               for part in linear(x, weights, f"{name}.qkv").split(WIDTH, dim=-1))
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    y = scores.masked_fill(~mask, -math.inf).softmax(-1) @ v
    return linear(y.transpose(1, 2).reshape(batch, length, WIDTH), weights, f"{name}.proj")


def model(tokens, weights, mask):
    """(B, T) tokens -> (B, T, V): row t predicts token t."""
    batch, length = tokens.shape
    positions = torch.arange(length)
    x = weights["token_embedding"][tokens]
    divisor = math.prod(POSITION_AXES)
    for axis, rows in enumerate(POSITION_AXES):
        divisor //= rows
        x = x + weights[f"position.{axis}"][positions // divisor % rows]
    x = torch.cat([weights["start"].expand(batch, 1, WIDTH), x[:, :-1]], dim=1)
    for layer in range(LAYERS):
        name = f"blocks.{layer}"
        x = x + attention(norm(x, weights, f"{name}.attention_norm"), weights, f"{name}.attention", mask)
        h = linear(norm(x, weights, f"{name}.mlp_norm"), weights, f"{name}.mlp.up")
        x = x + linear(h * torch.sigmoid(1.702 * h), weights, f"{name}.mlp.down")
    return norm(x, weights, "final_norm") @ weights["output.weight"].T


def main():
    weights = make_weights()
    tokens = torch.randint(0, VOCAB, (BATCH, LENGTH), generator=torch.Generator().manual_seed(2))
    with h5py.File(pathlib.Path(__file__).parent / "model.h5", "w") as file:
        def write(name, values):
            file[name] = values.detach().numpy().astype(numpy.float32)

        file["tokens"] = tokens.numpy().astype(numpy.int32)
        for name, values in weights.items():
            write(f"weights/{name}", values)
        for kind in ("all", "local", "strided", "fixed"):
            mask = torch.tensor([[[allowed(kind, head, i, j) for j in range(LENGTH)] for i in range(LENGTH)]
                                 for head in range(HEADS)])
            logits = model(tokens, weights, mask)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            gradients = torch.autograd.grad(loss, list(weights.values()))
            write(f"{kind}/logits", logits)
            write(f"{kind}/loss", loss.reshape(1))
            for name, gradient in zip(weights, gradients):
                write(f"{kind}/gradients/{name}", gradient)


if __name__ == "__main__":
    main()
