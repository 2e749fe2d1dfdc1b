#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains one model with each kind of attention, on one text and on a long copy, and prints both tables as Markdown.

The copy trains on letters drawn at random, three quarters of whose spans repeat what came 16 to 8,000 bytes before. It is scored
where 8,000 bytes repeat: 6 bits a byte who can't copy, 0 who can. Decoded bits are those of the first seed, as texts are sampled.

Usage: content_table.py BIN NOVELS.txt OUT [--controls BIN] [--gpus 0,1] [--steps 500] [--copy-steps 1500] [--seeds 2] [--seconds 420]

BIN has the programs. --controls: those of a build with train/content/content_controls.patch, whose labels and blocks are random, or
made after the rotation.
A GPU has one run at a time; the first seed of all kinds comes first, long runs before short ones. No run starts behind --seconds.
OUT gets configs, logs, runs.jsonl (a line a run), and table.md. --small: sizes for a CPU, to try the script."""
import argparse
import json
import os
import pathlib
import queue
import random
import re
import subprocess
import threading
import time

LOCAL, FIXED = "{kind: local, stride: 128}", "{kind: fixed, stride: 128, c: 32}"
ROUTING, BLOCKS = "{kind: routing, clusters: 48, window: 256}", "{kind: topk_blocks, block: 64, blocks: 8}"
LSH = "{kind: lsh, rounds: %d, window: 128}"


def half(pattern):
    return f"{{kind: heads, of: [{pattern}, {LOCAL}]}}"


# row: pattern, control, guess at ms a step
TEXT = {
    "`all`": ("{kind: all}", "", 77), "`local`": (LOCAL, "", 29), "`fixed`": (FIXED, "", 29),
    "`strided`, `local` by layer": (f"[{{kind: strided, stride: 128}}, {LOCAL}]", "", 31),
    "`routing` in half of the heads, `local` in the others": (half(ROUTING), "", 36), "`routing`": (ROUTING, "", 42),
    "`lsh`, 1 round": (LSH % 1, "", 34), "`lsh`, 4 rounds": (LSH % 4, "", 62), "`topk_blocks`": (BLOCKS, "", 37),
    "`routing` in half, labels at random": (half(ROUTING), "random", 36), "`topk_blocks`, blocks at random": (BLOCKS, "random", 37),
    "`routing` in half, labels after the rotation": (half(ROUTING), "rotated", 36),
    "`topk_blocks`, blocks after the rotation": (BLOCKS, "rotated", 37),
}
COPY = {
    "`all`": (half("{kind: all}"), "", 12), "`local`": (LOCAL, "", 6), "`fixed`": (half(FIXED), "", 7),
    "`routing`": (half(ROUTING), "", 7), "`lsh`, 4 rounds": (half(LSH % 4), "", 9),
    "`topk_blocks`": (half(BLOCKS), "", 7), "`routing`, labels at random": (half(ROUTING), "random", 7),
    "`topk_blocks`, blocks at random": (half(BLOCKS), "random", 7),
}
LEAST = 16  # distance
CONFIG = """name: {name}
seed: {seed}
precision: bf16
data: {{path: {data}}}
model:
  context: {context}
  layers: {layers}
  width: {width}
  heads: {heads}
  activation: relu2
  positions: rotary
  rotary_base: {base}
  qk_norm: rms
  position_axes: [{context}]
  attention: {attention}
train:
  steps: {steps}
  batch: 4
  optimizer: muon
  learning_rate: 5e-3
  final_learning_rate: 0.02
  warmup: {warmup}
  context_schedule: {contexts}
  schedule: linear
  log_every: {log_every}
  eval_every: {steps}
  eval_tokens: {eval_tokens}
  save_every: 0
"""


def small(pattern):
    """The same with an eighth of the window."""
    pattern = re.sub(r"(stride|window): (\d+)", lambda m: f"{m[1]}: {int(m[2]) // 8}", pattern)
    return pattern.replace("c: 32", "c: 4").replace("clusters: 48", "clusters: 8").replace("blocks: 8", "blocks: 3")


class Run:
    def __init__(self, a, task, row, seed):
        self.task, self.row, self.seed = task, row, seed
        pattern, self.control, guess = (TEXT if task == "text" else COPY)[row]
        copy = task == "copy"
        steps = a.copy_steps if copy else a.steps
        self.bin = pathlib.Path(a.controls if self.control else a.bin)
        self.cost = guess * steps
        self.name = f"{task}_{re.sub('[^a-z0-9]+', '_', row).strip('_')}_{seed}"
        sizes = (dict(context=384, layers=2, width=64, heads=4) if a.small else
                 dict(context=12288, layers=4, width=256, heads=4) if copy else dict(context=12288, layers=12, width=512, heads=8))
        parts = ((0, 48), (3, 8), (5, 1)) if copy else ((0, 8), (5, 1))  # copies are learned where there are few keys
        contexts = [[steps * at // 8, sizes["context"] // part] for at, part in parts]
        self.folder, self.config = a.out / self.name, a.out / f"{self.name}.yaml"
        self.config.write_text(CONFIG.format(
            name=self.name, seed=seed, data=a.out / ("copy.h5" if copy else "novels.h5"), steps=steps,
            base="1e7" if copy else "1e4", warmup=steps // 10 + 1, contexts=contexts, log_every=max(1, steps // 20),
            eval_tokens=16 * sizes["context"], attention=small(pattern) if a.small else pattern, **sizes))

    def measure(self, a, environment):
        """{"bits": ..., "ms": ..., "gib": ...}"""
        def call(program, *arguments):
            done = subprocess.run([self.bin / program, *arguments], env=environment, capture_output=True, text=True)
            with open(a.out / f"{self.name}.log", "a") as log:
                log.write(done.stdout + done.stderr)
            if done.returncode:
                raise RuntimeError((done.stderr or done.stdout).strip()[-500:])
            return done.stdout + done.stderr
        if self.control == "rotated":
            environment = dict(environment, WEFT_ROTATED_LABELS="1")
        said = call("train", "--config", self.config, "--out", self.folder, "--device", a.device, "--no-report",
                    *(word for value in a.set for word in ("--set", value)))
        rows = [json.loads(line) for line in open(self.folder / "metrics.jsonl")]
        first, last = rows[-5], rows[-1]  # of full context
        peak, unit = re.search(r"peak ([\d.]+) ([KMG])iB", said).groups()
        result = {"ms": 1e3 * (last["elapsed_s"] - first["elapsed_s"]) / (last["step"] - first["step"]), "bits": last["valid_bits"],
                  "gib": float(peak) / 1024 ** "GMK".index(unit), "seconds": last["elapsed_s"]}
        def score(*arguments):
            return json.loads(re.search(r"^\{.*\}$", call("evaluate", "--checkpoint", self.folder / "latest.h5", "--device",
                                                          a.device, *arguments), re.M)[0])
        if self.task == "copy":
            # Both splits begin with the same window, whose beginning repeats nothing: it cancels.
            bits, tokens = 0, 0
            for split, sign in (("test", 1), ("valid", -1)):
                scored = score("--data", a.out / "far.h5", "--split", split, "--min-context", str(a.distance))
                bits, tokens = bits + sign * scored["bits"] * scored["tokens"], tokens + sign * scored["tokens"]
            result["bits"] = bits / tokens
        elif self.seed == 0 and not self.control:
            short = ("--data", a.out / "short.h5", "--batch", "16")
            result["whole"], result["decoded"] = score(*short)["bits"], score(*short, "--decode")["bits"]
        return result


def repeating(text, length, most):
    """A quarter of the spans goes on in the text, the others repeat; lengths and distances are uniform in the logarithm, a
    quarter of the distances is uniform."""
    draw, out, at = random.Random(1), bytearray(), 0
    while len(out) < length:
        size, distance = (int(LEAST * (most / LEAST) ** draw.random()) for _ in range(2))
        if draw.random() < 0.25:
            distance = draw.randint(LEAST, most)
        if draw.random() < 0.25 or len(out) < most:
            out += text[at:at + size]
            at += size
            size = 0
        while size > 0:
            out += out[len(out) - distance:][:size]
            size -= distance
    return out[:length]


def prepare(a):
    """novels.h5, copy.h5; far.h5, whose splits hold whole repetitions."""
    text, context = a.novels.read_bytes(), 384 if a.small else 12288
    letters = random.Random(0).randbytes(12_000_000).translate(bytes(64 + i % 64 for i in range(256)))
    far, size = 20 * letters[-a.distance:], min(len(text), 24_000_000)
    short = text[len(text) * 9 // 10:][:20 * context]
    for name, content, split in (("novels", text, "0.9,0.05,0.05"), ("short", short, "0.1,0.1,0.8"), ("far", far, "0.1,0.1,0.8"),
                                 ("copy", repeating(letters[:-a.distance], size, a.distance), "0.98,0.01,0.01")):
        (a.out / f"{name}.bin").write_bytes(content)
        subprocess.run([a.bin / "prepare", "text", a.out / f"{name}.bin", "--split", split, "--out", a.out / f"{name}.h5"],
                       check=True, stdout=subprocess.DEVNULL)


def work(a, gpu, runs, results, began):
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES=str(gpu))
    while True:
        try:
            run = runs.get_nowait()
        except queue.Empty:
            return
        if time.time() - began > a.seconds:
            print(f"not run, no time left: {run.name}", flush=True)
            continue
        try:
            result = run.measure(a, environment)
        except Exception as error:  # the queue goes on
            print(f"{run.name} failed: {error}", flush=True)
            continue
        results.append((run, result))
        line = {"task": run.task, "row": run.row, "seed": run.seed, "gpu": gpu, "at_s": round(time.time() - began, 1), **result}
        with open(a.out / "runs.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def table(task, rows, results):
    lines = [f"| {task} | bits, mean | of each seed | whole; decoded | ms a step | GiB |", "|---|---|---|---|---|---|"]
    for row in rows:
        of_row = [result for run, result in sorted(results, key=lambda r: r[0].seed) if run.task == task and run.row == row]
        if of_row:
            mean = {key: sum(r[key] for r in of_row) / len(of_row) for key in ("bits", "ms", "gib")}
            each = ", ".join(f"{r['bits']:.4f}" for r in of_row)
            decoded = next((f"{r['whole']:.5f}; {r['decoded']:.5f}" for r in of_row if "decoded" in r), "")
            lines.append(f"| {row} | {mean['bits']:.4f} | {each} | {decoded} | {mean['ms']:.1f} | {mean['gib']:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bin", "novels", "out"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--controls", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    for name, default in (("steps", 500), ("copy-steps", 1500), ("seeds", 2), ("copy-seeds", 1), ("seconds", 420)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--gpus", default="0,1")
    parser.add_argument("--set", action="append", default=[], help="of train")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", help="rows that match this expression")
    a = parser.parse_args()
    a.out, a.novels = a.out.resolve(), a.novels.resolve()
    a.out.mkdir(parents=True, exist_ok=True)
    began = time.time()
    a.distance = 256 if a.small else 8000
    prepare(a)
    every = [Run(a, task, row, seed) for task, rows, seeds in (("copy", COPY, a.copy_seeds), ("text", TEXT, a.seeds))
             for row, (_, control, _) in rows.items() for seed in range(seeds)
             if (a.controls or not control) and re.search(a.only or "", f"{task} {row}")]
    runs, results = queue.Queue(), []
    for run in sorted(every, key=lambda run: (run.seed, -run.cost)):
        runs.put(run)
    workers = [threading.Thread(target=work, args=(a, gpu, runs, results, began)) for gpu in a.gpus.split(",")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for row in () if a.small else ("`fixed`", "`routing` in half of the heads, `local` in the others"):
        config = next((run.config for run in every if run.task == "text" and run.row == row), None)
        done = config and subprocess.run([a.bin / "bench", "step", "--config", config, "--set", "train.context_schedule=[]",
                                          "--json", "--no-breakdown", "--device", a.device], capture_output=True, text=True)
        print(f"bench step, {row}: {done and done.stdout + done.stderr}", flush=True)
    text = table("text", TEXT, results) + "\n" + table("copy", COPY, results)
    (a.out / "table.md").write_text(text)
    print(text + f"{time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
