#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A Sparse Transformer in plain Python: eight tokens, eight features, one layer (models/TOUR.md).

Its weights are chosen, not trained: eight numbers, each times the unit matrix. Features 0 to 4
stand for the letters t, o, k, e, n.
    eight.py                        a line for each row: what it holds, sees and predicts
    eight.py --row 6                every step of one row
    eight.py --attention            the weights of the attention, queries x keys
    eight.py --gradient output      d loss / d number, from two losses beside each other
    eight.py --save F.safetensors   the weights, for `convert` and what reads its checkpoints
"""
import argparse
import json
import math
import pathlib
import struct

TEXT, LETTERS = "tokentok", "token"
WIDTH, STRIDE, VOCAB, EPS = 8, 4, 256, 1e-5
NUMBERS = {
    "embedding": -1.0,  # a letter is -1 at its feature: "not this one"
    "query": -1.0,
    "key": 1.0,
    "value": -1.0,
    "projection": math.sqrt(7) / 8,
    "up": 1.0,
    "down": 0.25,
    "output": 4.0,
}


def times(number, x):
    """A linear layer whose matrix is number * I."""
    return [number * value for value in x]


def add(x, y):
    return [a + b for a, b in zip(x, y)]


def dot(x, y):
    return sum(a * b for a, b in zip(x, y))


def norm(x):
    """Layernorm without weights: mean 0, variance 1."""
    mean = sum(x) / len(x)
    variance = sum((value - mean) ** 2 for value in x) / len(x)
    return [(value - mean) / math.sqrt(variance + EPS) for value in x]


def softmax(scores):
    largest = max(scores)
    powers = [math.exp(score - largest) for score in scores]
    return [power / sum(powers) for power in powers]


def attends(i, j):
    """Whether query i sees key j: the pattern `strided`."""
    return j <= i and (i - j) % STRIDE == 0


def embed(letter):
    return [number if letter == LETTERS[f:f + 1] else 0.0
            for f, number in enumerate([NUMBERS["embedding"]] * 5 + [0.0] * 3)]


def forward(text):
    """The steps of each row: a list of dicts. Row t holds letter t - 1 and predicts letter t."""
    number = NUMBERS
    rows = [{"holds": letter, "embedded": embed(letter)} for letter in ["", *text[:-1]]]
    for row in rows:
        row["normed"] = norm(row["embedded"])
        for name in ("query", "key", "value"):
            row[name] = times(number[name], row["normed"])
    for i, row in enumerate(rows):
        row["sees"] = [j for j in range(len(rows)) if attends(i, j)]
        row["scores"] = [dot(row["query"], rows[j]["key"]) / math.sqrt(WIDTH) for j in row["sees"]]
        row["weights"] = softmax(row["scores"])
        row["attended"] = [0.0] * WIDTH
        for weight, j in zip(row["weights"], row["sees"]):
            row["attended"] = add(row["attended"], times(weight, rows[j]["value"]))
        row["middle"] = add(row["embedded"], times(number["projection"], row["attended"]))
        hidden = [max(value, 0.0) ** 2 for value in times(number["up"], norm(row["middle"]))]
        row["end"] = add(row["middle"], times(number["down"], hidden))
        row["logits"] = times(number["output"], norm(row["end"]))[:len(LETTERS)]
        # the other 251 bytes have rows of zeros in the output matrix: their logits are 0
        total = sum(math.exp(x) for x in row["logits"]) + VOCAB - len(LETTERS)
        row["predicts"] = text[i]
        of_next = row["logits"][LETTERS.index(text[i])] if text[i] in LETTERS else 0.0
        row["loss"] = math.log(total) - of_next
    return rows


def mean_loss():
    rows = forward(TEXT)
    return sum(row["loss"] for row in rows) / len(rows)


def gradient(name):
    """Central difference: the slope of the loss along one of NUMBERS."""
    middle, step = NUMBERS[name], 1e-6
    losses = []
    for NUMBERS[name] in (middle - step, middle + step):
        losses.append(mean_loss())
    NUMBERS[name] = middle
    return (losses[1] - losses[0]) / (2 * step)


def matrix(rows, number):
    """number at (i, i), as many rows as asked for."""
    return [[number if i == j else 0.0 for j in range(WIDTH)] for i in range(rows)]


def weights():
    """Name -> (shape, values), as the model's checkpoints have them."""
    def letters(number):
        table = [[0.0] * WIDTH for _ in range(VOCAB)]
        for feature, letter in enumerate(LETTERS):
            table[ord(letter)][feature] = number
        return table

    number, zeros, ones = NUMBERS, [[0.0] * WIDTH], [[1.0] * WIDTH]
    block = "blocks.0."
    of = {
        "token_embedding": letters(number["embedding"]),
        "start": zeros,
        "position.0": zeros * WIDTH,
        block + "attention.qkv.weight": sum((matrix(WIDTH, number[n])
                                             for n in ("query", "key", "value")), []),
        block + "attention.qkv.bias": zeros * 3,
        block + "attention.proj.weight": matrix(WIDTH, number["projection"]),
        block + "attention.proj.bias": zeros,
        block + "mlp.up.weight": matrix(WIDTH, number["up"]),
        block + "mlp.up.bias": zeros,
        block + "mlp.down.weight": matrix(WIDTH, number["down"]),
        block + "mlp.down.bias": zeros,
        "output.weight": letters(number["output"]),
    }
    for name in (block + "attention_norm", block + "mlp_norm", "final_norm"):
        of.update({name + ".weight": ones, name + ".bias": zeros})
    vectors = ("bias", "norm.weight", "start")
    return {name: ([len(rows) * WIDTH] if name.endswith(vectors) else [len(rows), WIDTH],
                   sum(rows, [])) for name, rows in of.items()}


def save(path):
    config = (pathlib.Path(__file__).parent / "eight.yaml").read_text()
    header, data = {"__metadata__": {"weft.config": config, "weft.step": "0",
                                     "weft.weights": "last"}}, b""
    for name, (shape, values) in weights().items():
        packed = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)
    print(f"{path}: {len(data) // 4:,} numbers, {len(weights())} arrays")


def show_rows():
    print("row  holds  sees  weights        loss    predicts")
    for i, row in enumerate(forward(TEXT)):
        sees = " ".join(map(str, row["sees"]))
        shares = " ".join(f"{weight:.4f}" for weight in row["weights"])
        print(f"{i:3}  {row['holds'] or 'start':5}  {sees:4}  {shares:13}  {row['loss']:.4f}"
              f"  {row['predicts']}")
    loss = mean_loss()
    print(f"mean loss {loss:.4f} nats = {loss / math.log(2):.4f} bits a byte")


def show_row(i):
    row = forward(TEXT)[i]
    print(f"row {i}: holds {row['holds'] or 'start'}, predicts {row['predicts']}, "
          f"sees rows {', '.join(map(str, row['sees']))}")
    print(" " * 9 + "".join(f"{letter:>9}" for letter in [*LETTERS, "-", "-", "-"]))
    for name in ("embedded", "normed", "query", "attended", "middle", "end", "logits"):
        print(f"{name:9}" + "".join(f"{value + 0.0:9.4f}" for value in row[name]))
    print("scores   " + "".join(f"{score:9.4f}" for score in row["scores"]))
    print("weights  " + "".join(f"{weight:9.4f}" for weight in row["weights"]))
    print(f"loss     {row['loss']:9.4f}")


def show_attention():
    print("query" + "".join(f"{f'key {j}':>8}" for j in range(len(TEXT))))
    for i, row in enumerate(forward(TEXT)):
        of = dict(zip(row["sees"], row["weights"]))
        print(f"{i:5}" + "".join(f"{of[j]:8.4f}" if j in of else f"{'.':>8}"
                                 for j in range(len(TEXT))))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", type=int, choices=range(len(TEXT)))
    parser.add_argument("--attention", action="store_true")
    parser.add_argument("--gradient", choices=NUMBERS)
    parser.add_argument("--save", metavar="FILE")
    options = parser.parse_args()
    if options.row is not None:
        show_row(options.row)
    elif options.attention:
        show_attention()
    elif options.gradient:
        print(f"d loss / d {options.gradient} = {gradient(options.gradient):.4f}")
    elif options.save:
        save(options.save)
    else:
        show_rows()


if __name__ == "__main__":
    main()
