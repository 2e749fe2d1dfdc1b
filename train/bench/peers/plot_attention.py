#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the milliseconds of `bench attention --json` rows of one shape, a bar a pattern. Needs matplotlib.

    bench attention --shapes enwik8 --json > rows.jsonl
    plot_attention.py rows.jsonl attention.png"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

NAMES = {"all": "dense (all)", "merged_strided": "merged (local | strided)"}


def main():
    source, picture = sys.argv[1:3]
    with open(source) as file:
        rows = [row for row in map(json.loads, file) if "mode" in row]
    rows.sort(key=lambda row: row["fwdbwd_ms"])
    names = [NAMES.get(row["mode"], row["mode"]) for row in rows]
    figure, axes = plt.subplots(figsize=(8, 2.4))
    axes.barh(names, [row["fwdbwd_ms"] for row in rows], color="#1f6eb7", label="backward")
    axes.barh(names, [row["fwd_ms"] for row in rows], color="#164a78", label="forward")
    for at, row in enumerate(rows):
        times = rows[-1]["fwdbwd_ms"] / row["fwdbwd_ms"]
        axes.text(row["fwdbwd_ms"] + 0.04, at, f'{row["fwdbwd_ms"]:.3g} ms' + (f"  ({times:.3g}x)" if times > 1 else ""),
                  va="center", fontsize=9)
    first = rows[0]
    axes.set_title(f'Attention, {first["dtype"]}: batch {first["B"]}, {first["H"]} heads of {first["D"]}, n = {first["N"]:,}',
                   fontsize=10, loc="left")
    axes.set_xlim(0, 1.12 * rows[-1]["fwdbwd_ms"])
    axes.set_xlabel("milliseconds")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main()
