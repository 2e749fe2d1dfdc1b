# SPDX-License-Identifier: MIT
"""The model of a weft config in stock PyTorch, with the recipe of today beside that of the paper: learned or rotary positions,
QK-norm, quick GELU or squared ReLU, AdamW or Muon. Attention is the best that by_hand.py has for each pattern."""
import math
import types

import torch
from torch import nn
from torch.nn import functional as F

import by_hand

RECIPE = {"positions": "learned", "rotary_base": 10000, "qk_norm": "none", "activation": "gelu"}  # where a config has no such key


def load_config(path, reference, settings=()):
    """A namespace of the keys of a config; `reference` is configs/reference.yaml, which has the defaults. settings: a.b=c."""
    import yaml
    config = yaml.safe_load(open(reference))

    def merge(into, of):
        for key, value in of.items():
            if isinstance(value, dict) and isinstance(into.get(key), dict):
                merge(into[key], value)
            else:
                into[key] = value
    merge(config, {"model": RECIPE | config["model"], "train": {"optimizer": "adamw", "muon_learning_rate": 0.02} | config["train"]})
    merge(config, yaml.safe_load(open(path)))
    for setting in settings:
        key, value = setting.split("=", 1)
        for name in reversed(key.split(".")):
            value = {name: yaml.safe_load(value) if isinstance(value, str) else value}
        merge(config, value)
    numbers = lambda section: {k: float(v) if isinstance(v, str) and v[:1].isdigit() else v for k, v in section.items()}  # 5e-3
    model, train = numbers(config["model"]), numbers(config["train"])
    model["init"] = types.SimpleNamespace(**numbers(model["init"]))
    if isinstance(model["attention"], dict):
        model["attention"] = [model["attention"]]
    return types.SimpleNamespace(model=types.SimpleNamespace(**model), train=types.SimpleNamespace(**train), seed=config["seed"])


def angles(m, size, device):
    """cos, sin (context, size / 2), as rotary_table of models/layers.h: pairs are dealt to the axes longer than 1 in order, pair i
    of P turns by base^(-i / P)."""
    axes, pairs = m.position_axes, size // 2
    turning = [a for a in range(len(axes)) if axes[a] > 1 or len(axes) == 1]
    position = torch.arange(m.context, dtype=torch.float64)
    columns = []
    for i, a in enumerate(turning):
        count = pairs // len(turning) + (i < pairs % len(turning))
        coordinate = position // math.prod(axes[a + 1:])
        if a > 0:
            coordinate %= axes[a]
        columns.append(coordinate[:, None] * m.rotary_base ** (-torch.arange(count, dtype=torch.float64) / count))
    turn = torch.cat(columns, 1)
    return turn.cos().float().to(device), turn.sin().float().to(device)


def rotate(x, cos, sin):
    """Pairs of neighbours of x (B, H, n, D): arXiv 2104.09864, equation 34."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x.dtype)


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m, self.qk, self.v = m, round(m.qk_ratio * m.width) // m.heads, m.width // m.heads
        hidden = round(m.mlp_ratio * m.width)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(m.width, m.norm_eps), nn.LayerNorm(m.width, m.norm_eps)
        self.qkv, self.proj = nn.Linear(m.width, m.heads * (2 * self.qk + self.v)), nn.Linear(m.width, m.width)
        self.up, self.down = nn.Linear(m.width, hidden), nn.Linear(hidden, m.width)

    def forward(self, x, attend, turn):
        m, (B, n, _) = self.m, x.shape
        sizes = [m.heads * self.qk, m.heads * self.qk, m.heads * self.v]
        q, k, v = (part.view(B, n, m.heads, -1).transpose(1, 2) for part in self.qkv(self.attention_norm(x)).split(sizes, -1))
        if m.qk_norm == "rms":
            q, k = (F.rms_norm(part, (self.qk,), eps=m.norm_eps) for part in (q, k))
        if turn is not None:
            q, k = rotate(q, *turn), rotate(k, *turn)
        y = attend(q.to(v.dtype), k.to(v.dtype), v).transpose(1, 2).reshape(B, n, m.width)
        x = x + F.dropout(self.proj(y), m.dropout, self.training)
        h = self.up(self.mlp_norm(x))
        h = F.relu(h).square() if m.activation == "relu2" else h * torch.sigmoid(1.702 * h)
        return x + F.dropout(self.down(h), m.dropout, self.training)


class SparseTransformer(nn.Module):
    """tokens (B, n) -> mean loss in nats; row t sees tokens before t."""

    def __init__(self, config, device):
        super().__init__()
        m = self.m = config.model
        self.token, self.start = nn.Embedding(m.vocab, m.width), nn.Parameter(torch.empty(m.width))
        rotary = m.positions == "rotary"
        self.position = nn.ModuleList([] if rotary else [nn.Embedding(size, m.width) for size in m.position_axes])
        self.blocks = nn.ModuleList(Block(m) for _ in range(m.layers))
        self.norm = nn.LayerNorm(m.width, m.norm_eps) if m.final_norm else nn.Identity()
        self.output = nn.Linear(m.width, m.vocab, bias=False)
        self.turn = angles(m, self.blocks[0].qk, device) if rotary else None
        self.attends, self.device = {}, device
        self.to(device).start_weights()

    @torch.no_grad()
    def start_weights(self):
        m = self.m
        spread = lambda fan_in: m.init.weight_gain / fan_in**0.5 if m.init.weight_rule == "std" else (m.init.weight_gain / fan_in) ** 0.5
        for name, p in self.named_parameters():
            if name.startswith(("token", "start")):
                p.normal_(std=m.init.token_std)
            elif name.startswith("position"):
                p.normal_(std=m.init.position_std)
            elif name.endswith("bias") or name.startswith("output"):
                p.zero_()
            elif p.ndim == 2:
                last = "proj" in name or "down" in name
                p.normal_(std=spread(p.shape[1]) / ((2 * m.layers) ** 0.5 if last else 1))

    def prepare(self, n):
        """Makes the masks for windows of n positions; to be called before the first of them."""
        if n not in self.attends:
            self.attends[n] = [by_hand.best(spec, n, self.device) for spec in self.m.attention]

    def forward(self, tokens, offsets):
        n = tokens.shape[1]
        first = self.start.expand(len(tokens), 1, -1)
        x = torch.cat([first, self.token(tokens[:, :-1])], 1)
        at = offsets[:, None] + torch.arange(n, device=tokens.device)
        if self.position:
            inner = 1
            for size, table in zip(reversed(self.m.position_axes), reversed(self.position)):
                x = x + table(at // inner % size)
                inner *= size
        x = F.dropout(x, self.m.embedding_dropout, self.training)
        if (turn := self.turn) is not None:  # along one axis distances alone count
            turn = tuple(part[at].unsqueeze(1) if len(self.m.position_axes) > 1 else part[:n] for part in turn)
        for i, block in enumerate(self.blocks):
            x = block(x, self.attends[n][i % len(self.m.attention)], turn)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1).float(), tokens.flatten())


def orthogonal(G, steps=5):
    """Newton-Schulz in bf16 (Jordan 2024, kellerjordan.github.io/posts/muon) on a batch of matrices (b, rows, cols)."""
    X = G.bfloat16()
    tall = X.shape[1] > X.shape[2]
    X = X.mT if tall else X
    X = X / (X.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return X.mT if tall else X


class Muon:
    """For matrices; those of one shape are one batch. Weight decay is decoupled."""

    def __init__(self, matrices, rate, decay):
        self.rate, self.decay, self.groups = rate, decay, {}
        for p in matrices:
            self.groups.setdefault(p.shape, []).append(p)
        self.means = {shape: [torch.zeros_like(p) for p in group] for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, share, momentum):
        for shape, group in self.groups.items():
            gradients, means = [p.grad for p in group], self.means[shape]
            torch._foreach_lerp_(means, gradients, 1 - momentum)
            updates = orthogonal(torch.stack(torch._foreach_lerp(gradients, means, momentum)))
            scale = max(1, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(group, 1 - self.rate * share * self.decay)
            torch._foreach_add_(group, [u.float() for u in updates], alpha=-self.rate * share * scale)
