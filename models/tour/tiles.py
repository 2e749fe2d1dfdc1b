#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the tiles of a pattern in an order of yours (models/TOUR.md, chapter 3).

PREDICATE says whether query i sees key j; causality (j <= i) is added. ORDER is a Python expression
of i by which positions are sorted; --keys sorts keys otherwise than queries. A key for which the
expression --start holds starts on a tile, and the slots before it stay empty.
    tiles.py '(i - j) % 64 == 0'
    tiles.py '(i - j) % 64 == 0' --order 'i % 64'
    tiles.py 'i // 64 == j // 64 or j % 64 >= 48' --order i --keys 'i % 64 < 48'
    tiles.py 'i // 64 == j // 64 or j % 64 == 63' --keys 'i % 64 != 63' --start 'i % 64 == 0'
"""
import argparse


def slots(order, n):
    """Positions in their order; equal ones stay as they are."""
    return sorted(range(n), key=eval(f"lambda i: ({order})"))


def on_tiles(positions, start, edge):
    """Positions in slots; None is an empty one, before each position that starts on a tile."""
    starts, filled = eval(f"lambda i: ({start})"), []
    for i in positions:
        if starts(i):
            filled += [None] * (-len(filled) % edge)
        filled.append(i)
    return filled


def kinds(attends, queries, keys, edge):
    """A row for each tile of queries: '#' all pairs are needed, 'o' some, '.' none."""
    rows, pairs = [], 0
    for top in range(0, len(queries), edge):
        row = ""
        for left in range(0, len(keys), edge):
            needed = sum(attends(i, j) for i in queries[top:top + edge]
                         for j in keys[left:left + edge] if j is not None)
            pairs += needed
            row += "." if needed == 0 else "#" if needed == edge * edge else "o"
        rows.append(row)
    return rows, pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("predicate")
    parser.add_argument("--order", default="i")
    parser.add_argument("--keys", help="default: as --order")
    parser.add_argument("--start", default="False", help="default: keys are packed")
    parser.add_argument("--n", type=int, default=512)
    parser.add_argument("--edge", type=int, default=64)
    options = parser.parse_args()
    attends = eval(f"lambda i, j: j <= i and ({options.predicate})")
    keys = on_tiles(slots(options.keys or options.order, options.n), options.start, options.edge)
    rows, pairs = kinds(attends, slots(options.order, options.n), keys, options.edge)
    tiles = sum(len(row) - row.count(".") for row in rows)
    print("\n".join(rows))
    executed = tiles * options.edge ** 2
    print(f"{pairs:,} pairs needed, {tiles} tiles of {options.edge} x {options.edge}: "
          f"{executed:,} pairs executed, waste {executed / max(pairs, 1):.2f}")


if __name__ == "__main__":
    main()
