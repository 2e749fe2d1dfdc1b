#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Attention where content decides (src/patterns/README.md) in PyTorch, twice: as a dense matrix of how often a query sees a
key, the definition, and as a user would write it by hand, sorted or gathered. q, k (B, H, n, D), v (B, H, n, Dv).

    content_peer.py            the two forms agree, and no query depends on later tokens
    content_peer.py --bench    times of the second, B 4, H 8, n 12,288, D 64, bf16, on a GPU"""
import argparse

import torch
import torch.nn.functional as F


def routing_labels(q, centroids):
    """(1, B, H, n): the centroid (H, C, D) of the largest cosine."""
    return torch.einsum("bhnd,hcd->bhnc", q.float(), F.normalize(centroids, dim=-1)).argmax(-1)[None]


def lsh_labels(q, signs):
    """(R, B, H, n): argmax(q s, -q s) of both halves of the columns of signs (R, C, D)."""
    C = signs.shape[1]
    s, t = torch.einsum("bhnd,rcd->rbhnc", q.float(), signs.float()).split(C // 2, -1)
    return torch.cat((s, -s), -1).argmax(-1) * C + torch.cat((t, -t), -1).argmax(-1)


def shared_keys(q):
    return q / q.norm(dim=-1, keepdim=True).clamp_min(1e-6)

# ---- dense: c[b, h, i, j] is how often query i sees key j


def label_counts(labels, w):
    same = labels[..., :, None] == labels[..., None, :]
    before = same.tril(-1)
    rank = before.sum(-1)
    counts = (before & (rank[..., :, None] - rank[..., None, :] <= w)).sum(0)
    nothing = counts.sum(-1) == 0  # sees itself
    return counts + torch.diag_embed(nothing.to(counts.dtype))


def block_counts(q, k, block, most):
    n = q.shape[2]
    chosen = chosen_blocks(q, k, block, most)
    blocks = torch.zeros(*chosen.shape[:3], chosen.shape[2] + 1, dtype=torch.bool, device=q.device)
    blocks.scatter_(-1, chosen.where(chosen >= 0, torch.full_like(chosen, chosen.shape[2])), True)
    sees = blocks[..., :-1].repeat_interleave(block, 2)[:, :, :n].repeat_interleave(block, 3)[..., :n]
    return sees.tril().long()


def dense(q, k, v, counts):
    scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    return ((scores + counts.log()).softmax(-1)).to(v.dtype) @ v

# ---- by hand


def windowed(q, v, labels, w):
    """Sorted by label, cut into chunks of w slots: a query sees those of its label among the w slots before it."""
    B, H, n, D = q.shape
    k, pad = shared_keys(q), -n % w
    total, lse = 0, None
    for label in labels:
        order = (label * n + torch.arange(n, device=q.device)).argsort(-1)
        rows = lambda x: F.pad(x.gather(2, order[..., None].expand(B, H, n, x.shape[-1])), (0, 0, 0, pad))
        chunks = lambda x: rows(x).unflatten(2, (-1, w))
        with_earlier = lambda x: torch.cat((F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x), 3)
        of_slot = F.pad(label.gather(2, order), (0, pad), value=-1).unflatten(2, (-1, w))
        of_key = torch.cat((F.pad(of_slot, (0, 0, 1, 0), value=-2)[:, :, :-1], of_slot), 3)
        back = torch.arange(w, 2 * w, device=q.device)[:, None] - torch.arange(2 * w, device=q.device)
        sees = (of_slot[..., None] == of_key[..., None, :]) & (back >= 1) & (back <= w)
        scores = (chunks(q) @ with_earlier(chunks(k)).transpose(-1, -2)).float() * D ** -0.5
        scores = scores.masked_fill(~sees, -1e30)
        of_round = scores.logsumexp(-1)
        p = (scores - of_round[..., None]).exp().masked_fill(~sees, 0)
        y = (p.to(v.dtype) @ with_earlier(chunks(v))).flatten(2, 3)[:, :, :n]
        place = order.argsort(-1)
        y = y.gather(2, place[..., None].expand(B, H, n, v.shape[-1])).float()
        of_round = of_round.flatten(2, 3)[:, :, :n].gather(2, place)
        if lse is None:
            total, lse = y, of_round
            continue
        joined = torch.logaddexp(lse, of_round)
        total, lse = total * (lse - joined).exp()[..., None] + y * (of_round - joined).exp()[..., None], joined
    return torch.where(lse[..., None] < -1e29, v.float(), total).to(v.dtype)


def chosen_blocks(q, k, block, most):
    """(B, H, blocks, most): the own block, and those that its first query scores highest; -1: none."""
    n, blocks = q.shape[2], -(-q.shape[2] // block)
    sums = F.pad(k.float(), (0, 0, 0, -n % block)).unflatten(2, (blocks, block)).sum(3)
    gates = q[:, :, ::block].float() @ sums.transpose(-1, -2)
    earlier = torch.ones(blocks, blocks, dtype=torch.bool, device=q.device).tril(-1)
    gates = gates.masked_fill(~earlier, -torch.inf)
    gates = gates.masked_fill(torch.eye(blocks, dtype=torch.bool, device=q.device), torch.inf)
    best = gates.topk(min(most, blocks), -1)
    return best.indices.masked_fill(best.values == -torch.inf, -1)


def gathered(q, k, v, block, most):
    B, H, n, D = q.shape
    chosen, pad = chosen_blocks(q, k, block, most), -n % block
    q, k, v = (F.pad(x, (0, 0, 0, pad)).unflatten(2, (-1, block)) for x in (q, k, v))
    of_chosen = lambda x: x.gather(2, chosen.clamp_min(0).flatten(2)[..., None, None].expand(
        B, H, -1, block, x.shape[-1])).unflatten(2, chosen.shape[2:]).flatten(3, 4)
    at = torch.arange(block, device=q.device)
    keys = (chosen[..., None] * block + at).masked_fill(chosen[..., None] < 0, 1 << 40).flatten(3)
    queries = torch.arange(chosen.shape[2], device=q.device)[:, None] * block + at
    sees = keys[..., None, :] <= queries[..., None]
    y = F.scaled_dot_product_attention(*(x.flatten(0, 1) for x in (q, of_chosen(k), of_chosen(v), sees)))
    return y.unflatten(0, (B, H)).flatten(2, 3)[:, :, :n]

# ---- what is done with them


def kinds(B, H, D, device, clusters=5, rounds=3, columns=4, w=9, block=16, most=3):
    centroids = torch.randn(H, clusters, D, device=device)
    signs = torch.randint(0, 2, (rounds, columns, D), device=device).float() * 2 - 1
    of_labels = lambda labels: (lambda q, k, v: windowed(q, v, labels(q), w),
                                lambda q, k, v: dense(q, shared_keys(q), v, label_counts(labels(q), w)))
    return {"routing": of_labels(lambda q: routing_labels(q, centroids)), "lsh": of_labels(lambda q: lsh_labels(q, signs)),
            "topk_blocks": (lambda q, k, v: gathered(q, k, v, block, most),
                            lambda q, k, v: dense(q, k, v, block_counts(q, k, block, most)))}


def check():
    torch.manual_seed(1)
    for n in (1, 2, 16, 17, 63, 200):
        for name, (by_hand, definition) in kinds(2, 3, 8, "cpu").items():
            q, k, v = torch.randn(3, 2, 3, n, 8, dtype=torch.float64)
            y = definition(q, k, v)
            torch.testing.assert_close(by_hand(q, k, v), y, rtol=1e-5, atol=1e-5)
            i = n * 2 // 3
            later = [torch.cat((x[:, :, : i + 1], torch.randn_like(x[:, :, i + 1:])), 2) for x in (q, k, v)]
            torch.testing.assert_close(definition(*later)[:, :, : i + 1], y[:, :, : i + 1])
    print("content_peer.py: the forms agree, and no query depends on later tokens")


def bench():
    x = torch.randn(3, 4, 8, 12288, 64, device="cuda", dtype=torch.bfloat16).requires_grad_()
    for name, w in (("routing", 256), ("lsh", 128), ("topk_blocks", 0)):
        by_hand = kinds(4, 8, 64, "cuda", 48, 4, 14, w, 64, 8)[name][0]
        times = []
        for backward in (False, True):
            for repeat in range(12):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                with torch.set_grad_enabled(backward):
                    y = by_hand(*x)
                if backward:
                    y.backward(y.detach())
                end.record()
                torch.cuda.synchronize()
                times.append(begin.elapsed_time(end))
        print(f"{name}: forward {sorted(times[2:12])[5]:.2f} ms, forward + backward {sorted(times[14:])[5]:.2f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", action="store_true")
    bench() if parser.parse_args().bench else check()
