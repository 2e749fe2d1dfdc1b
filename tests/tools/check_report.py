#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Looks at report.html in a browser: trains a tiny model of text and one of images, opens both reports in headless
Chromium, 1,200 and 390 pixels wide, and fails where a page is empty, a picture is broken or something is wider than the
page. Needs chromium and Pillow. Usage: check_report.py FOLDER_OF_PROGRAMS OUT (keeps runs and screenshots in OUT)"""
import html
import json
import os
import re
import subprocess
import sys

from PIL import Image, ImageChops

WIDTHS = (1200, 390)
HEIGHT = 3000
TRAIN = """precision: f32
model: {layers: 2, width: 32, heads: 2, %s}
train: {steps: 30, batch: 4, learning_rate: 1e-2, warmup: 5, ema_decay: 0.9, log_every: 2, eval_every: 10, save_every: 0}
"""
MODELS = {"text": "context: 256, positions: rotary, attention: [{kind: fixed, stride: 16, c: 4}, {kind: strided, stride: 16}]",
          "images": "context: 192, position_axes: [8, 8, 3], attention: [{kind: strided, stride: 24}, {kind: local, stride: 24}]"}
# Each page in a frame of its width; what is measured there becomes the page's text.
MEASURE = """<!doctype html><meta charset=utf-8><body style='margin:0;background:#888'>%s<pre id=found></pre><script>
onload = () => { found.textContent = JSON.stringify([...document.querySelectorAll('iframe')].map(frame => {
  const page = frame.contentDocument, all = s => [...page.querySelectorAll(s)];
  return {width: page.documentElement.clientWidth, needs: page.documentElement.scrollWidth,
    wide: all('body *').filter(e => e.getBoundingClientRect().right > page.documentElement.clientWidth + 1)
                       .map(e => e.tagName + ' ' + e.textContent.slice(0, 40)).slice(0, 5),
    charts: ['x1', 'x2', 'x0'].map(axis => {
      page.getElementById(axis).click();  // the switch of the x axis
      return all('svg').filter(e => e.querySelector('polyline') && e.getBoundingClientRect().height > 100).length}),
    pictures: all('img').length, broken: all('img').filter(e => !e.naturalWidth || e.width < 100).length,
    samples: all('figcaption').filter(e => /^step /.test(e.textContent)).length, text: page.body.innerText.length}}))}
</script>"""


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def chromium(*arguments):
    return run("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000",
               f"--window-size={sum(WIDTHS)},{HEIGHT}", *arguments)


def make_data(kind, programs, data):
    if kind == "text":
        return run(f"{programs}/prepare", "text", "data/doyle.txt", "--out", data)
    folder = data + ".pictures"
    os.makedirs(folder, exist_ok=True)
    for i in range(48):
        pixels = bytes((x * (i % 5) * 9 + y * 13 + c * 40) % 256 for y in range(8) for x in range(8) for c in range(3))
        Image.frombytes("RGB", (8, 8), pixels).save(f"{folder}/{i}.png")
    return run(f"{programs}/prepare", "images", folder, "--out", data)


def problems_of(kind, found, screenshot):
    left = 0
    for width, page in zip(WIDTHS, found):
        shot = Image.open(screenshot).convert("RGB").crop((left, 0, left + width, HEIGHT))
        left += width
        background = Image.new("RGB", shot.size, shot.getpixel((2, 2)))
        inked = sum(map(bool, ImageChops.difference(shot, background).convert("L").resize((100, 250)).tobytes())) / 25000
        wanted = {"is laid out at its width": page["width"] == width, "fits its width": page["needs"] <= width and not page["wide"],
                  "has five charts on each axis, or four without MFU": page["charts"] in ([5] * 3, [4] * 3),
                  "has whole pictures": page["pictures"] >= 2 and not page["broken"],
                  "has a sample of each evaluation": page["samples"] == 3, "has text": page["text"] > 500,
                  "is not empty": inked > 0.2}
        yield from (f"{kind}, {width} pixels: not so: the page {what}; {page}, {inked:.0%} inked"
                    for what, holds in wanted.items() if not holds)


def main():
    programs, out = map(os.path.abspath, sys.argv[1:3])
    os.makedirs(out, exist_ok=True)
    problems = []
    for kind, model in MODELS.items():
        data, config, folder = f"{out}/{kind}.h5", f"{out}/{kind}.yaml", f"{out}/{kind}"
        make_data(kind, programs, data)
        with open(config, "w") as file:
            file.write(f"name: {kind}\ndata: {{path: {data}}}\n" + TRAIN % model)
        run(f"{programs}/train", "--config", config, "--device", "cpu", "--out", folder)
        with open(f"{folder}/report.html", encoding="utf-8") as file:
            page = html.escape(file.read())
        with open(f"{folder}/measure.html", "w", encoding="utf-8") as file:
            file.write(MEASURE % "".join(f"<iframe srcdoc=\"{page}\" style='border:0;float:left;width:{width}px;"
                                         f"height:{HEIGHT}px'></iframe>" for width in WIDTHS))
        dom = chromium("--dump-dom", f"file://{folder}/measure.html")
        found = json.loads(html.unescape(re.search(r"<pre id=\"found\">(.*?)</pre>", dom, re.S)[1]))
        screenshot = f"{out}/{kind}.png"
        chromium(f"--screenshot={screenshot}", f"file://{folder}/measure.html")
        problems += problems_of(kind, found, screenshot)
        print(f"{screenshot}: {found[0]['charts'][0]} charts, {found[0]['pictures']} pictures, {found[0]['samples']} samples")
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
