# SPDX-License-Identifier: MIT
"""Every kind of pattern, each with its definition as a predicate on numpy index arrays."""
from dataclasses import dataclass
from typing import Callable

import numpy as np
import weft_attention as wa

BATCH, HEADS, D_QK, D_V = 2, 4, 32, 16
N = 197  # prime: no block divides it


@dataclass
class Case:
    title: str
    pattern: wa.Pattern
    sees: Callable  # (head, i, j) -> bool array
    n_q: int = N
    n_k: int = N
    segments: bool = False

    def pairs(self):
        return np.arange(self.n_q)[:, None], np.arange(self.n_k)[None, :]

    def check_mask(self, mask):
        """The library's own idea of the pattern is the one of this file."""
        for head in range(len(mask)):
            wrong = np.argwhere(mask[head] != np.broadcast_to(self.sees(head, *self.pairs()), mask[head].shape))
            assert len(wrong) == 0, f"head {head}: pair {wrong[0]} and {len(wrong) - 1} more are not as defined"


@dataclass
class BigBirdCase(Case):
    """Random blocks are the library's choice: what it must see, and how many blocks it may see besides."""
    block: int = 16
    random: int = 2
    causal: bool = True

    def check_mask(self, mask):
        i, j = self.pairs()
        for head in range(len(mask)):
            least = np.broadcast_to(self.sees(head, i, j), mask[head].shape)
            assert not (least & ~mask[head]).any(), f"head {head}: window and global blocks are missing"
            extra = mask[head] & ~least
            assert not self.causal or not (extra & (j > i)).any(), f"head {head}: sees later keys"
            for row in range(self.n_q):
                blocks = np.unique(np.flatnonzero(extra[row]) // self.block)
                assert len(blocks) <= self.random, f"head {head}: query {row} sees {len(blocks)} random blocks"
            assert extra.any(), f"head {head}: no random blocks"


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
    return np.isin(x, numbers)


def longformer(window, dilation, numbers, causal):
    def sees(h, i, j):
        d = dilation[h % len(dilation)]
        steps, inside = abs(i - j) // d, (i - j) % d == 0
        seen = member(i, numbers) | member(j, numbers) | (inside & (steps < window if causal else steps <= window // 2))
        return seen & (j <= i) if causal else seen
    return sees


def bigbird(block, window, numbers, causal):
    def sees(h, i, j):
        a, b = i // block, j // block
        near = a - b < window if causal else abs(a - b) <= window // 2
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
    return sum((x >= border).astype(int) for border in borders)


def layout_case(block, causal, n_q, n_k, keep=None, title=""):
    active = np.random.default_rng(block).random((HEADS, -(-n_q // block), -(-n_k // block))) < 0.4
    active[1, :1] = False  # a row of blocks that sees nothing

    def sees(h, i, j):
        seen = active[h][i // block, j // block]
        if keep:
            seen = seen & keep(h, i, j)
        return seen & (j <= i) if causal else seen
    return Case(f"layout, blocks of {block}{title}", wa.by_layout(active, block, causal, keep), sees, n_q, n_k)


def simple_cases():
    every = lambda h, i, j: (i >= 0) & (j >= 0)
    earlier = lambda h, i, j: j <= i
    yield Case("all", wa.all(), earlier)
    yield Case("all, one position", wa.all(), earlier, 1, 1)
    yield Case("all, 65 queries, 200 keys", wa.all(), earlier, 65, 200)
    yield Case("all, segments", wa.all(), earlier, segments=True)
    yield Case("all, bidirectional", wa.all(causal=False), every)
    yield Case("local", wa.local(19), local(19))
    yield Case("local, bidirectional", wa.local(19, causal=False), lambda h, i, j: abs(i - j) < 19)
    yield Case("local, 200 queries, 70 keys: empty rows", wa.local(19), local(19), 200, 70)
    yield Case("strided", wa.strided(12), strided(12))
    yield Case("strided, segments", wa.strided(12), strided(12), segments=True)
    yield Case("fixed", wa.fixed(24, c=4, num_verts=2), fixed(24, 4, 2))
    yield Case("fixed, segments", wa.fixed(24, c=4), fixed(24, 4, 1), segments=True)
    yield Case("fixed in blocks", wa.fixed(32, block=8, vertsize=2, num_verts=2), fixed(32, 16, 2))
    yield Case("block", wa.block(24), lambda h, i, j: (j <= i) & (i // 24 == j // 24))
    yield Case("summary: empty rows", wa.summary(24, c=4, num_verts=2), summary(24, 4, 2))
    yield Case("prefix", wa.all(causal=False, prefix=50), lambda h, i, j: (j <= i) | (j < 50))
    borders = [40, 41, 130]
    yield Case("documents", wa.all(documents=[0] + borders),
               lambda h, i, j: (j <= i) & (document_of(i, borders) == document_of(j, borders)))
    yield Case("length: padding sees nothing", wa.local(30, length=150), lambda h, i, j: local(30)(h, i, j) & (i < 150))


def composed_cases():
    union = lambda h, i, j: local(12)(h, i, j) | strided(12)(h, i, j)
    both = wa.local(12), wa.strided(12)
    yield Case("merged: local, strided", both[0] | both[1], union)
    yield Case("merged, segments", both[0] | both[1], union, segments=True)
    yield Case("merged, with a length", wa.merged(*both, length=150), lambda h, i, j: union(h, i, j) & (i < 150))
    yield Case("merged of three", both[1] | wa.all(length=60) | both[0],
               lambda h, i, j: union(h, i, j) | ((j <= i) & (i < 60)))
    turn = [local(12), strided(12), fixed(16, 2, 1)]
    yield Case("by head: local, strided", wa.by_head(*both), lambda h, i, j: turn[h % 2](h // 2, i, j))
    yield Case("by head: local, strided, fixed", wa.by_head(*both, wa.fixed(16, c=2)),
               lambda h, i, j: turn[h % 3](h // 3, i, j))
    for causal in (True, False):
        way = "" if causal else ", bidirectional"
        yield Case(f"longformer{way}", wa.longformer(14, dilation=[1, 3], globals=[0, 5, 90], causal=causal),
                   longformer(14, [1, 3], [0, 5, 90], causal))
        length = {} if causal else {"length": N}
        yield BigBirdCase(f"bigbird{way}", wa.bigbird(16, 3, 2, globals=[0], seed=7, causal=causal, **length),
                          bigbird(16, 3, [0], causal), causal=causal)
        for grid, taps, step in (([N], [7], 1), ([13, 15], [5, 3], 1), ([14, 14], [3, 3], 2)):
            keys = grid[0] * (grid[1] if len(grid) == 2 else 1)
            yield Case(f"convolution {grid}, {taps}, step {step}{way}", wa.convolution(grid, taps, step, causal=causal),
                       convolution(grid, taps, step, causal), keys // step ** len(grid), keys)
    window = convolution([14, 14], [3, 3], 2, False)
    yield Case("convolution [14, 14], [3, 3], step 2, transposed",
               wa.convolution([14, 14], [3, 3], 2, transposed=True, causal=False), lambda h, i, j: window(h, j, i), 196, 49)


def cases():
    yield from simple_cases()
    yield from composed_cases()
    for block in (8, 16, 32, 64):
        yield layout_case(block, False, N, N)
    yield layout_case(16, True, N, N, title=", causal")
    yield layout_case(8, False, 70, 130, title=", rectangular")
    yield layout_case(32, False, 70, 96, keep=lambda h, i, j: (i * 7 + j * 3 + h) % 5 < 3, title=", predicate")
