#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What limits the kernels of attention, of sampling and of the training step: one launch of each under ncu (Nsight Compute), as a table in Markdown.
Needs a GPU whose counters may be read, and build/cuda/bin/bench. About a minute.

    train/bench/tools/profile_gpu.py [LABEL ...]       rows whose label contains one of these; none: all

Shares are of the device's peak at its present clock: tensor cores, issue slots, bandwidth of the second-level cache and of the
memory. Warps: resident on a multiprocessor. Stalls: cycles that a warp waits between two of its instructions, by reason; the
producer warps of Hopper kernels wait nearly always."""
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys

ATTENTION = ["attention", "--no-verify", "--shapes", "enwik8", "--patterns"]
OTHER = ["attention", "--no-verify", "--shapes"]
MAINLOOPS = "forward_kernel|begin_fused_kernel|backward_fused_kernel"
STEP = ["step", "--config", "enwik8.yaml", "--set", "model.layers=2", "--set", "train.batch=4", "--set", "train.graph=false", "--steps", "1",
        "--no-breakdown"]
# label, kernels (a regular expression), how many of them, which launch of each, arguments of bench
CASES = (
    ("attention all", MAINLOOPS, 3, 2, [*ATTENTION, "all"]),
    ("attention fixed", MAINLOOPS, 3, 2, [*ATTENTION, "fixed"]),
    ("attention local", "band_.*_kernel", 2, 2, [*ATTENTION, "local"]),
    ("attention strided", "band_.*_kernel", 2, 2, [*ATTENTION, "strided"]),
    ("attention local, heads of 128", "(band|head128)_.*_kernel", 2, 2, [*OTHER, "cifar10", "--patterns", "local"]),
    ("attention strided, heads of 128", "(band|head128)_.*_kernel", 2, 2, [*OTHER, "cifar10", "--patterns", "strided"]),
    ("attention local, windows of 256", "window_.*_kernel", 2, 2, [*OTHER, "long64k", "--patterns", "local"]),
    ("attention strided, columns of 256", "column_.*_kernel", 2, 2, [*OTHER, "long64k", "--patterns", "strided"]),
    ("attention strided, columns of 1,024", "column_.*_kernel", 2, 2, [*OTHER, "long1m", "--patterns", "strided"]),
    ("sampling, 256 images", "persistent_kernel", 1, 1100, ["decode", "--config", "cifar10.yaml", "--batch", "256", "--positions", "1100"]),
    ("training step, two layers", ".*", 80, 3, STEP),
)
STALLED = "smsp__average_warps_issue_stalled_"
SHARES = {
    "tensor cores": ("sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
                     "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"),
    "issue slots": ("smsp__issue_active.avg.pct_of_peak_sustained_elapsed",),
    "L2": ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
    "memory": ("dram__throughput.avg.pct_of_peak_sustained_elapsed",),
}
OTHERS = ("gpu__time_duration.sum", "launch__registers_per_thread", "sm__warps_active.avg.per_cycle_active")


def known_metrics(ncu):
    """Names without what follows the first dot; those with launch__ are always there."""
    text = subprocess.run([ncu, "--query-metrics", "--chips", "gh100"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in text.splitlines() if "__" in line}


def chosen_metrics(known):
    wanted = [name for names in SHARES.values() for name in names] + list(OTHERS)
    chosen = [name for name in wanted if name.startswith("launch__") or name.split(".")[0] in known]
    stalls = sorted(n for n in known if n.startswith(STALLED) and n.endswith("_per_issue_active") and "selected" not in n)
    return chosen + [name + ".ratio" for name in stalls]


def short_name(name, base):
    name = re.sub(r"\(anonymous namespace\)|<unnamed>|\([a-z ]+\)(?=\d)|weft::|^void ", "", name).split("(")[0].strip(":")
    name = re.sub(r"\b(\w+::)+", "", name)
    return (name if base == "demangled" else name.split("<")[0])[:60].replace("|", "/")


def profile(ncu, metrics, kernels, count, number, command):
    """[{"kernel": name, metric: value}] of launch `number` of each of `count` kernels; instances of a template are kernels of their own
    in the training step, where most are."""
    base = "demangled" if command[1] == "step" else "function"
    out = subprocess.run([ncu, "--csv", "--print-units", "base", "--clock-control", "none", "--kernel-id", f"::regex:{kernels}:{number}",
                          "--kernel-name-base", base,
                          "--launch-count", str(count), "--kill", "yes", "--metrics", ",".join(metrics), *command],
                         capture_output=True, text=True, env=dict(os.environ, WEFT_TUNE="0"))
    lines = out.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        print((out.stdout + out.stderr)[-2000:], file=sys.stderr)
        return []
    launches = {}
    for row in csv.DictReader(lines[start:]):
        if not (row.get("Metric Name") and row["ID"].isdigit()):
            continue
        launch = launches.setdefault(row["ID"], {"kernel": short_name(row["Kernel Name"], base)})
        try:
            launch[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
        except ValueError:
            pass  # "n/a"
    return [launch for launch in launches.values() if "fill" not in launch["kernel"]]


def print_row(label, launch):
    shares = []
    for names in SHARES.values():
        share = max((launch[n] for n in names if n in launch), default=None)
        shares.append("" if share is None else f"{share:.0f} %")
    stalls = sorted(((v, n[len(STALLED):].split("_per_")[0].replace("_", " ")) for n, v in launch.items() if n.startswith(STALLED)), reverse=True)
    time, registers, warps = (launch.get(n, 0) for n in OTHERS)
    print(f"| {label} | {launch['kernel']} | {time / 1000:.1f} | {' | '.join(shares)} | {registers:.0f} | {warps:.1f} | "
          + ", ".join(f"{name} {value:.1f}" for value, name in stalls[:3]) + " |", flush=True)


def main():
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    folders = [pathlib.Path(d) for d in ("build/cuda/bin", "build/portable/bin", "bin")]
    bench = next((d / "bench" for d in folders if (d / "bench").exists()), None)
    if bench is None:
        sys.exit("no bench in build/cuda/bin")
    metrics = chosen_metrics(known_metrics(ncu))
    print(f"| | kernel | µs | {' | '.join(SHARES)} | registers | warps | stalls |")
    print("|---|---|---|" + "---|" * (len(SHARES) + 3))
    for label, kernels, count, number, arguments in CASES:
        if len(sys.argv) < 2 or any(part in label for part in sys.argv[1:]):
            for launch in profile(ncu, metrics, kernels, count, number, [str(bench), *arguments]):
                print_row(label, launch)


if __name__ == "__main__":
    main()
