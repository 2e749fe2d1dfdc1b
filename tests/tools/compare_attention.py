#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Joins rows of `bench attention --json` with rows of other implementations, measured in the same run, into a table
(Markdown, on stdout) and a bar chart. Ratios are other time / weft time: above 1, weft is faster.

    bench attention --shapes paper --json > weft.jsonl
    compare_attention.py weft.jsonl peers.json --chart attention.png

Rows join on B, H, N, D, s, c and mode; both files may be JSON arrays or one JSON object a line."""
import argparse
import json
import sys


def rows_of(path):
    with open(path) as file:
        text = file.read()
    try:
        rows = json.loads(text)
        return rows if isinstance(rows, list) else [rows]
    except json.JSONDecodeError:
        rows = []
        for line in text.splitlines():
            if line.startswith("{"):
                rows.append(json.loads(line))
        return rows


def key_of(row):
    return tuple(row.get(k) for k in ("B", "H", "N", "D", "s", "c", "mode"))


def joined(weft, peers):
    """(weft row, [peer rows, fastest forward + backward first]) for every weft row."""
    by_key = {}
    for row in peers:
        if "fwd_ms" in row:
            by_key.setdefault(key_of(row), []).append(row)
    for row in weft:
        if "fwd_ms" in row:
            same = [p for p in by_key.get(key_of(row), []) if row.get("Dv", row["D"]) == p.get("Dv", p["D"])]
            yield row, sorted(same, key=lambda p: p["fwdbwd_ms"])


def print_table(pairs, only):
    print("| shape | pattern | by | forward ms | f + b ms | useful TFLOP/s f / f + b | ratio f | ratio f + b |")
    print("|---|---|---|---|---|---|---|---|")
    worst = {}
    for row, peers in pairs:
        shape = f"B{row['B']} H{row['H']} N{row['N']} D{row['D']}/{row.get('Dv', row['D'])} l{row['s']}"
        rates = lambda r: f"{r['fwd_tflops']:.0f} / {r['fwdbwd_tflops']:.0f}"
        form = row.get("form", "automatic")
        name = "weft" if form == "automatic" else f"weft ({form})"
        print(f"| {shape} | {row['mode']} | **{name}** | {row['fwd_ms']:.3f} | {row['fwdbwd_ms']:.3f} | {rates(row)} | | |")
        for peer in peers:
            if only and peer["peer"] not in only:
                continue
            f, fb = peer["fwd_ms"] / row["fwd_ms"], peer["fwdbwd_ms"] / row["fwdbwd_ms"]
            print(f"| | | {peer['peer']} | {peer['fwd_ms']:.3f} | {peer['fwdbwd_ms']:.3f} | {rates(peer)} | {f:.2f} | {fb:.2f} |")
            worst[peer["peer"]] = min(worst.get(peer["peer"], f), f, fb)
    return worst


def draw(pairs, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    pairs = [(row, peers) for row, peers in pairs if peers]
    fig, axes = plt.subplots(len(pairs), 1, figsize=(8, 0.35 * sum(len(p) + 2 for _, p in pairs)), squeeze=False,
                             gridspec_kw={"height_ratios": [len(p) + 1 for _, p in pairs]})
    for axis, (row, peers) in zip(axes[:, 0], pairs):
        bars = [("weft", row["fwdbwd_ms"], row["fwd_ms"])] + [(p["peer"], p["fwdbwd_ms"], p["fwd_ms"]) for p in peers]
        for at, (name, both, forward) in enumerate(bars):
            axis.barh(at, both, color="#1f6fb4" if name == "weft" else "#b8b8b8")
            axis.barh(at, forward, color="#124a7a" if name == "weft" else "#888888")
            axis.text(both, at, f" {both:.2f}", va="center", fontsize=7)
        axis.set_yticks(range(len(bars)), [b[0] for b in bars], fontsize=7)
        axis.invert_yaxis()
        axis.set_title(f"{row['mode']}, B{row['B']} H{row['H']} N{row['N']} D{row['D']}: ms, forward (dark) of forward + backward",
                       fontsize=8, loc="left")
        axis.tick_params(axis="x", labelsize=7)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    fig.tight_layout()
    fig.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("peers")
    parser.add_argument("--chart", help="PNG to write")
    parser.add_argument("--only", help="peers to compare with, separated by commas")
    parser.add_argument("--at-least", type=float, help="exit with 1 when any ratio is lower")
    a = parser.parse_args()
    pairs = list(joined(rows_of(a.weft), rows_of(a.peers)))
    if not pairs:
        sys.exit(f"{a.weft} holds no rows of `bench attention --json`")
    worst = print_table(pairs, set(a.only.split(",")) if a.only else None)
    for peer, ratio in sorted(worst.items()):
        print(f"\nlowest ratio to {peer}: {ratio:.2f}", end="")
    print()
    if a.chart:
        draw(pairs, a.chart)
    if a.at_least and any(ratio < a.at_least for ratio in worst.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
