#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a weft config in stock PyTorch: torch.compile, fused AdamW, attention by hand; on a GPU bf16 autocast.

    train_peer.py step  --config configs/paper/enwik8.yaml [--set train.batch=4] [--steps 20]    ms of a step, on random tokens
    train_peer.py train --config configs/novels_12l_minute.yaml --data novels.txt                seconds and bits, as it trains
    train_peer.py step  --config configs/tiny.yaml --device cpu --against build/cpu/bin/bench    both in turn, and their ratio

`train` takes the first 90 % of the bytes and scores the first 1,966,080 of the next 5 % at full context, with the windows,
schedule, clipping and decay of the config. Seconds are those of training: every window is compiled before the first step.
A JSON line at the end. Needs PyYAML. OPENBLAS_CORETYPE, where it is set, holds for weft alone: unset it."""
import argparse
import copy
import json
import math
import os
import statistics
import subprocess
import time
import types

import torch
from torch import nn
from torch.nn import functional as F

import by_hand
from weft_attention.sparse_transformer import SparseTransformer, model_of

SCORED = 1966080
MUON_START, MUON_STEPS = 0.85, 300  # its momentum grows from here in so many steps


def load_config(path, reference, settings=()):
    """model, train and seed of a config; `reference` is configs/reference.yaml, which has the defaults. settings: a.b=c."""
    import yaml
    config = yaml.safe_load(open(reference))

    def merge(into, of):
        for key, value in of.items():
            if isinstance(value, dict) and isinstance(into.get(key), dict):
                merge(into[key], value)
            else:
                into[key] = value
    merge(config, {"model": {"rotary_base": 10000} | config["model"],
                   "train": {"optimizer": "adamw", "muon_learning_rate": 0.02} | config["train"]})
    merge(config, yaml.safe_load(open(path)))
    for setting in settings:
        key, value = setting.split("=", 1)
        for name in reversed(key.split(".")):
            value = {name: yaml.safe_load(value) if isinstance(value, str) else value}
        merge(config, value)
    numbers = {k: float(v) if isinstance(v, str) and v[:1].isdigit() else v for k, v in config["train"].items()}  # 5e-3
    return types.SimpleNamespace(model=model_of(config), train=types.SimpleNamespace(**numbers), seed=config["seed"])


SAFETY = 1.01
POLYNOMIALS = [tuple(k / SAFETY ** (i * (step < 4)) for i, k in zip((1, 3, 5), abc)) for step, abc in enumerate([
    (8.28721201814563, -23.595886519098837, 17.300387312530933), (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137), (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673)])]


def orthogonal(G):
    """Polar Express, on a GPU in bf16 (Amsel et al. 2025, arXiv 2505.16932), on a batch of matrices (b, rows, cols)."""
    X = G.bfloat16() if G.is_cuda else G
    tall = X.shape[1] > X.shape[2]
    X = X.mT if tall else X
    X = X / (SAFETY * X.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for a, b, c in POLYNOMIALS:
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X.mT if tall else X


def equal_rows(O, v):
    """NorMuon (Li et al. 2025, arXiv 2510.05491): rows are equally long as a mean over the updates; norms of matrices stay."""
    v.lerp_(O.square().mean(dim=2, keepdim=True), 0.05)
    rows = O / (v.sqrt() + 1e-10)
    return rows * (O.norm(dim=(1, 2), keepdim=True) / rows.norm(dim=(1, 2), keepdim=True).clamp(min=1e-30))


class Muon:
    """For matrices; those of one shape are one batch. Weight decay is decoupled."""

    def __init__(self, matrices, rate, decay):
        self.rate, self.decay, self.groups = rate, decay, {}
        for p in matrices:
            self.groups.setdefault(p.shape, []).append(p)
        self.means = {shape: [torch.zeros_like(p) for p in group] for shape, group in self.groups.items()}
        self.rows = {shape: torch.zeros(len(group), shape[0], 1, device=group[0].device) for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, share, momentum):
        for shape, group in self.groups.items():
            gradients, means = [p.grad for p in group], self.means[shape]
            torch._foreach_lerp_(means, gradients, 1 - momentum)
            scale = max(1, shape[0] / shape[1]) ** 0.5
            updates = orthogonal(torch.stack(torch._foreach_lerp(gradients, means, momentum)))
            updates = equal_rows(updates.float(), self.rows[shape])
            torch._foreach_mul_(group, 1 - self.rate * share * self.decay)
            torch._foreach_add_(group, list(updates), alpha=-self.rate * share * scale)


class Recipe:
    def __init__(self, config, model):
        t = self.train = config.train
        muon = t.optimizer == "muon"
        matrices = [p for name, p in model.named_parameters() if muon and name.startswith("blocks.") and p.ndim == 2]
        taken = {id(p) for p in matrices}
        rest = [p for p in model.parameters() if id(p) not in taken]
        groups = [dict(params=[p for p in rest if (p.ndim >= 2) == decayed], weight_decay=t.weight_decay if decayed else 0.0)
                  for decayed in (True, False)]
        self.adamw = torch.optim.AdamW([g for g in groups if g["params"]], t.learning_rate, betas=(t.beta1, t.beta2), eps=t.eps, fused=True)
        self.muon = Muon(matrices, t.muon_learning_rate, t.muon_weight_decay) if muon else None
        self.parameters = list(model.parameters())

    def share(self, step):
        """Of the peak of the learning rate."""
        t = self.train
        if step < t.warmup:
            return (step + 1) / t.warmup
        progress = min(1.0, (step + 1 - t.warmup) / max(t.steps - t.warmup, 1))
        left = {"constant": 1.0, "linear": 1 - progress, "cosine": 0.5 * (1 + math.cos(math.pi * progress))}[t.schedule]
        return left if t.schedule == "constant" else t.final_learning_rate + (1 - t.final_learning_rate) * left

    def update(self, step):
        share = self.share(step)
        if self.train.clip > 0:
            nn.utils.clip_grad_norm_(self.parameters, self.train.clip)
        for group in self.adamw.param_groups:
            group["lr"] = self.train.learning_rate * share
        self.adamw.step()
        if self.muon:
            self.muon.step(share, min(0.95, MUON_START + 0.1 * step / MUON_STEPS))
        for p in self.parameters:
            p.grad = None


def stages(config):
    """[(first step, window)], the full context at least."""
    return [tuple(stage) for stage in config.train.context_schedule] or [(0, config.model.context)]


def window_at(config, step):
    return [window for first, window in stages(config) if first <= step][-1]


class Run:
    def __init__(self, config, device, eager):
        torch.manual_seed(config.seed)
        torch.set_float32_matmul_precision("high")
        torch._dynamo.config.cache_size_limit = 64
        by_stock = lambda spec, n, heads, device: by_hand.best(spec, n, device)
        self.config, self.device, self.model = config, device, SparseTransformer(config.model, device, by_stock)
        self.recipe = Recipe(config, self.model)
        self.compiled = self.mean_loss if eager else torch.compile(self.mean_loss, dynamic=False)

    def mean_loss(self, tokens, offsets):
        return F.cross_entropy(self.model(tokens, offsets).flatten(0, 1).float(), tokens.flatten())

    def loss(self, tokens, offsets):
        self.model.prepare(tokens.shape[1])
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
            return self.compiled(tokens, offsets)

    def step(self, number, tokens, offsets):
        loss = self.loss(tokens, offsets)
        loss.backward()
        self.recipe.update(number)
        return loss

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def compile(self, tokens_of):
        """Runs two steps at each window and takes them back; returns the seconds that it took."""
        begun = time.monotonic()
        weights = copy.deepcopy(self.model.state_dict())
        for window in sorted({window for _, window in stages(self.config)}):
            for _ in range(2):
                self.step(0, *tokens_of(window))
        self.model.load_state_dict(weights)
        self.recipe = Recipe(self.config, self.model)
        self.wait()
        return time.monotonic() - begun


def time_steps(run, steps):
    m, t = run.config.model, run.config.train
    tokens = torch.randint(0, m.vocab, (t.batch, m.context), device=run.device)
    offsets = torch.zeros(t.batch, dtype=torch.long, device=run.device)
    times = []
    for number in range(steps):
        run.wait()
        begun = time.monotonic()
        loss = run.step(number, tokens, offsets)
        run.wait()
        times.append(time.monotonic() - begun)
    median = sorted(times[3:])[len(times[3:]) // 2]
    return dict(ms=round(median * 1e3, 2), tokens_per_s=round(t.batch * m.context / median), first_step_s=round(times[0], 1),
                loss=round(loss.item(), 4), GiB=round(torch.cuda.max_memory_allocated() / 2**30, 1))


def in_turn(run, a):
    """Medians of the rates of weft and of PyTorch, one after the other in each round."""
    command = [a.against, "step", "--config", a.config, "--device", a.device, "--steps", str(a.steps), "--no-breakdown", "--json"]
    command += [word for setting in a.set for word in ("--set", setting)]
    ours, theirs = [], []
    for _ in range(a.rounds):
        ours.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["tok_s"])
        theirs.append(time_steps(run, a.steps)["tokens_per_s"])
    weft, peer = statistics.median(ours), statistics.median(theirs)
    return dict(weft=weft, peer=peer, ratio=round(weft / peer, 3), weft_rounds=ours, peer_rounds=theirs)


class Bytes:
    def __init__(self, path, config, device):
        data = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8).to(device)
        ends = [len(data) * percent // 100 for percent in (90, 95)]
        self.train, self.valid = data[: ends[0]], data[ends[0]: ends[1]]
        self.config, self.random = config, torch.Generator().manual_seed(config.seed)

    def batch(self, window):
        m, t = self.config.model, self.config.train
        count = t.batch * m.context // window
        draw = lambda most: torch.randint(0, most, (count,), generator=self.random)
        row = math.prod(m.position_axes[1:])
        offsets = draw((m.context - window) // row + 1) * row
        tokens = torch.stack([self.train[i: i + window] for i in draw(len(self.train) - window + 1).tolist()])
        return tokens.long(), offsets.to(tokens.device)

    @torch.no_grad()
    def bits(self, run):
        n, batch = self.config.model.context, self.config.train.batch
        windows = self.valid[: min(SCORED, len(self.valid)) // n * n].view(-1, n).long()
        offsets = torch.zeros(batch, dtype=torch.long, device=run.device)
        run.model.eval()
        losses = [run.loss(part, offsets[: len(part)]).item() * len(part) for part in windows.split(batch)]
        run.model.train()
        return sum(losses) / len(windows) / math.log(2)


def train(run, data, every):
    compiled, seconds, curve = run.compile(data.batch), 0.0, []
    steps, begun = run.config.train.steps, time.monotonic()
    for step in range(steps):
        run.step(step, *data.batch(window_at(run.config, step)))
        if (step + 1) % every == 0 or step + 1 == steps:
            run.wait()
            seconds += time.monotonic() - begun
            curve.append((step + 1, round(seconds, 1), round(data.bits(run), 4)))
            print(*curve[-1], flush=True)
            run.wait()
            begun = time.monotonic()
    return dict(compile_s=round(compiled, 1), train_s=round(seconds, 1), valid_bits=curve[-1][2], curve=curve)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("step", "train"))
    parser.add_argument("--config", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c")
    parser.add_argument("--data", help="a file of bytes")
    parser.add_argument("--steps", type=int, default=20, help="of step")
    parser.add_argument("--every", type=int, default=800, help="steps between evaluations")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--against", metavar="BENCH", help="the program bench: its step and PyTorch's in turn")
    parser.add_argument("--rounds", type=int, default=5, help="of --against")
    a = parser.parse_args()
    configs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../configs")
    run = Run(load_config(a.config, os.path.join(configs, "reference.yaml"), a.set), a.device, a.eager)
    if a.what == "train":
        result = train(run, Bytes(a.data, run.config, a.device), a.every)
    else:
        result = in_turn(run, a) if a.against else time_steps(run, a.steps)
    print(json.dumps(dict(config=os.path.basename(a.config), settings=a.set, torch=torch.__version__, **result)), flush=True)


if __name__ == "__main__":
    main()
