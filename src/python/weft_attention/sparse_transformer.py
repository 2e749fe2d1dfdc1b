# SPDX-License-Identifier: MIT
"""The model of a weft config in stock PyTorch: arXiv 1904.10509, section 5, and what today's recipe has besides.

    model = load("tiny.safetensors")     # written by the program `convert`
    logits = model(tokens)               # (B, n) -> (B, n, V): row t predicts token t from those before it

Parameters have the names of weft's. How the pairs of a layer are attended to is a function: `by_operator` (the
library), `by_mask` (scaled_dot_product_attention), or one's own. The file stands alone: `convert --to hf` copies it
beside weights, for people without the library, who have `by_mask` and the patterns of `sees`."""
import functools
import json
import math
import types

import torch
from torch import nn
from torch.nn import functional as F

try:
    import weft_attention
except ImportError:
    weft_attention = None

BY_CONTENT = ("routing", "lsh", "topk_blocks")  # kinds whose keys depend on the text
KINDS = ("all", "local", "strided", "block", "summary", "fixed", "merged", "heads")  # that sees() knows


def sees(spec, head, i, j):
    """Whether query i of a head sees key j, of tensors i and j: the definitions of src/patterns/."""
    later, l, u, of = not spec.get("causal", True), spec.get("stride", 128), spec.get("num_verts", 1), spec.get("of")
    c = spec.get("vertsize", 1) * spec.get("block", 0) or spec.get("c", 32)
    first = l - (head % u + 1) * c
    plain = {k: v for k, v in spec.items() if k not in ("prefix", "documents", "length")}
    seen = {
        "all": lambda: (j <= i) | later,
        "local": lambda: (i - j < l) & ((j <= i) | later) & (j - i < l),
        "strided": lambda: (j <= i) & ((i - j) % l == 0),
        "block": lambda: (j <= i) & (i // l == j // l),
        "summary": lambda: (j <= i) & (j % l >= first) & (j % l < first + c),
        "fixed": lambda: sees({**plain, "kind": "block"}, head, i, j) | sees({**plain, "kind": "summary"}, head, i, j),
        "merged": lambda: functools.reduce(torch.logical_or, (sees(one, head, i, j) for one in of)),
        "heads": lambda: sees(of[head % len(of)], head // len(of), i, j)}
    seen = seen[spec["kind"]]()
    if spec.get("prefix"):
        seen = seen & ((j <= i) | (j < spec["prefix"]))
    for border in spec.get("documents", ()):
        seen = seen & ((i < border) == (j < border))
    return seen & (i < spec["length"]) & (j < spec["length"]) if spec.get("length") else seen


def known(spec):
    return spec["kind"] in KINDS and all(map(known, spec.get("of", ())))


def by_operator(spec, n, heads, device):
    """For one entry of model.attention: a function of q, k, v (B, H, n, D)."""
    pattern = weft_attention.patterns.of_config(spec)
    return lambda q, k, v: weft_attention.attention(q, k, v, pattern, layout="bhtd")


def by_mask(spec, n, heads, device):
    at = torch.arange(n, device=device)
    if known(spec):
        mask = torch.stack([sees(spec, head, at[:, None], at) for head in range(heads)])
    elif weft_attention:
        mask = torch.from_numpy(weft_attention.patterns.of_config(spec).mask(n, heads=heads)).to(device)
    else:
        raise ImportError(f"a pattern of the kind {spec['kind']} needs the package weft_attention: pip install ./src/python "
                          f"in a clone of weft. Without it there are {', '.join(KINDS)}")
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.device))


def axis_index(place, axes, a):  # of a position on axis a: axes are outermost first
    return place // math.prod(axes[a + 1:]) % axes[a]


def turns(m, pairs):
    """cos, sin (context + 1, pairs). Pairs are dealt to the axes longer than 1, the first ones get one more; pair j of n of
    an axis turns by index * rotary_base^(-j / n). The first axis has no end."""
    axes, place, columns = m.position_axes, torch.arange(m.context + 1, dtype=torch.float64, device="cpu"), []
    turning = [a for a in range(len(axes)) if axes[a] > 1 or len(axes) == 1]
    for i, a in enumerate(turning):
        count = pairs // len(turning) + (i < pairs % len(turning))
        index = axis_index(place, [m.context + 1, *axes[1:]], a)
        columns.append(index[:, None] * m.rotary_base ** (-torch.arange(count, dtype=torch.float64, device="cpu") / max(count, 1)))
    angles = torch.cat(columns, 1)
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x, cos, sin):
    """Pairs of neighbours of x (B, H, n, D): arXiv 2104.09864, equation 34."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m, self.qk, self.v = m, round(m.qk_ratio * m.width) // m.heads, m.width // m.heads
        self.qkv, self.proj = nn.Linear(m.width, m.heads * (2 * self.qk + self.v)), nn.Linear(m.width, m.width)

    def forward(self, x, attend, turn):
        heads = self.m.heads
        packed = self.qkv(x).split([heads * self.qk, heads * self.qk, heads * self.v], -1)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in packed)
        if self.m.qk_norm == "rms":
            q, k = (F.rms_norm(part, (self.qk,), eps=self.m.norm_eps) for part in (q, k))
        if turn is not None:
            q, k = rotate(q, *turn), rotate(k, *turn)
        return self.proj(attend(q.to(v.dtype), k.to(v.dtype), v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, m):
        super().__init__()
        hidden = round(m.mlp_ratio * m.width)
        self.relu2, self.up, self.down = m.activation == "relu2", nn.Linear(m.width, hidden), nn.Linear(hidden, m.width)

    def forward(self, x):
        h = self.up(x)
        return self.down(F.relu(h).square() if self.relu2 else h * torch.sigmoid(1.702 * h))


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.dropout = m.dropout
        self.attention_norm, self.attention = nn.LayerNorm(m.width, m.norm_eps), Attention(m)
        self.mlp_norm, self.mlp = nn.LayerNorm(m.width, m.norm_eps), Mlp(m)

    def forward(self, x, attend, turn):
        x = x + F.dropout(self.attention(self.attention_norm(x), attend, turn), self.dropout, self.training)
        return x + F.dropout(self.mlp(self.mlp_norm(x)), self.dropout, self.training)


class SparseTransformer(nn.Module):
    """m: a namespace of the keys of `model` in a config (see model_of). device: None is PyTorch's default."""

    def __init__(self, m, device=None, attend=by_operator):
        super().__init__()
        self.m, self.attend, self.attends = m, attend, {}
        rotary = m.positions == "rotary"
        self.token_embedding, self.start = nn.Parameter(torch.empty(m.vocab, m.width)), nn.Parameter(torch.empty(m.width))
        self.previous_embedding = nn.Parameter(torch.empty(m.vocab, m.width)) if m.previous_token else None
        self.position = nn.ParameterList([] if rotary else [torch.empty(rows, m.width) for rows in m.position_axes])
        self.blocks = nn.ModuleList(Block(m) for _ in range(m.layers))
        self.final_norm = nn.LayerNorm(m.width, m.norm_eps) if m.final_norm else nn.Identity()
        self.output = None if m.tied_output else nn.Linear(m.width, m.vocab, bias=False)
        self.turn = turns(m, self.blocks[0].attention.qk // 2) if rotary else None
        self.start_weights()
        if device:
            self.to(device)

    @torch.no_grad()
    def start_weights(self):
        m, init = self.m, self.m.init
        for name, p in self.named_parameters():
            if name.startswith(("token_embedding", "previous_embedding", "start", "position")):
                p.normal_(std=init.position_std if name.startswith("position") else init.token_std)
            elif name.endswith("bias") or name.startswith("output"):
                p.zero_()
            elif p.ndim == 2:
                share = init.weight_gain / p.shape[1] if init.weight_rule == "variance" else init.weight_gain**2 / p.shape[1]
                p.normal_(std=(share / (2 * m.layers if "proj" in name or "down" in name else 1)) ** 0.5)

    def prepare(self, n):
        """Makes what attends to windows of n positions; a compiled model needs it before its first of them."""
        if n not in self.attends:
            device = self.start.device
            self.turn = None if self.turn is None else self.turn.to(device)
            self.attends[n] = [self.attend(spec, n, self.m.heads, device) for spec in self.m.attention]
        return self.attends[n]

    def forward(self, tokens, offsets=None):
        """offsets (B): where each window begins in the context; none: at 0."""
        (B, n), m = tokens.shape, self.m
        at = torch.arange(n, device=tokens.device) + (0 if offsets is None else offsets[:, None])
        x = self.token_embedding[tokens]
        for a, table in enumerate(self.position):
            x = x + table[axis_index(at, m.position_axes, a)]
        if self.previous_embedding is not None:
            x = torch.cat([x[:, :1], x[:, 1:] + self.previous_embedding[tokens[:, :-1]]], 1)
        x = torch.cat([self.start.expand(B, 1, -1), x[:, :-1]], 1)
        x = F.dropout(x, m.embedding_dropout, self.training)
        attends, turn = self.prepare(n), None
        if self.turn is not None:  # (2, n, pairs), or one for each sequence and all its heads
            turn = self.turn.to(x.device)
            turn = turn[:, :n] if offsets is None else turn[:, at % len(turn[0])].unsqueeze(2)
        for i, block in enumerate(self.blocks):
            x = block(x, attends[i % len(attends)], turn)
        return F.linear(self.final_norm(x), self.token_embedding if self.output is None else self.output.weight)


def specs_of(attention):
    """The patterns of an entry `attention` of a config: a mapping is a list of one."""
    return [attention] if isinstance(attention, dict) else attention


def model_of(config):
    """The section `model` of a config that was read from YAML, as a namespace. PyYAML reads YAML 1.1, in which numbers
    such as 5e-3 are texts."""
    def namespace(section):
        number = lambda v: float(v) if isinstance(v, str) and v[:1].isdigit() else v
        return types.SimpleNamespace(**{k: number(v) for k, v in section.items()})
    if int(config.get("data", {}).get("separator", -1)) >= 0:
        raise ValueError("this model was trained with data.separator, within documents: this module knows none. "
                         "The programs sample and evaluate do")
    m = namespace({"positions": "learned", "qk_norm": "none", "previous_token": False, "activation": "gelu"} | config["model"])
    m.init, m.attention = namespace(m.init), specs_of(m.attention)
    return m


def read_config(text):
    """A config as weft writes it, in YAML."""
    try:
        import yaml
    except ImportError as error:
        raise ImportError("the config in the file is YAML, which PyYAML reads: pip install pyyaml") from error
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"has a config that is no YAML: {error}") from error
    if not isinstance(config, dict):
        raise ValueError("has a config that is not a table of keys")
    return config


DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


def read_safetensors(path):
    """Metadata, arrays and data of a file that `convert` wrote. ValueError says what is wrong with it."""
    with open(path, "rb") as file:
        start, size = file.read(8), file.seek(0, 2)
        length = int.from_bytes(start, "little")
        if start in (b"weft: le", b"\x89HDF\r\n\x1a\n"):  # a seal is in front of HDF5
            raise ValueError("is a checkpoint of train, or another HDF5 file")
        if length > 100_000_000 or length < 2:  # the most that the format allows
            raise ValueError("does not begin with the length of a header")
        if size < 8 + length:
            raise ValueError(f"is cut: its header has {length} bytes, behind it are {size - 8}")
        file.seek(8)
        header, data = file.read(length), bytearray(file.read())
    try:
        arrays = json.loads(header)
        metadata = arrays.pop("__metadata__", {})
        ends = [array["data_offsets"][1] for array in arrays.values()]
        for name, a in arrays.items():
            if a["dtype"] not in DTYPES:
                raise ValueError(f"has the array {name} of the type {a['dtype']}, not one of {', '.join(DTYPES)}")
            if a["data_offsets"][1] - a["data_offsets"][0] != math.prod(a["shape"]) * DTYPES[a["dtype"]].itemsize:
                raise ValueError(f"has the array {name}, whose shape does not fit its bytes")
    except (AttributeError, KeyError, TypeError, IndexError, UnicodeDecodeError, json.JSONDecodeError):
        raise ValueError("has no header of safetensors") from None
    if max(ends, default=0) > len(data):
        raise ValueError(f"is cut: its arrays have {max(ends)} bytes, the file has {len(data)} of them")
    if "weft.config" not in metadata:
        raise ValueError("has no weft.config in its metadata: weft did not write it")
    return metadata, arrays, data


def check_config(config):
    """ValueError for a model that is not one of this module."""
    if not isinstance(config.get("model"), dict):
        raise ValueError("has a config without the section `model`")
    model = config["model"]
    if model.get("kind", "sparse_transformer") != "sparse_transformer":
        raise ValueError(f"holds a model of the kind {model['kind']}; this module has sparse_transformer alone")

    def kinds(specs):
        return [kind for spec in specs for kind in (spec["kind"], *kinds(spec.get("of", ())))]
    found = [kind for kind in kinds(specs_of(model["attention"])) if kind in BY_CONTENT]
    if found:
        raise ValueError(f"attends by {found[0]}, whose keys depend on the text; this module knows patterns of positions. "
                         "The programs sample and evaluate run it")


def check_arrays(arrays, model):
    """ValueError where the arrays of a file are not the parameters of its model."""
    expected = {name: list(p.shape) for name, p in model.state_dict().items()}
    found = {name: a["shape"] for name, a in arrays.items()}
    if len(found.get("start", ())) == 2:  # a row for each thing that it may be told
        raise ValueError("holds a model that is told of each sequence (data.labels, or augment with conditional); "
                         "this module starts all sequences alike. The programs sample and evaluate run it")
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise ValueError(f"does not fit its config: expected {name} of the shape {expected.get(name, 'none')}, "
                             f"got {found.get(name, 'none')}")


def load(path, device="cpu", attend=by_operator):
    """The model that a safetensors file of `convert` holds, in f32. ValueError says why a file holds none."""
    try:
        metadata, arrays, data = read_safetensors(path)
        config = read_config(metadata["weft.config"])
        try:
            check_config(config)
            model = SparseTransformer(model_of(config), device, attend)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"has a config that this module does not know: {error}") from error
        check_arrays(arrays, model)
    except ValueError as error:
        raise ValueError(f"{path} {error}. Expected a safetensors file of a model, as `convert runs/NAME NAME.safetensors` "
                         "writes it") from error
    model.load_state_dict({name: torch.frombuffer(data, dtype=DTYPES[a["dtype"]], offset=a["data_offsets"][0],
                                                  count=math.prod(a["shape"])).view(a["shape"]) for name, a in arrays.items()})
    return model.eval()
