# SPDX-License-Identifier: MIT
"""The cases of torch_attention.py: every kind of pattern, each with its definition as a predicate on index tensors."""
from dataclasses import dataclass
from typing import Callable

import torch

BATCH, HEADS, D_QK, D_V = 2, 4, 32, 16
N = 197  # prime: no block divides it


@dataclass
class Case:
    title: str
    pattern: dict
    sees: Callable  # (head, i, j) -> bool tensor
    n_q: int = N
    n_k: int = N
    segments: bool = False

    def check_mask(self, mask, heads):
        """The library's own idea of the pattern is the one of this file."""
        i, j = torch.arange(self.n_q)[:, None], torch.arange(self.n_k)[None, :]
        for head in range(heads):
            want = torch.broadcast_to(self.sees(head, i, j), mask[head].shape)
            wrong = (mask[head] != want).nonzero()
            assert len(wrong) == 0, f"head {head}: pair {wrong[0].tolist()} and {len(wrong) - 1} more are not as defined"


class BigBirdCase(Case):
    """Random blocks are the library's choice: what it must see, and how many blocks it may see besides."""

    def check_mask(self, mask, heads):
        block, count, causal = self.pattern["block"], self.pattern["random"], self.pattern["causal"]
        i, j = torch.arange(self.n_q)[:, None], torch.arange(self.n_k)[None, :]
        for head in range(heads):
            least = self.sees(head, i, j)
            assert not (least & ~mask[head]).any(), f"head {head}: window and global blocks are missing"
            extra = mask[head] & ~least
            assert not causal or not (extra & (j > i)).any(), f"head {head}: sees later keys"
            for row in range(self.n_q):
                blocks = (extra[row].nonzero()[:, 0] // block).unique()
                assert len(blocks) <= count, f"head {head}: query {row} sees {len(blocks)} random blocks"
            assert count == 0 or extra.any(), f"head {head}: no random blocks"


def local(width):
    return lambda h, i, j: (j <= i) & (i - j < width)


def strided(stride):
    return lambda h, i, j: (j <= i) & ((i - j) % stride == 0)


def summary(stride, c, num_verts):
    def sees(h, i, j):
        first = stride - (h % num_verts + 1) * c
        return (j <= i) & (j % stride >= first) & (j % stride < first + c)
    return sees


def fixed(stride, c, num_verts):
    return lambda h, i, j: ((j <= i) & (i // stride == j // stride)) | summary(stride, c, num_verts)(h, i, j)


def member(x, numbers):
    return torch.isin(x, torch.tensor(numbers))


def longformer(window, dilation, numbers, causal):
    def sees(h, i, j):
        d = dilation[h % len(dilation)]
        steps, inside = (i - j).abs() // d, (i - j) % d == 0
        seen = member(i, numbers) | member(j, numbers) | (inside & (steps < window if causal else steps <= window // 2))
        return seen & (j <= i) if causal else seen
    return sees


def bigbird(block, window, numbers, causal):
    def sees(h, i, j):
        a, b = i // block, j // block
        near = a - b < window if causal else (a - b).abs() <= window // 2
        seen = near | member(a, numbers) | member(b, numbers)
        return seen & (j <= i) if causal else seen
    return sees


def convolution(grid, taps, step, causal):
    height, width = grid if len(grid) == 2 else (1, grid[0])
    rows, columns = taps if len(taps) == 2 else (1, taps[0])
    row_step = step if len(grid) == 2 else 1

    def inside(key, query, count, s):
        at = key - query * s + max(0, (count - s + 1) // 2)
        return (at >= 0) & (at < count)

    def sees(h, i, j):
        p, q = i // (width // step), i % (width // step)
        seen = inside(j // width, p, rows, row_step) & inside(j % width, q, columns, step)
        return seen & (j <= p * row_step * width + q * step) if causal else seen
    return sees


def document_of(x, borders):
    return sum((x >= border).int() for border in borders)


def layout_case(block, causal, n_q, n_k, keep=None, title=""):
    generator = torch.Generator().manual_seed(block)
    blocks = [-(-n // block) for n in (n_q, n_k)]
    active = torch.rand(HEADS, *blocks, generator=generator) < 0.4
    active[1, :1] = False  # a row of blocks that sees nothing
    pattern = {"active": active, "block": block, "causal": causal, "keep": keep}

    def sees(h, i, j):
        seen = active[h, i // block, j // block]
        if keep:
            seen = seen & keep(h, i, j)
        return seen & (j <= i) if causal else seen
    return Case(f"layout, blocks of {block}{title}", pattern, sees, n_q, n_k)


def named(title, sees, n_q=N, n_k=N, segments=False, causal=True, **fields):
    return Case(title, {"causal": causal, **fields}, sees, n_q, n_k, segments)


def simple_cases():
    every = lambda h, i, j: (i >= 0) & (j >= 0)
    earlier = lambda h, i, j: j <= i
    yield named("all", earlier, kind="all")
    yield named("all, one position", earlier, 1, 1, kind="all")
    yield named("all, 65 queries, 200 keys", earlier, 65, 200, kind="all")
    yield named("all, segments", earlier, segments=True, kind="all")
    yield named("all, bidirectional", every, causal=False, kind="all")
    yield named("local", local(19), kind="local", stride=19)
    yield named("local, bidirectional", lambda h, i, j: (i - j).abs() < 19, causal=False, kind="local", stride=19)
    yield named("local, 200 queries, 70 keys: empty rows", local(19), 200, 70, kind="local", stride=19)
    yield named("strided", strided(12), kind="strided", stride=12)
    yield named("strided, segments", strided(12), segments=True, kind="strided", stride=12)
    yield named("fixed", fixed(24, 4, 2), kind="fixed", stride=24, c=4, num_verts=2)
    yield named("fixed, segments", fixed(24, 4, 1), segments=True, kind="fixed", stride=24, c=4)
    yield named("fixed in blocks", fixed(32, 16, 2), kind="fixed", stride=32, block=8, vertsize=2, num_verts=2)
    yield named("block", lambda h, i, j: (j <= i) & (i // 24 == j // 24), kind="block", stride=24)
    yield named("summary: empty rows", summary(24, 4, 2), kind="summary", stride=24, c=4, num_verts=2)
    prefix, borders = lambda h, i, j: (j <= i) | (j < 50), [40, 41, 130]
    yield named("prefix", prefix, causal=False, kind="all", prefix=50)
    yield named("documents", lambda h, i, j: (j <= i) & (document_of(i, borders) == document_of(j, borders)), kind="all",
                documents=[0] + borders)
    yield named("length: padding sees nothing", lambda h, i, j: local(30)(h, i, j) & (i < 150), kind="local", stride=30, length=150)


def composed_cases():
    both = [{"kind": "local", "stride": 12}, {"kind": "strided", "stride": 12}]
    union = lambda h, i, j: local(12)(h, i, j) | strided(12)(h, i, j)
    yield named("merged: local, strided", union, kind="merged", of=both)
    yield named("merged, segments", union, segments=True, kind="merged", of=both)
    turn = [local(12), strided(12), fixed(16, 2, 2)]
    three = both + [{"kind": "fixed", "stride": 16, "c": 2, "num_verts": 1}]
    yield named("by head: local, strided", lambda h, i, j: turn[h % 2](h // 2, i, j), kind="heads", of=both)
    yield named("by head: local, strided, fixed", lambda h, i, j: (turn[:2] + [fixed(16, 2, 1)])[h % 3](h // 3, i, j),
                kind="heads", of=three)
    for causal in (True, False):
        way = "" if causal else ", bidirectional"
        yield named(f"longformer{way}", longformer(14, [1, 3], [0, 5, 90], causal), causal=causal, kind="longformer", window=14,
                    dilation=[1, 3], globals=[0, 5, 90])
        fields = {"kind": "bigbird", "block": 16, "window": 3, "random": 2, "seed": 7, "globals": [0], "causal": causal}
        if not causal:
            fields["length"] = N
        yield BigBirdCase(f"bigbird{way}", fields, bigbird(16, 3, [0], causal))
        for grid, taps, step in (([N], [7], 1), ([13, 15], [5, 3], 1), ([14, 14], [3, 3], 2)):
            keys = grid[0] * (grid[1] if len(grid) == 2 else 1)
            yield named(f"convolution {grid}, {taps}, step {step}{way}", convolution(grid, taps, step, causal),
                        keys // step ** len(grid), keys, causal=causal, kind="convolution", grid=grid, filter=taps, step=step)
    window = convolution([14, 14], [3, 3], 2, False)
    yield named("convolution [14, 14], [3, 3], step 2, transposed", lambda h, i, j: window(h, j, i), 196, 49, causal=False,
                kind="convolution", grid=[14, 14], filter=[3, 3], step=2, transposed=1)


def cases():
    yield from simple_cases()
    yield from composed_cases()
    for block in (8, 16, 32, 64):
        yield layout_case(block, False, N, N)
    yield layout_case(16, True, N, N, title=", causal")
    yield layout_case(8, False, 70, 130, title=", rectangular")
    yield layout_case(32, False, 70, 96, keep=lambda h, i, j: (i * 7 + j * 3 + h) % 5 < 3, title=", predicate")
