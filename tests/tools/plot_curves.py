#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws validation bits against tokens and against seconds from metrics.jsonl files (needs matplotlib): those of the moving
average of the weights where it is kept.

Usage: plot_curves.py OUT.png UNIT LABEL=TOKENS_A_STEP=RUN/metrics.jsonl [LABEL=...]     UNIT: "bits per byte" ...
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
    out, unit, *runs = sys.argv[1:]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for run in runs:
        label, tokens_a_step, path = run.split("=", 2)
        rows = read(path)
        bits = [r.get("valid_bits_ema", r["valid_bits"]) for r in rows]
        axes[0].plot([r["step"] * int(tokens_a_step) / 1e6 for r in rows], bits, marker="o", markersize=3, label=label)
        axes[1].plot([r["elapsed_s"] for r in rows], bits, marker="o", markersize=3, label=label)
        print(f"{label}: {bits[-1]:.4f} bits at step {rows[-1]['step']}, {rows[-1]['elapsed_s']:.0f} s")
    axes[0].set_xlabel("million tokens of training")
    axes[1].set_xlabel("seconds of training")
    axes[0].set_ylabel("validation " + unit)
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main()
