# SPDX-License-Identifier: MIT
"""Patterns as values: which keys a query sees (src/patterns/README.md has the predicates). A pattern is a piece of
JSON text, so that it can be compared, hashed and handed to a compiled graph. What a kind allows is checked when the number
of heads is known: mask(), cost(), plot(), attention() and Attention raise ValueError with the library's text.

Every maker of a pattern takes the modifiers causal=False (later keys are seen too), prefix, documents and length."""
import dataclasses
import functools
import hashlib
import json
import math
import typing

from . import library

_MERGED = '{"kind": "merged", "of": ['
_layouts = {}  # text of a layout -> (active, block, causal, keep)
_MOST_HEADS = 65536  # that the library takes
_IN_TURN = {"summary": "num_verts", "fixed": "num_verts", "longformer": "dilation"}  # what heads take in turn


class Cost(typing.NamedTuple):
    """Of one forward pass over one sequence, all heads."""
    needed: int    # (query, key) pairs that the pattern has
    executed: int  # pairs of the tiles that kernels visit
    flops: int     # 2 (d + d_v) for each needed pair; the backward pass has 6 d + 4 d_v


@dataclasses.dataclass(frozen=True)
class Pattern:
    text: str

    def __or__(self, other):
        """Seen by either, with one softmax. Plain unions are flattened."""
        if not isinstance(other, Pattern):
            return NotImplemented
        parts = [p.text[len(_MERGED):-2] if p.text.startswith(_MERGED) else p.text for p in (self, other)]
        return Pattern(_MERGED + ", ".join(parts) + "]}")

    def __str__(self):
        return self.text

    def mask(self, n, n_k=None, heads=None):
        """numpy bool (heads, n, n_k): which pairs are attended. n_k: as many keys as queries. heads: as many as the
        pattern has before it repeats, or the heads of by_layout(). bigbird() draws anew for each head: 1."""
        import numpy
        heads = _heads(self.text, heads)
        n = library.positive(n, "n")
        mask = numpy.empty((heads, n, n if n_k is None else library.positive(n_k, "n_k")), numpy.uint8)
        for head in range(heads):
            made(self.text, heads).mask(head, *mask.shape[1:], mask[head].ctypes.data)
        return mask.view(bool)

    def cost(self, n, n_k=None, heads=None, d=64, d_v=None):
        """heads: as in mask()."""
        d_v = d if d_v is None else d_v
        pattern = made(self.text, _heads(self.text, heads))
        info = library.Plan(pattern, n, n if n_k is None else n_k, d, d_v, library.CPU).info()
        return Cost(info.needed_pairs, info.executed_pairs, 2 * (d + d_v) * info.needed_pairs)

    def plot(self, n, n_k=None, heads=None, head=0, axis=None):
        """Draws the mask of a head with matplotlib; returns the axis. heads: as in mask()."""
        heads = _heads(self.text, heads)
        if not 0 <= library.fitted(library.INT32, head, "head").value < heads:
            raise ValueError(f"head must be 0 to {heads - 1}, got {head}: try heads={head + 1} or more")
        if axis is None:
            from matplotlib import pyplot
            axis = pyplot.gca()
        axis.imshow(self.mask(n, n_k, heads)[head], cmap="Blues", vmin=0, vmax=1.4, interpolation="nearest")
        axis.set(xlabel="key", ylabel="query", title=made(self.text, heads).name)
        return axis


def _fewest_heads(spec):
    """With which each pattern inside by_head() has a head."""
    of = spec.get("of", ())
    each = [_fewest_heads(one) for one in of]
    if spec["kind"] == "heads":  # pattern p of P has the heads p, p + P, ...
        each = [(count - 1) * len(of) + p + 1 for p, count in enumerate(each)]
    return max(each, default=1)


def _heads_until_repeat(spec):
    """After how many heads a pattern begins anew. The library takes any multiple of it, and each part has a head."""
    of, in_turn = spec.get("of", ()), spec.get(_IN_TURN.get(spec["kind"]), 1)
    own = min(len(in_turn) if isinstance(in_turn, list) else in_turn, _MOST_HEADS)
    if spec["kind"] == "heads":
        own = len(of)
    return max(own, 1) * math.lcm(*map(_heads_until_repeat, of))


def _heads(text, heads):
    """The number of heads that was given, checked, or the default of mask()."""
    if heads is None:
        heads = len(_layouts[text][0]) if text in _layouts else _heads_until_repeat(json.loads(text))
    heads = library.fitted(library.INT32, heads, "heads").value
    made(text, heads)
    return heads


@functools.lru_cache(maxsize=None)
def made(text, heads):
    """The library's pattern."""
    fewest = 1 if text in _layouts else _fewest_heads(json.loads(text))
    if 1 <= heads < fewest:
        raise ValueError(f"by_head() gives its patterns to heads in turn: this one needs {fewest} heads or more, got {heads}. "
                         f"Try heads={fewest}, a q of {fewest} heads, or fewer patterns")
    return library.Pattern(_layouts.get(text, text), heads)


def _whole(value):
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != value:
        raise ValueError(f"the fields of a pattern are whole numbers, got {value!r}")
    return str(whole)


def _value(value):
    return "[" + ", ".join([_whole(x) for x in value]) + "]" if isinstance(value, (list, tuple)) else _whole(value)


def _named(kind, fields, of=None):  # plain string work, which torch.compile can follow
    for p in of or ():
        if not isinstance(p, Pattern):
            raise ValueError(f"{kind}: expected patterns such as weft_attention.local(64), got {p!r}")
    parts = "" if of is None else ', "of": [' + ", ".join([p.text for p in of]) + "]"
    return Pattern('{"kind": "' + kind + '"' + "".join([f', "{k}": {_value(v)}' for k, v in fields.items()]) + parts + "}")


def of_config(spec):
    """The pattern of an entry of model.attention in a config: a mapping with kind and fields."""
    fields = {k: v for k, v in spec.items() if k not in ("kind", "of")}
    return _named(spec["kind"], fields, [of_config(p) for p in spec["of"]] if "of" in spec else None)


def all(**modifiers):
    """Dense: j <= i."""
    return _named("all", modifiers)


def local(window, **modifiers):
    """i - j < window."""
    return _named("local", {"stride": window, **modifiers})


def strided(stride, **modifiers):
    """(i - j) mod stride = 0."""
    return _named("strided", {"stride": stride, **modifiers})


def block(stride, **modifiers):
    """The same block of `stride` positions."""
    return _named("block", {"stride": stride, **modifiers})


def summary(stride, c=32, num_verts=1, **modifiers):
    """The c summary positions at the end of each block; with num_verts, heads take sub-blocks of c in turn."""
    return _named("summary", {"stride": stride, "c": c, "num_verts": num_verts, **modifiers})


def fixed(stride, c=32, num_verts=1, **modifiers):
    """block | summary: arXiv 1904.10509, section 4.3."""
    return _named("fixed", {"stride": stride, "c": c, "num_verts": num_verts, **modifiers})


def longformer(window, dilation=(1,), globals=(), **modifiers):
    """A sliding window, dilated by head, and global positions: arXiv 2004.05150."""
    return _named("longformer", {"window": window, "dilation": dilation, "globals": globals, **modifiers})


def bigbird(block, window, random, globals=(0,), seed=0, **modifiers):
    """Blocks in a window, global, or drawn: arXiv 2007.14062."""
    return _named("bigbird", {"block": block, "window": window, "random": random, "globals": globals, "seed": seed,
                              **modifiers})


def convolution(grid, filter, step=1, transposed=False, **modifiers):
    """The keys of a grid [W] or [H, W] that lie under the filter at a query."""
    return _named("convolution", {"grid": grid, "filter": filter, "step": step, "transposed": transposed, **modifiers})


def merged(*patterns, **modifiers):
    """The union of patterns: |, with modifiers."""
    return _named("merged", modifiers, patterns)


def by_head(*patterns, **modifiers):
    """Heads take the patterns in turn; there are as many heads as patterns, or more."""
    return _named("heads", modifiers, patterns)


def by_layout(active, block=64, causal=True, keep=None):
    """Any pattern: active is an array (blocks, blocks) or (heads, blocks, blocks) of bool, or of 0 and 1: whether a pair of
    blocks of 8, 16, 32 or 64 positions is attended. keep(head, query, key) chooses among the pairs of active blocks; it is
    asked once for each pair. Make it outside of compiled functions."""
    import numpy
    try:
        given = numpy.asarray(active)
    except (TypeError, ValueError) as error:  # rows of different lengths, tensors on CUDA
        raise ValueError(f"active must be an array of bool, or of 0 and 1: {error}") from error
    if given.ndim not in (2, 3):
        raise ValueError(f"active must be (blocks, blocks) or (heads, blocks, blocks), got {given.shape}")
    if given.dtype.kind not in "biuf":
        raise ValueError(f"active must be an array of bool, or of 0 and 1, got the type {given.dtype}")
    wrong = given[(given != 0) & (given != 1)]
    if wrong.size:
        raise ValueError(f"active must be an array of bool, or of 0 and 1, got {wrong[0]}: try active > 0")
    if keep is not None and not callable(keep):
        raise ValueError(f"keep must be a function of (head, query, key), or None, got {keep!r}")
    active = numpy.ascontiguousarray(given == 1).view(numpy.uint8)
    active = active[None] if active.ndim == 2 else active
    digest = hashlib.sha256(repr(active.shape).encode() + active.tobytes()).hexdigest()
    text = (f'{{"kind": "layout", "block": {_whole(block)}, "causal": {int(causal)}, "active": "{digest}"'
            + (f', "keep": {id(keep)}' if keep else "") + "}")
    _layouts[text] = (active, block, causal, keep)
    return Pattern(text)
