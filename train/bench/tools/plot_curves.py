#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws validation bits against tokens and against seconds of training, for several runs (needs matplotlib): those of the moving
average of the weights where a run keeps one.

Usage: plot_curves.py OUT.png UNIT LABEL=TOKENS_A_STEP=FILE [LABEL=...]     UNIT: "bits per byte" ...

FILE is one of these. metrics.jsonl of a run. The output of another implementation: an object with "curve", a list of
[step, bits of the batch, validation bits, seconds], or the lines "(step, bits, validation bits, seconds)" of a run that was ended
early. Seconds are of training alone in all of them. Prints the end of each run, its MFU where the file has it, and when each run
first reached the last bits of the others."""
import ast
import json
import sys


MFU_KEYS = ("mfu", "matrix_share", "matrix_rate")  # the last two: older files


def read(path):
    """[(step, validation bits, seconds)], the mean MFU or None"""
    points, early, mfu = [], [], []
    for line in open(path):
        row = json.loads(line) if line.startswith("{") else {}
        if line.startswith("("):
            step, _, valid, seconds = ast.literal_eval(line)
            early.append((step, valid, seconds))
        if row.get("valid_bits") is not None and "elapsed_s" in row:  # null: the evaluation was given up
            points.append((row["step"], row.get("valid_bits_ema", row["valid_bits"]), row["elapsed_s"]))
        points += [(step, valid, seconds) for step, _, valid, seconds in row.get("curve", [])]
        mfu += [row[key] for key in MFU_KEYS if row.get(key) is not None][:1]
    points = points or early
    if not points:
        sys.exit(f"{path} holds no validation bits")
    return points, sum(mfu) / len(mfu) if mfu else None


def report(runs):
    for label, _, points, mfu in runs:
        step, bits, seconds = points[-1]
        share = "" if mfu is None else f", MFU {100 * mfu:.1f}%"
        print(f"{label}: {bits:.4f} bits at step {step}, {seconds:.1f} s of training{share}")
        for other, _, others, _ in runs:
            reached = next((p for p in points if p[1] <= others[-1][1]), None)
            if other != label and reached:
                print(f"{label} reached the {others[-1][1]:.4f} bits of {other} at step {reached[0]}, {reached[2]:.1f} s")


def draw(out, unit, runs):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for label, tokens_a_step, points, _ in runs:
        bits = [p[1] for p in points]
        text = f"{label}: {bits[-1]:.3f}"
        axes[0].plot([p[0] * tokens_a_step / 1e6 for p in points], bits, marker="o", markersize=3, label=text)
        axes[1].plot([p[2] for p in points], bits, marker="o", markersize=3, label=text)
    axes[0].set_xlabel("million tokens of training")
    axes[1].set_xlabel("seconds of training")
    axes[0].set_ylabel("validation " + unit)
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.legend()
        axis.set_xlim(left=0)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    out, unit, *arguments = sys.argv[1:]
    runs = [(label, int(tokens), *read(path)) for label, tokens, path in (a.split("=", 2) for a in arguments)]
    report(runs)
    draw(out, unit, runs)


if __name__ == "__main__":
    main()
