#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Walks models/TOUR.md: runs its commands, and checks what it says of the tree.
1. Every block ```console tour holds commands (`$ ...`) and their output. They run one after the other
   in a temporary copy of the clone's root, with BIN on PATH. stdout and stderr must be the block's
   text. `...` in a line stands for any characters, a line of `...` for any lines.
2. A block ```cpp PATH (or python, yaml) quotes PATH line for line; a line of `...` is a gap.
3. A link [path#symbol](path) names a file of the clone that has the word `symbol`.
4. Every chapter has a picture with the command that made it, two commands or more, an equation, an
   arXiv number, code, and three questions with folded answers.
Usage: run_tour.py models/TOUR.md BIN [--update] [--no-run]   --update writes the outputs anew"""
import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS, LINES, CHAPTERS, QUESTIONS = 100, 1200, 8, 3
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.S | re.M)
QUOTE = re.compile(r"(?:cpp|python|yaml) (\S+)")
LINK = re.compile(r"\[([^\]\n]*)\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+\.png)\)")
DETAILS = re.compile(r"<details>\s*<summary>(.+?)</summary>\n\n(.+?)\n\n</details>", re.S)


def chapters(text):
    """(title, offset, text) of each chapter: from `## 1. ...` to the next heading of that level."""
    for match in re.finditer(r"^## (\d+\. [^\n]+)\n.*?(?=^## |\Z)", text, re.S | re.M):
        yield match.group(1), match.start(), match.group()


def commands(block):
    """(command, output) of each `$ ...`; a line that ends in a backslash goes on in the next."""
    found = []
    lines = block.splitlines()
    while lines:
        line = lines.pop(0)
        if line.startswith("$ "):
            while line.endswith("\\"):
                line += "\n" + lines.pop(0)
            found.append([line[2:], []])
        elif found:
            found[-1][1].append(line)
        else:
            raise ValueError(f"a block begins with '{line}', which is no command")
    return [(command, "\n".join(output)) for command, output in found]


def matches(expected, actual):
    """Whether the block's text stands for this output."""
    pattern = ""
    for line in expected.splitlines():
        if line == "...":
            pattern += r"(?:[^\n]*\n)*"
        else:
            pattern += r"[^\n]*".join(map(re.escape, line.split("..."))) + "\n"
    return re.fullmatch(pattern, actual + "\n" if actual else "") is not None


def run(command, folder, bin_dir):
    env = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    env["PATH"] = f"{bin_dir}:{env['PATH']}"
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, env=env, text=True, timeout=120,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, check=False)
    lines = (line.rstrip() for line in result.stdout.rstrip("\n").splitlines())
    return "\n".join(lines), result.returncode


def linked_root(folder):
    """What a clone's root holds, without what is built or written there, and the folder runs/tour."""
    for path in ROOT.iterdir():
        if path.name not in ("build", "runs", ".git"):
            (folder / path.name).symlink_to(path)
    (folder / "runs/tour").mkdir(parents=True)


class Walk:
    """Runs the commands of the text, and keeps what differs."""

    def __init__(self, bin_dir, update):
        self.bin_dir, self.update, self.errors, self.count = bin_dir, update, [], 0

    def block(self, match, folder):
        """The block, with outputs of this run where --update asks for them."""
        if match.group(1) != "console tour":
            return match.group()
        text = ""
        for command, expected in commands(match.group(2)):
            actual, code = run(command, folder, self.bin_dir)
            self.count += 1
            same = matches(expected, actual)
            if code:
                self.errors.append(f"'{command}' left with {code}:\n{actual}")
            elif not same and not self.update:
                diff = difflib.unified_diff(expected.splitlines(), actual.splitlines(),
                                            "the tour", "this machine", lineterm="", n=1)
                self.errors.append("\n".join([f"'{command}' prints something else:", *diff]))
            output = expected if same or code else actual
            text += f"$ {command}\n" + (f"{output}\n" if output else "")
        return f"```console tour\n{text}```"

    def whole(self, text):
        with tempfile.TemporaryDirectory() as folder:
            linked_root(pathlib.Path(folder))
            rest = list(chapters(text))
            for title, _, chapter in rest:
                start = time.monotonic()
                new = FENCE.sub(lambda match: self.block(match, folder), chapter)
                text = text.replace(chapter, new)
                print(f"{time.monotonic() - start:6.1f} s  {title}", flush=True)
        return text


def quotes(block, source):
    """Whether the block's pieces stand in the source in this order, each line for line."""
    lines, at = [line.rstrip() for line in source.splitlines()], 0
    for piece in re.split(r"^ *\.\.\.\n", block, flags=re.M):
        wanted = [line.rstrip() for line in piece.splitlines()]
        if not wanted:
            continue
        places = (k for k in range(at, len(lines)) if lines[k:k + len(wanted)] == wanted)
        at = next(places, -1)
        if at < 0:
            return False
        at += len(wanted)
    return True


def check_quotes(text, where):
    for info, block in FENCE.findall(text):
        if match := QUOTE.fullmatch(info):
            path = ROOT / match.group(1)
            if not path.is_file():
                yield f"{where}: {match.group(1)} is quoted and does not exist"
            elif not quotes(block, path.read_text()):
                yield (f"{where}: {match.group(1)} has changed: the lines that begin with "
                       f"'{block.strip().splitlines()[0].strip()}' are not in it any more")


def check_links(text, where, folder):
    for name, target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"https?://|#", target):
            continue
        path = folder / target.split("#")[0]
        if not path.exists():
            yield f"{where}: the link to {target} leads nowhere"
        elif "#" in name:
            symbol = name.split("#")[1].split("::")[-1]
            if not re.search(rf"\b{re.escape(symbol)}\b", path.read_text()):
                yield f"{where}: {target} has no '{symbol}' any more"


def check_chapter(title, text, folder):
    runs = sum(len(commands(block)) for info, block in FENCE.findall(text)
               if info == "console tour")
    answers = [answer for _, answer in DETAILS.findall(text) if len(answer.split()) >= 8]
    code = [info for info, _ in FENCE.findall(text) if QUOTE.fullmatch(info)]
    for missing, what in (
            (not PICTURE.search(text), "a picture: ![what it shows](tour/name.png)"),
            ("Made by `" not in text, "the command that made the picture: Made by `...`"),
            (runs < 2, "two commands in blocks ```console tour"),
            ("```math" not in text, "an equation: a block ```math"),
            ("arxiv.org/abs/" not in text, "a paper: a link to arxiv.org/abs/"),
            (not code and "#" not in "".join(name for name, _ in LINK.findall(text)),
             "code: a block ```cpp PATH, or a link [path#symbol](path)"),
            (len(answers) < QUESTIONS, f"{QUESTIONS} questions with answers in <details>"),
            (text.count("<details>") != len(DETAILS.findall(text)), "whole <details>")):
        if missing:
            yield f"{title}: it needs {what}"
    for picture in PICTURE.findall(text):
        path = folder / picture
        if not (path.is_file() and path.read_bytes().startswith(b"\x89PNG")):
            yield f"{title}: {picture} is no PNG file"


def check_tree(text, folder):
    found = list(chapters(text))
    if [title.split(".")[0] for title, _, _ in found] != [str(k + 1) for k in range(CHAPTERS)]:
        yield f"the tour has {len(found)} chapters, not 1 to {CHAPTERS} in order"
    for title, _, chapter in found:
        yield from check_chapter(title, chapter, folder)
        yield from check_quotes(chapter, title)
    yield from check_links(text, "the tour", folder)
    lines = text.splitlines()
    if len(lines) > LINES:
        yield f"the tour has {len(lines)} lines, {LINES} are allowed"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"line {number} has {len(line)} columns, {COLUMNS} are allowed"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tour", type=pathlib.Path)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--no-run", action="store_true")
    options = parser.parse_args()
    text = options.tour.read_text()
    errors = list(check_tree(text, options.tour.parent))
    start = time.monotonic()
    walk = Walk(options.bin.resolve(), options.update)
    if not options.no_run:
        new = walk.whole(text)
        if options.update and new != text:
            options.tour.write_text(new)
    errors += walk.errors
    for error in errors:
        print(f"{options.tour}: {error}", file=sys.stderr)
    if errors:
        sys.exit(1)
    print(f"tour: {CHAPTERS} chapters, {walk.count} commands in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
