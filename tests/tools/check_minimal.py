#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every launch of train/minimal.cpp matters: with any one of them deleted, its losses or weights are no longer those of `train`.
Usage: check_minimal.py BUILD, a folder with the programs built (build/cpu); leaves with 1 where a launch is not missed.

The program as it is must agree first. Then each launch(...) is deleted in turn: minimal.cpp alone is compiled, without
optimisation, and linked with the library of kernels that is built."""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

import h5py
import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE = os.path.join(ROOT, "train", "minimal.cpp")
TEXT = os.path.join(ROOT, "data", "doyle.txt")
STEPS = 3
BLOCK = ("attention_norm", "attention.qkv", "attention.proj", "mlp_norm", "mlp.up", "mlp.down")


def launches(code):
    """(begin, end) of each statement launch(...);"""
    for match in re.finditer(r"\blaunch\((?=queue,)", code):
        depth, at = 1, match.end()
        while depth:
            depth += (code[at] == "(") - (code[at] == ")")
            at += 1
        yield match.start(), code.index(";", at) + 1


def flags(build):
    """The compiler and the options with which minimal.cpp was built there."""
    for entry in json.load(open(os.path.join(build, "compile_commands.json"), encoding="utf-8")):
        if entry["file"] == SOURCE:
            words = shlex.split(entry["command"])
            return words[:words.index("-o")] + ["-w", "-O0"]
    sys.exit(f"{build}: train/minimal.cpp is not built there")


def trained(build, folder):
    """Losses and weights of `train`: matrices first, then vectors, each in the order of the model."""
    run, programs = os.path.join(folder, "run"), os.path.join(build, "bin")
    data = os.path.join(folder, "minimal.h5")
    settings = [f"data.path={data}", f"train.steps={STEPS}", "train.log_every=1", "train.eval_every=0",
                "train.eval_tokens=256"]
    subprocess.run([f"{programs}/prepare", "text", TEXT, "--out", data], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([f"{programs}/train", "--config", f"{ROOT}/configs/minimal.yaml", "--device", "cpu", "--no-report",
                    "--out", run, *(word for setting in settings for word in ("--set", setting))],
                   check=True, stdout=subprocess.DEVNULL)
    with open(f"{run}/metrics.jsonl", encoding="utf-8") as lines:
        losses = ["%.9g" % line["loss"] for line in map(json.loads, lines) if "loss" in line]
    with h5py.File(f"{run}/latest.h5") as file:
        layers = sorted({int(name.split(".")[1]) for name in file["params"] if name.startswith("blocks.")})
        names = ["token_embedding", "start", "position.0"]
        names += [f"blocks.{layer}.{part}.{kind}" for layer in layers for part in BLOCK for kind in ("weight", "bias")]
        names += ["final_norm.weight", "final_norm.bias", "output.weight"]
        arrays = [file["params"][name][()] for name in names]
    flat = [a for a in arrays if a.ndim > 1] + [a for a in arrays if a.ndim == 1]
    return losses, numpy.concatenate([a.ravel() for a in flat]).astype("<f4").tobytes()


class Checker:
    def __init__(self, build, folder):
        self.build, self.folder, self.compile = build, folder, flags(build)
        self.expected = trained(build, folder)

    def agrees(self, name, code):
        """Whether the program with this code gives what `train` gives. Sampling, the same launches again, is left out."""
        stem = os.path.join(self.folder, name)
        code = code.replace("  sample(model);\n", "", 1)
        with open(f"{stem}.cpp", "w", encoding="utf-8") as file:
            file.write(code)
        library = os.path.join(self.build, "lib")
        subprocess.run([*self.compile, "-o", f"{stem}.o", "-c", f"{stem}.cpp"], check=True, cwd=self.build)
        subprocess.run([self.compile[0], *(f for f in self.compile if f.startswith("-fsanitize")), f"{stem}.o",
                        "-o", stem, f"-L{library}", "-lweft_kernels", f"-Wl,-rpath,{library}"], check=True)
        done = subprocess.run([stem, TEXT, "--steps", str(STEPS), "--save", f"{stem}.weights"], check=False,
                              capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            return False
        with open(f"{stem}.weights", "rb") as file:
            return (re.findall(r"loss (\S+)", done.stdout), file.read()) == self.expected


def main():
    with open(SOURCE, encoding="utf-8") as file:
        code = file.read()
    found = list(launches(code))
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(os.path.abspath(sys.argv[1]), folder)
        if not checker.agrees("whole", code):
            sys.exit("train/minimal.cpp does not agree with train: SlowMinimal of weft_tests says where")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            same = list(pool.map(lambda i: checker.agrees(f"without_{i}", code[:found[i][0]] + ";" + code[found[i][1]:]),
                                 range(len(found))))
    unnoticed = [begin for (begin, _), agrees in zip(found, same) if agrees]
    for begin in unnoticed:
        print(f"train/minimal.cpp:{code.count(chr(10), 0, begin) + 1}: nothing changes without this launch")
    if unnoticed:
        sys.exit(1)
    print(f"minimal: agrees with train, and with each of its {len(found)} launches deleted it does not")


if __name__ == "__main__":
    main()
