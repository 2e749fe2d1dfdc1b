#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Attention where content decides (src/content/README.md) in PyTorch, three times: as a dense matrix of how
often a query sees a key, the definition; by hand, sorted or gathered; and with FlexAttention.
q, k (B, H, n, D), v (B, H, n, Dv).

    content_peer.py                     the forms agree, and no query depends on later tokens
    content_peer.py --bench [KIND ...]  times on a GPU, B 4, H 8, n 12,288, D 64, bf16; verified first"""
import argparse
import functools
import time

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

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


def chosen_blocks(q, k, block, most):
    """(B, H, blocks, most): the own block first, then those that its first query scores highest; -1: none."""
    n, blocks = q.shape[2], -(-q.shape[2] // block)
    sums = F.pad(k.float(), (0, 0, 0, -n % block)).unflatten(2, (blocks, block)).sum(3)
    gates = q[:, :, ::block].float() @ sums.mT
    earlier = torch.ones(blocks, blocks, dtype=torch.bool, device=q.device).tril(-1)
    gates = gates.masked_fill(~earlier, -torch.inf)
    gates = gates.masked_fill(torch.eye(blocks, dtype=torch.bool, device=q.device), torch.inf)
    best = gates.topk(min(most, blocks), -1)
    return best.indices.masked_fill(best.values == -torch.inf, -1)


def seen_blocks(chosen):
    """(B, H, blocks, blocks): the same as a matrix."""
    blocks = chosen.shape[2]
    seen = torch.zeros(*chosen.shape[:3], blocks + 1, dtype=torch.bool, device=chosen.device)
    return seen.scatter(-1, chosen.where(chosen >= 0, blocks), True)[..., :-1]

# ---- dense: c[b, h, i, j] is how often query i sees key j


def label_counts(labels, w):
    before = (labels[..., :, None] == labels[..., None, :]).tril(-1)
    rank = before.sum(-1)
    counts = (before & (rank[..., :, None] - rank[..., None, :] <= w)).sum(0)
    nothing = counts.sum(-1) == 0  # sees itself
    return counts + torch.diag_embed(nothing.to(counts.dtype))


def block_counts(q, k, block, most):
    n, seen = q.shape[2], seen_blocks(chosen_blocks(q, k, block, most))
    return seen.repeat_interleave(block, 2)[:, :, :n].repeat_interleave(block, 3)[..., :n].tril().long()


def dense(q, k, v, counts):
    return ((q * q.shape[-1] ** -0.5) @ k.mT + counts.log()).softmax(-1).to(v.dtype) @ v

# ---- windows of labels: positions are sorted by label; then a query sees slots first ... own - 1


class Reorder(torch.autograd.Function):
    """Rows in another order. `inverse` gathers the gradient, where gather() alone would add atomically."""
    @staticmethod
    def forward(ctx, x, order, inverse):
        ctx.save_for_backward(order, inverse)
        return x.gather(-2, order[..., None].expand(*order.shape, x.shape[-1]))

    @staticmethod
    def backward(ctx, dy):
        order, inverse = ctx.saved_tensors
        return Reorder.apply(dy, inverse, order), None, None


def slots_of(labels, w):
    """The position in each slot, the slot of each position, and the first slot that each slot sees."""
    n, slot = labels.shape[-1], torch.arange(labels.shape[-1], device=labels.device)
    sets = torch.arange(labels.numel() // n, device=labels.device)
    keys, order = ((sets[:, None] << 16) + labels.reshape(-1, n)).int().flatten().sort(stable=True)
    order = (order % n).view_as(labels)
    place = torch.empty_like(order).scatter(-1, order, slot.expand_as(order))
    start = (torch.searchsorted(keys, keys) % n).view_as(labels)
    return order, place, torch.maximum(start, slot - w).int()


def windowed(q, v, labels, w, attend):
    """Rounds are more sequences of one batch, joined by their log-sum-exps."""
    order, place, first = slots_of(labels, w)
    in_slots = lambda x: Reorder.apply(x.expand(len(labels), *x.shape), order, place).flatten(0, 1)
    of_slots = lambda x: Reorder.apply(x.unflatten(0, labels.shape[:2]), place, order)
    rows = in_slots(q)
    y, lse = attend(rows, shared_keys(rows), in_slots(v), first.flatten(0, 1), w)
    lse = of_slots(lse[..., None].clamp_min(-1e30))
    y = (of_slots(y) * lse.softmax(0)).sum(0).to(v.dtype)
    return torch.where(lse.amax(0) < -1e29, v, y)


def in_chunks(q, k, v, first, w):
    """By hand: chunks of w slots see themselves and the chunk before."""
    n, pad = q.shape[2], -q.shape[2] % w
    chunks = lambda x: F.pad(x, (0, 0, 0, pad)).unflatten(2, (-1, w))
    with_earlier = lambda x: torch.cat((F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x), 3)
    first = F.pad(first, (0, pad), value=n).unflatten(2, (-1, w))[..., None]
    slot = torch.arange(n + pad, device=q.device).view(-1, w)
    key = (slot[:, :1] - w + torch.arange(2 * w, device=q.device))[:, None]
    sees = (first <= key) & (key < slot[..., None])
    scores = (chunks(q) @ with_earlier(chunks(k)).mT).float() * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~sees, -1e30)
    lse = scores.logsumexp(-1, keepdim=True)
    p = (scores - lse).exp().masked_fill(~sees, 0).to(v.dtype)
    return (p @ with_earlier(chunks(v))).flatten(2, 3)[:, :, :n], lse.flatten(2)[..., :n]


def flex_windows(q, k, v, first, w, block=128):
    n, blocks = q.shape[2], -(-q.shape[2] // block)
    at = torch.arange(blocks, device=q.device)
    oldest = first[..., ::block] // block  # of the block's first slot; the others see no earlier one
    mask = block_mask(at - oldest + 1, (oldest[..., None] + at).clamp_max(blocks - 1),
                      lambda b, h, i, j: (first[b, h, i] <= j) & (j < i), n, block)
    y, aux = flex_attention(q, k, v, block_mask=mask, kernel_options=tiles(block),
                            return_aux=AuxRequest(lse=True))
    return y, aux.lse

# ---- chosen blocks


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


def flex_blocks(q, k, v, block, most):
    """The own block is masked, the others are whole."""
    chosen = chosen_blocks(q, k, block, most)
    seen, others, blocks = seen_blocks(chosen), chosen[..., 1:], chosen.shape[2]
    own = torch.arange(blocks, device=q.device)[:, None].expand(*chosen.shape[:3], 1)
    sees = lambda b, h, i, j: seen[b, h, i // block, j // block] & (j <= i)
    mask = block_mask(torch.ones_like(own[..., 0]), own, sees, q.shape[2], block,
                      (others >= 0).sum(-1), others.clamp_min(0))
    return flex_attention(q, k, v, block_mask=mask, kernel_options=tiles(block))


def block_mask(count, keys, mask_mod, n, block, full_count=None, full_keys=None):
    """From lists of the blocks of keys that each block of queries sees; the backward pass has theirs made."""
    wide = lambda x: x if x is None else F.pad(x, (0, count.shape[-1] - x.shape[-1])).int()
    count, full_count = (x if x is None else x.int() for x in (count, full_count))
    return BlockMask.from_kv_blocks(count, wide(keys), full_count, wide(full_keys), block, mask_mod, (n, n),
                                    compute_q_blocks=torch.is_grad_enabled())


def tiles(block):
    """FlexAttention's own choice from blocks of 128 on; tiles of smaller blocks must be named."""
    names = ("fwd_BLOCK_M", "fwd_BLOCK_N", "bwd_BLOCK_M1", "bwd_BLOCK_N1", "bwd_BLOCK_M2", "bwd_BLOCK_N2")
    return {} if block >= 128 else dict.fromkeys(names, block)

# ---- what is done with them


def kinds(H, D, device, clusters=5, rounds=3, columns=4, windows=(9, 9), block=16, most=3):
    """name: (definition, {name of a form: form}); each takes q, k, v and the heads of these."""
    centroids = torch.randn(H, clusters, D, device=device)
    signs = torch.randint(0, 2, (rounds, columns, D), device=device).float() * 2 - 1
    flex_64 = functools.partial(flex_windows, block=64)
    forms = {"by hand": in_chunks, "FlexAttention, blocks of 128": flex_windows,
             "FlexAttention, blocks of 64": flex_64}
    of_labels = lambda labels, w: (
        lambda q, k, v: dense(q, shared_keys(q), v, label_counts(labels(q), w)),
        {name: functools.partial(lambda attend, q, k, v: windowed(q, v, labels(q), w, attend), attend)
         for name, attend in forms.items()})
    return {"routing": of_labels(lambda q: routing_labels(q, centroids[:q.shape[1]]), windows[0]),
            "lsh": of_labels(lambda q: lsh_labels(q, signs), windows[1]),
            "topk_blocks": (lambda q, k, v: dense(q, k, v, block_counts(q, k, block, most)),
                            {"by hand": lambda q, k, v: gathered(q, k, v, block, most),
                             "FlexAttention": lambda q, k, v: flex_blocks(q, k, v, block, most)})}


def with_gradients(form, inputs, dy):
    """y, then gradients of those inputs that have one."""
    y = form(*inputs)
    return [y.detach()] + [g for g in torch.autograd.grad(y, inputs, dy, allow_unused=True) if g is not None]


def verify(definition, form, inputs, dy):
    """Against the definition in f32, of one sequence and head, at full length."""
    got = [x[:1, :1].float() for x in with_gradients(form, inputs, dy)]
    wanted = with_gradients(definition, [x[:1, :1].detach().float().requires_grad_() for x in inputs],
                            dy[:1, :1].float())
    for a, b in zip(got, wanted, strict=True):
        assert (a - b).norm() <= 0.02 * b.norm(), f"wrong: off by {(a - b).norm() / b.norm():.3f}"


def timed(title, definition, prepare, inputs, dy):
    """(forward, forward + backward) of what prepare() gives; None and a line with the reason on failure."""
    from triton.testing import do_bench  # it clears the second-level cache before each run
    begin = time.monotonic()
    try:
        form = prepare()
        verify(definition, form, inputs, dy)
        both = do_bench(lambda: with_gradients(form, inputs, dy), return_mode="median")
        with torch.no_grad():
            forward = do_bench(lambda: form(*inputs), return_mode="median")
    except Exception as error:  # any: what cannot run is a line, too
        print(f"{title}: not timed: {' '.join(repr(error).split())[:400]}", flush=True)
        return None
    finally:
        torch.cuda.empty_cache()
    print(f"{title}: forward {forward:.2f} ms, forward + backward {both:.2f} ms"
          f" (compiled, verified and timed in {time.monotonic() - begin:.0f} s)", flush=True)
    return forward, both


def check():
    torch.manual_seed(1)
    for n in (1, 2, 16, 17, 63, 200):
        for name, (definition, forms) in kinds(3, 8, "cpu").items():
            q, k, v, dy = torch.randn(4, 2, 3, n, 8, dtype=torch.float64)
            inputs = [x.requires_grad_() for x in (q, k, v)]
            y, *gradients = with_gradients(definition, inputs, dy)
            close = functools.partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
            close(with_gradients(forms["by hand"], inputs, dy), [y, *gradients])
            for form in forms.values():  # FlexAttention has no backward pass on a CPU
                close(form(*(x.detach() for x in inputs)), y)
            i = n * 2 // 3
            later = [torch.cat((x[:, :, : i + 1], torch.randn_like(x[:, :, i + 1:])), 2) for x in (q, k, v)]
            torch.testing.assert_close(definition(*later)[:, :, : i + 1], y[:, :, : i + 1])
    print("content_peer.py: the forms agree, and no query depends on later tokens")


def bench(names):
    q, k, v, dy = torch.randn(4, 4, 8, 12288, 64, device="cuda", dtype=torch.bfloat16)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    for kind, (definition, forms) in kinds(8, 64, "cuda", 48, 4, 14, (256, 128), 64, 8).items():
        if names and kind not in names:
            continue
        times = []
        for name, form in forms.items():
            if name == "by hand":
                times.append(timed(f"{kind}, {name}", definition, lambda: form, inputs, dy))
            torch.compiler.reset()
            compiled = functools.partial(torch.compile, form, dynamic=False)
            times.append(timed(f"{kind}, {name}, compiled", definition, compiled, inputs, dy))
        if any(times):
            forward, both = map(min, zip(*filter(None, times)))
            print(f"{kind}, the best: forward {forward:.2f} ms, forward + backward {both:.2f} ms", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bench", nargs="*", metavar="KIND")
    names = parser.parse_args().bench
    check() if names is None else bench(names)
