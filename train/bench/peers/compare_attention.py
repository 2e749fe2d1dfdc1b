#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Joins rows of `bench attention --json` with rows of other implementations, measured in the same run, into a table
(Markdown, on stdout). Ratios are other time / weft time: above 1, weft is faster.

    bench attention --shapes paper --dtype bf16,f16 --json > weft.jsonl
    torch_peers.py weft.jsonl > peers.jsonl
    compare_attention.py weft.jsonl peers.jsonl

Rows join on B, H, N, D, Dv, s, c, mode and element type (of other implementations bf16 unless they say so); files may be JSON
arrays or one JSON object a line, and there may be none of others. After the table come: the GEMM rate and the copy bandwidth
of the device, the fastest of the others for each row, patterns against `all`, and f16 against bf16."""
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


def rates(row, unit, digits, slower=(1, 1)):
    """Of forward and both; of somebody who takes `slower` times as long for the same."""
    names = f"fwd_{unit}", f"fwdbwd_{unit}"
    return " / ".join(f"{row[n] / s:.{digits}f}" for n, s in zip(names, slower)) if all(n in row for n in names) else ""


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
            print(f"| | | | {peer['peer']} | {peer['fwd_ms']:.3f} | {peer['fwdbwd_ms']:.3f} | {rates(row, 'tflops', 0, (f, fb)) if f and fb else ''} | | {f:.2f} | {fb:.2f} |")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("peers", nargs="*")
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
    for row in peers:
        if "error" in row and "fwd_ms" not in row:
            print(f"\n{row.get('peer')} did not run {row.get('mode')} of {row.get('case')}: {row['error'][:100]}")
    for peer, ratio in sorted(worst.items()):
        print(f"\nlowest ratio to {peer}: {ratio:.2f}", end="")
    print()
    if a.at_least and any(ratio < a.at_least for ratio in worst.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
