#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes randaugment.h5: a few images, and what Pillow makes of them with the operations of RandAugment.

/images/IMAGE is uint8 (height, width, 3). /arguments/OPERATION is float64 (cases, 3), columns that an operation does not
take 0; /results/IMAGE/OPERATION is uint8 (cases, height, width, 3): that image with each of the arguments.
Pillow has no SolarizeAdd and no Cutout: they are a table and a filled rectangle here. Needs Pillow 11.0.0, numpy and
h5py; run it from anywhere: python3 tests/golden/make_randaugment.py
"""
import pathlib

import h5py
import numpy
import PIL
from PIL import Image, ImageEnhance, ImageOps

FILL = (128, 128, 128)


def affine(image, matrix):
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST, fillcolor=FILL)


def cutout(image, half, row, column):
    box = (max(0, column - half), max(0, row - half), min(image.width, column + half), min(image.height, row + half))
    result = image.copy()
    if box[0] < box[2] and box[1] < box[3]:
        result.paste(FILL, box)
    return result


def solarize_add(image, addition):
    table = [min(255, value + addition) if value < 128 else value for value in range(256)]
    return image.point(table * 3)


# Name: function of (image, argument ...), arguments.
FACTORS = [0, 0.1, 0.28, 0.46, 0.64, 1, 1.36, 1.9]
DISTANCES = [0, 2.5, -2.5, 5, -10, 12.5, 50]
SHEARS = [0, 0.03, -0.06, 0.09, 0.3, -0.3]
OPERATIONS = {
    "auto_contrast": (lambda image, _: ImageOps.autocontrast(image), [0]),
    "equalize": (lambda image, _: ImageOps.equalize(image), [0]),
    "invert": (lambda image, _: ImageOps.invert(image), [0]),
    "rotate": (
        lambda image, degrees: image.rotate(degrees, Image.Resampling.NEAREST, fillcolor=FILL),
        [0, 3, -6, 9, -17.5, 30, -30, 90, 180],
    ),
    "posterize": (ImageOps.posterize, [0, 1, 2, 3, 4, 8]),
    "solarize": (ImageOps.solarize, [0, 51, 128, 256]),
    "color": (lambda image, factor: ImageEnhance.Color(image).enhance(factor), FACTORS),
    "contrast": (lambda image, factor: ImageEnhance.Contrast(image).enhance(factor), FACTORS),
    "brightness": (lambda image, factor: ImageEnhance.Brightness(image).enhance(factor), FACTORS),
    "sharpness": (lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor), FACTORS),
    "shear_x": (lambda image, level: affine(image, (1, level, 0, 0, 1, 0)), SHEARS),
    "shear_y": (lambda image, level: affine(image, (1, 0, 0, level, 1, 0)), SHEARS),
    "translate_x": (lambda image, pixels: affine(image, (1, 0, pixels, 0, 1, 0)), DISTANCES),
    "translate_y": (lambda image, pixels: affine(image, (1, 0, 0, 0, 1, pixels)), DISTANCES),
    # Half an edge, and the row and column of the middle.
    "cutout": (cutout, [(0, 0, 0), (2, 0, 0), (1, 3, 2), (4, 4, 4), (20, 6, 4)]),
    "solarize_add": (solarize_add, [0, 22, 110]),
}


def smooth_image(height, width):
    """Shapes and shades of few colours, as photographs have them."""
    row, column = numpy.mgrid[0:height, 0:width]
    disc = (row - height * 0.4) ** 2 + (column - width * 0.6) ** 2 < (height * 0.3) ** 2
    channels = [40 + 5 * row + column, 200 - 3 * row - 2 * column, numpy.where(disc, 250, 70 + 2 * column)]
    return numpy.clip(numpy.stack(channels, axis=-1), 0, 255).astype(numpy.uint8)


def make_images():
    random = numpy.random.RandomState(1)
    images = {
        "smooth": smooth_image(32, 32),
        "noise": random.randint(0, 256, (7, 5, 3)),
        "dark": random.randint(20, 60, (9, 16, 3)),
        "extremes": random.choice([0, 1, 127, 128, 254, 255], (6, 6, 3)),
        "flat": numpy.full((4, 5, 3), 77),
        "narrow": random.randint(0, 256, (2, 3, 3)),
        "pixel": random.randint(0, 256, (1, 1, 3)),
    }
    return {name: pixels.astype(numpy.uint8) for name, pixels in images.items()}


def main():
    if PIL.__version__ != "11.0.0":
        raise SystemExit(f"error: Pillow 11.0.0 is wanted, this is {PIL.__version__}")
    path = pathlib.Path(__file__).parent / "randaugment.h5"
    with h5py.File(path, "w") as file:
        file.attrs["made by"] = numpy.bytes_(f"Pillow {PIL.__version__}")
        cases = {name: [case if isinstance(case, tuple) else (case,) for case in arguments]
                 for name, (_, arguments) in OPERATIONS.items()}
        for operation, arguments in cases.items():
            padded = [case + (0,) * (3 - len(case)) for case in arguments]
            file.create_dataset(f"arguments/{operation}", data=numpy.array(padded, numpy.float64))
        for name, pixels in make_images().items():
            file.create_dataset(f"images/{name}", data=pixels)
            image = Image.fromarray(pixels, "RGB")
            for operation, (apply, _) in OPERATIONS.items():
                results = numpy.stack([numpy.asarray(apply(image, *case)) for case in cases[operation]])
                packing = {"compression": "gzip", "chunks": results.shape} if results.size > 3000 else {}
                file.create_dataset(f"results/{name}/{operation}", data=results, **packing)


if __name__ == "__main__":
    main()
