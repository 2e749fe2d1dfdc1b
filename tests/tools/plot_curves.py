#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws validation bits per byte against tokens and against seconds from metrics.jsonl files (needs matplotlib).

Usage: plot_curves.py OUT.png LABEL=RUN/metrics.jsonl [LABEL=...]
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def read(path):
    rows = [json.loads(line) for line in open(path) if line.strip()]
    return [r for r in rows if "valid_bits" in r]


def main():
    out, *runs = sys.argv[1:]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for run in runs:
        label, path = run.split("=", 1)
        rows = read(path)
        for axis, key, scale in ((axes[0], "step", 1), (axes[1], "elapsed_s", 1)):
            axis.plot([r[key] * scale for r in rows], [r["valid_bits"] for r in rows], marker="o", markersize=3, label=label)
        print(f'{label}: {rows[-1]["valid_bits"]:.4f} bits at step {rows[-1]["step"]}, {rows[-1]["elapsed_s"]:.0f} s')
    axes[0].set_xlabel("step")
    axes[1].set_xlabel("seconds of training")
    axes[0].set_ylabel("validation bits per byte")
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main()
