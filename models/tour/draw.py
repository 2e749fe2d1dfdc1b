#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the pictures of models/TOUR.md. Needs Pillow (python3-pil).
    draw.py stream OUT.png                    the steps of row 6 of eight.py
    draw.py attention OUT.png                 its attention weights, queries x keys
    draw.py cache OUT.png                     which keys a cache holds, with fixed attention
    draw.py memory CONFIG OUT.png             what `inspect` counts for a training step
    draw.py curves OUT.png RUN...             bits of the steps of runs (metrics.jsonl)
"""
import json
import pathlib
import re
import subprocess
import sys

import eight
from PIL import Image, ImageDraw, ImageFont

CELL, LINE, FONT = 56, 16, ImageFont.load_default()
WHITE, BLACK, GREY, LIGHT = (255, 255, 255), (20, 20, 20), (120, 120, 120), (225, 225, 225)
BLUE, RED = (31, 110, 183), (200, 70, 50)


def canvas(width, height):
    image = Image.new("RGB", (width, height), WHITE)
    return image, ImageDraw.Draw(image)


def shade(value, largest):
    """White at 0, blue above, red below."""
    share = min(1.0, abs(value) / largest)
    return tuple(round(255 + share * (c - 255)) for c in (BLUE if value > 0 else RED))


def words(draw, at, text, color=BLACK, anchor="left"):
    width = draw.textlength(text, font=FONT)
    x = at[0] - {"left": 0, "middle": width / 2, "right": width}[anchor]
    draw.text((x, at[1]), text, fill=color, font=FONT)


def table(rows, columns, texts=None, largest=1.0):
    """rows: (name, values). A cell for each value, None: none."""
    left, height = 80, CELL // 2
    image, draw = canvas(left + CELL * len(columns) + 8, LINE + 4 + height * len(rows) + 8)
    for c, column in enumerate(columns):
        words(draw, (left + CELL * (c + 0.5), 3), column, GREY, "middle")
    for r, (name, values) in enumerate(rows):
        y = LINE + 4 + height * r
        words(draw, (left - 8, y + 8), name, BLACK, "right")
        for c, value in enumerate(values):
            x = left + CELL * c
            fill = LIGHT if value is None else shade(value, largest)
            draw.rectangle((x, y, x + CELL - 2, y + height - 2), fill=fill)
            text = texts[r][c] if texts else "" if value is None else f"{value + 0.0:.3f}"
            dark = value is not None and abs(value) > 0.55 * largest
            words(draw, (x + CELL / 2 - 1, y + 8), text, WHITE if dark else BLACK, "middle")
    return image


def stream():
    row = eight.forward(eight.TEXT)[6]
    names = ("embedded", "normed", "query", "attended", "middle", "end", "logits")
    return table([(name, row[name]) for name in names], [*eight.LETTERS, "-", "-", "-"],
                 largest=2.7)


def attention():
    rows = eight.forward(eight.TEXT)
    weights = [dict(zip(row["sees"], row["weights"])) for row in rows]
    keys = range(len(rows))
    return table([(f"query {i}", [of.get(j) for j in keys]) for i, of in enumerate(weights)],
                 [f"key {j}" for j in keys])


def cache():
    """Fixed attention, stride 4, c 1: a key stays until no later query sees it."""
    n, stride = 2 * eight.WIDTH, eight.STRIDE
    keys = range(n)

    def attends(i, j):
        return j <= i and (i // stride == j // stride or j % stride == stride - 1)

    kept = [[j <= t and any(attends(i, j) for i in range(t + 1, n)) for j in keys] for t in keys]
    return table([(f"after {t:2}", [0.8 if held else None for held in row])
                  for t, row in enumerate(kept)], [f"key {j}" for j in keys],
                 [["kept" if held else "" for held in row] for row in kept])


def memory(config):
    """Bars of weights, gradients, optimizer and activations, a bar for each kind of recompute."""
    text = subprocess.run(["inspect", "--config", config], capture_output=True, text=True,
                          check=True).stdout
    sizes = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    rows = []
    for line in re.findall(r"^  ((?:none|attention|block).*GiB)$", text, re.M):
        parts = [float(a) * sizes[b] / 2**30 for a, b in re.findall(r"([\d.]+) (\w+iB)", line)]
        rows.append((line.split()[0], parts[:4]))
    largest = max(sum(parts) for _, parts in rows)
    image, draw = canvas(640, 40 + 34 * len(rows))
    colors = ((22, 74, 120), BLUE, (120, 170, 215), RED)
    for k, name in enumerate(("weights", "gradients", "optimizer", "kept by the tape")):
        draw.rectangle((80 + 130 * k, 8, 90 + 130 * k, 18), fill=colors[k])
        words(draw, (96 + 130 * k, 8), name)
    for r, (name, parts) in enumerate(rows):
        x, y = 80.0, 34 + 34 * r
        words(draw, (72, y + 7), name, BLACK, "right")
        for part, color in zip(parts, colors):
            draw.rectangle((x, y, x + part / largest * 470, y + 24), fill=color)
            x += part / largest * 470
        words(draw, (x + 6, y + 7), f"{sum(parts):.1f} GiB")
    return image


def curves(folders):
    """Bits by step; the first run as a line, others as dots."""
    image, draw = canvas(580, 260)
    runs = [[json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").open()]
            for folder in folders]
    runs = [[row for row in run if "bits" in row] for run in runs]
    last, top = runs[0][-1]["step"], max(row["bits"] for run in runs for row in run)

    def at(row):
        return 48 + 490 * row["step"] / last, 228 - 200 * row["bits"] / top

    for bits in range(0, int(top) + 1, 2):
        y = 228 - 200 * bits / top
        draw.line((48, y, 538, y), fill=LIGHT)
        words(draw, (42, y - 6), str(bits), GREY, "right")
    for step in range(0, last + 1, last // 3):
        words(draw, (48 + 490 * step / last, 234), f"step {step}" if step else "0", GREY, "middle")
    draw.line([at(row) for row in runs[0]], fill=BLUE, width=2)
    for run in runs[1:]:
        for x, y in map(at, run):
            draw.ellipse((x - 3, y - 3, x + 3, y + 3), outline=RED)
    for k, folder in enumerate(folders):
        words(draw, (360, 40 + LINE * k), ("o " if k else "- ") + pathlib.Path(folder).name,
              RED if k else BLUE)
    words(draw, (48, 8), "bits of a byte", GREY)
    return image


def main():
    arguments = sys.argv[1:]
    if len(arguments) < 2:
        sys.exit(__doc__)
    what, out = arguments[:2]
    if what == "memory":
        image, out = memory(arguments[1]), arguments[2]
    elif what == "curves":
        image = curves(arguments[2:])
    else:
        image = {"stream": stream, "attention": attention, "cache": cache}[what]()
    image.save(out, optimize=True)


if __name__ == "__main__":
    main()
