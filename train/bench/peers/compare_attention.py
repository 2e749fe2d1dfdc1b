#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Joins rows of `bench attention --json` with rows of other implementations, measured in the same run, into a table
(Markdown, on stdout) and a bar chart. Ratios are other time / weft time: above 1, weft is faster.

    bench attention --shapes paper --dtype bf16,f16 --json > weft.jsonl
    compare_attention.py weft.jsonl peers.json merged.json --chart attention.png

Rows join on B, H, N, D, Dv, s, c, mode and element type (of other implementations bf16 unless they say so); files may be JSON
arrays or one JSON object a line, and there may be none of others. After the table come: the GEMM rate and the copy bandwidth
of the device, the fastest of the others for each row, patterns against `all`, f16 against bf16, forms that were asked for
against the one that is chosen, and how time grows with the pairs that are needed."""
import argparse
import json
import sys

MODES = ("all", "local", "strided", "fixed", "merged_strided")


def rows_of(path):
    with open(path) as file:
        text = file.read()
    try:
        rows = json.loads(text)
        return rows if isinstance(rows, list) else [rows]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def shape_of(row):
    return tuple(row.get(k) for k in ("B", "H", "N", "D")) + (row.get("Dv", row["D"]), row.get("s"), row.get("c"))


def key_of(row):
    return shape_of(row) + (row["mode"], row.get("dtype", "bf16"))


def shape_text(row):
    sizes = row["D"] if row.get("Dv", row["D"]) == row["D"] else f"{row['D']}/{row['Dv']}"
    return f"B{row['B']} H{row['H']} N{row['N']} D{sizes} l{row['s']}"


def chosen(rows):
    """Rows of the form that is chosen where none is asked for."""
    return [r for r in rows if r.get("asked", "automatic") == "automatic"]


def joined(weft, peers):
    """(weft row, [peer rows, fastest forward + backward first]) for every weft row."""
    by_key = {}
    for row in peers:
        if "fwd_ms" in row:
            by_key.setdefault(key_of(row), []).append(row)
    return [(row, sorted(by_key.get(key_of(row), []), key=lambda p: p["fwdbwd_ms"])) for row in weft]


def ratios(row, other):
    return other["fwd_ms"] / row["fwd_ms"], other["fwdbwd_ms"] / row["fwdbwd_ms"]


def rates(row, unit, digits):
    names = f"fwd_{unit}", f"fwdbwd_{unit}"
    return " / ".join(f"{row[n]:.{digits}f}" for n in names) if all(n in row for n in names) else ""


def print_table(pairs, only):
    """The table; {peer: lowest ratio}."""
    print("| shape | pattern | type | by | forward ms | f + b ms | TFLOP/s f / f + b | TB/s f / f + b | ratio f | ratio f + b |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    worst = {}
    for row, peers in pairs:
        asked = row.get("asked", "automatic")
        name = f"**weft** ({row.get('form', '')})" if asked == "automatic" else f"weft, {asked}"
        print(f"| {shape_text(row)} | {row['mode']} | {row.get('dtype', 'bf16')} | {name} | {row['fwd_ms']:.3f} | {row['fwdbwd_ms']:.3f} "
              f"| {rates(row, 'tflops', 0)} | {rates(row, 'TBps', 2)} | | |")
        for peer in peers:
            if asked != "automatic" or (only and peer["peer"] not in only):
                continue
            f, fb = ratios(row, peer)
            print(f"| | | | {peer['peer']} | {peer['fwd_ms']:.3f} | {peer['fwdbwd_ms']:.3f} | {rates(peer, 'tflops', 0)} | | {f:.2f} | {fb:.2f} |")
            worst[peer["peer"]] = min(worst.get(peer["peer"], f), f, fb)
    return worst


def print_ceilings(rows):
    for row in rows:
        if "ceiling" in row and "value" in row:
            print(f"* {row['ceiling']}, measured by {row.get('peer', 'the others')}: {row['value']:.4g}")


def print_best(pairs):
    print("\n| shape | pattern | the fastest of the others | ratio f | ratio f + b | of the GEMM rate f / f + b | of the copy bandwidth f / f + b |")
    print("|---|---|---|---|---|---|---|")
    for row, peers in pairs:
        if row.get("asked", "automatic") != "automatic" or row.get("dtype", "bf16") != "bf16":
            continue
        name, f, fb = "not measured", "", ""
        if peers:
            best = [min(peers, key=lambda p: p[k]) for k in ("fwd_ms", "fwdbwd_ms")]  # each pass has a fastest of its own
            name = ", ".join(dict.fromkeys(p["peer"] for p in best))
            f, fb = f"{ratios(row, best[0])[0]:.2f}", f"{ratios(row, best[1])[1]:.2f}"
        share = lambda unit, of: " / ".join(f"{100 * row[n] / row[of]:.0f} %" for n in (f"fwd_{unit}", f"fwdbwd_{unit}")) if of in row else ""
        print(f"| {shape_text(row)} | {row['mode']} | {name} | {f} | {fb} | {share('tflops', 'matmul_tflops')} | {share('TBps', 'copy_TBps')} |")


def verdict(text, rows):
    print(f"\n{text}: " + ("none" if not rows else ""))
    for row in rows:
        print(f"* {row}")


def print_dense(weft):
    found = [r for r in weft if "fwdbwd_of_all" in r and min(r["fwd_of_all"], r["fwdbwd_of_all"]) < 1]
    measured = sum("fwdbwd_of_all" in r and r["mode"] != "all" for r in weft)
    verdict(f"slower than `all` of the same shape, of {measured} rows",
            [f"{shape_text(r)} {r['mode']} {r.get('dtype', 'bf16')}: {r['fwd_of_all']:.2f}, {r['fwdbwd_of_all']:.2f} times as fast" for r in found])


def print_half(weft, limit=1.03):
    """f16 beside bf16."""
    by_key = {key_of(r): r for r in weft}
    slower, count = [], 0
    for row in weft:
        if row.get("dtype", "bf16") != "bf16":
            continue
        half = by_key.get(key_of(row)[:-1] + ("f16",))
        if half:
            count += 1
            f, fb = ratios(row, half)
            if max(f, fb) > limit:
                slower.append(f"{shape_text(row)} {row['mode']}: {f:.3f}, {fb:.3f} of the time of bf16")
    verdict(f"f16 more than {100 * (limit - 1):.0f} % slower than bf16, of {count} rows", slower)


def print_forms(weft, limit=0.97):
    """Forms that were asked for beside the one that is chosen, which may be the same."""
    by_key = {key_of(r): r for r in chosen(weft)}
    faster, count = [], 0
    for row in weft:
        if row.get("asked", "automatic") == "automatic" or key_of(row) not in by_key:
            continue
        count += 1
        f, fb = ratios(by_key[key_of(row)], row)
        if min(f, fb) < limit:
            faster.append(f"{shape_text(row)} {row['mode']}: {row['asked']} takes {f:.2f}, {fb:.2f} of the time")
    verdict(f"more than {100 * (1 - limit):.0f} % faster by a form that is not chosen, of {count} rows", faster)


def print_growth(weft):
    """Time for each needed pair, relative to the shortest sequence of the same head size and type."""
    print("\n| pattern | type | head | N: time a pair, relative to the shortest, f / f + b |")
    print("|---|---|---|---|")
    groups = {}
    for row in chosen(weft):
        if "pairs" in row:
            groups.setdefault((row["mode"], row.get("dtype", "bf16"), row["D"], row.get("Dv", row["D"])), []).append(row)
    for (mode, dtype, d, dv), rows in sorted(groups.items(), key=lambda g: (MODES.index(g[0][0]) if g[0][0] in MODES else 9, g[0])):
        rows.sort(key=lambda r: (r["N"], r["s"]))
        if rows[0]["N"] == rows[-1]["N"]:
            continue
        first = [rows[0][k] / rows[0]["pairs"] for k in ("fwd_ms", "fwdbwd_ms")]
        text = "; ".join(f"{r['N']}: {r['fwd_ms'] / r['pairs'] / first[0]:.2f} / {r['fwdbwd_ms'] / r['pairs'] / first[1]:.2f}" for r in rows)
        print(f"| {mode} | {dtype} | {d}/{dv} | {text} |")


def draw_row(axis, row, peers):
    bars = [("weft", row["fwdbwd_ms"], row["fwd_ms"])] + [(p["peer"], p["fwdbwd_ms"], p["fwd_ms"]) for p in peers]
    for at, (name, both, forward) in enumerate(bars):
        axis.barh(at, both, color="#1f6fb4" if name == "weft" else "#b8b8b8")
        axis.barh(at, forward, color="#124a7a" if name == "weft" else "#888888")
        axis.text(both, at, f" {forward:.3g}, {both:.3g}", va="center", fontsize=7)
    axis.set_yticks(range(len(bars)), [b[0] for b in bars], fontsize=7)
    axis.set_xlim(0, 1.3 * max(b[1] for b in bars))
    axis.set_ylim(max(len(bars), 4) - 0.5, -0.5)
    axis.tick_params(axis="x", labelsize=6)
    axis.set_title(row["mode"], fontsize=8, loc="left")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def draw(pairs, path):
    """A line of panels for each shape, a panel for each pattern; rows in bf16, of the form that is chosen."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    shapes = {}
    for row, peers in pairs:
        if row.get("dtype", "bf16") == "bf16" and row.get("asked", "automatic") == "automatic":
            shapes.setdefault(shape_of(row), []).append((row, peers))
    if not shapes:
        sys.exit("no bf16 rows to draw")
    columns = max(len(rows) for rows in shapes.values())
    fig, axes = plt.subplots(len(shapes), columns, figsize=(3.1 * columns, 1.5 * len(shapes) + 0.4), squeeze=False)
    for line, rows in zip(axes, shapes.values()):
        for axis in line[len(rows):]:
            axis.axis("off")
        for axis, (row, peers) in zip(line, rows):
            draw_row(axis, row, peers)
        line[0].annotate(shape_text(rows[0][0]), (0, 1), (-60, 24), "axes fraction", textcoords="offset points", fontsize=9, weight="bold")
    fig.suptitle("attention, milliseconds: forward (dark) of forward + backward", fontsize=9, x=0.01, ha="left")
    fig.tight_layout()
    fig.savefig(path, dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("peers", nargs="*")
    parser.add_argument("--chart", help="PNG to write")
    parser.add_argument("--only", help="peers to compare with, separated by commas")
    parser.add_argument("--at-least", type=float, help="exit with 1 when any ratio is lower")
    a = parser.parse_args()
    ours = rows_of(a.weft)
    peers = [row for path in a.peers for row in rows_of(path)]
    weft = [row for row in ours if "fwd_ms" in row]
    if not weft:
        sys.exit(f"{a.weft} holds no rows of `bench attention --json`")
    pairs = joined(weft, peers)
    worst = print_table(pairs, set(a.only.split(",")) if a.only else None)
    print()
    print_ceilings(ours + peers)
    print_best(pairs)
    print_dense(chosen(weft))
    print_half(chosen(weft))
    print_forms(weft)
    print_growth(weft)
    for row in peers:
        if "error" in row and "fwd_ms" not in row:
            print(f"\n{row.get('peer')} did not run {row.get('mode')} of {row.get('case')}: {row['error'][:100]}")
    for peer, ratio in sorted(worst.items()):
        print(f"\nlowest ratio to {peer}: {ratio:.2f}", end="")
    print()
    if a.chart:
        draw(pairs, a.chart)
    if a.at_least and any(ratio < a.at_least for ratio in worst.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
