#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Small valid files from which fuzzers start. Usage: make_seeds.py FOLDER (makes FOLDER/<target>/...)"""
import io
import json
import os
import struct
import sys
import tarfile
import wave
import zipfile
import zlib


def write(target, name, data):
    folder = os.path.join(sys.argv[1], target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


# ---- archives ----
def npy(shape, data):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def archives():
    members = [("data.npy", npy((2, 3), b"abcdef")), ("labels.npy", npy((2,), b"\0\1")), ("a/readme.txt", b"text" * 30)]
    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as z:
            for member, data in members:
                z.writestr(member, data)
        write("archive", name, out.getvalue())
    for mode in ("w", "w:gz"):
        for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode=mode, format=kind) as t:
                for member, data in members[:2]:
                    info = tarfile.TarInfo(member)
                    info.size = len(data)
                    t.addfile(info, io.BytesIO(data))
                link = tarfile.TarInfo("link")
                link.type, link.linkname = tarfile.SYMTYPE, "data.npy"
                t.addfile(link)
            data = out.getvalue()
            if mode == "w":  # the end is padded to 10 KiB; two blocks of zeros suffice
                data = data.rstrip(b"\0") + bytes(512 - len(data.rstrip(b"\0")) % 512 + 1024)
            write("archive", f"tar{kind}{mode[1:].replace(':', '_')}", data)


# ---- sound ----
def sounds():
    for width in (1, 2, 3, 4):
        for channels, rate in ((1, 12000), (2, 44100)):
            out = io.BytesIO()
            with wave.open(out, "wb") as w:
                w.setnchannels(channels)
                w.setsampwidth(width)
                w.setframerate(rate)
                w.writeframes(bytes(k * 37 % 256 for k in range(40 * width * channels)))
            write("audio", f"{8 * width}_bits_{channels}", out.getvalue())
    floats = struct.pack("<20f", *(k / 20 - 0.5 for k in range(20)))
    write("audio", "float", b"RIFF" + struct.pack("<I", 36 + len(floats)) + b"WAVEfmt " +
          struct.pack("<IHHIIHH", 16, 3, 1, 16000, 64000, 4, 32) + b"data" + struct.pack("<I", len(floats)) + floats)
    write("audio", "au", b".snd" + struct.pack(">5I", 24, 40, 3, 8000, 1) + bytes(range(40)))


# ---- images ----
def images():
    """The first byte chooses the reader; its bit 4 images of 2 x 2 instead of 32 x 32 (fuzz_images.cpp)."""
    write("images", "record", b"\0" + b"\7" + bytes(k * 37 % 256 for k in range(3072)))
    for name, shape in (("pixels", (2, 2, 2, 3)), ("planes", (2, 3, 2, 2)), ("flat", (2, 12))):
        write("images", name, b"\5" + npy(shape, bytes(range(24))))


def png(width, height, bits, kind, rows, interlaced=0, more=()):
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlaced)), *more,
              (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks)


def pngs():
    for bits, kind, channels in ((8, 0, 1), (16, 0, 1), (1, 0, 1), (8, 2, 3), (16, 2, 3), (8, 4, 2), (8, 6, 4), (16, 6, 4)):
        row = (3 * channels * bits + 7) // 8
        for filtered in range(5):
            rows = b"".join(bytes([filtered]) + bytes(k * 29 % 256 for k in range(row)) for _ in range(3))
            write("png", f"{bits}_{kind}_{filtered}", png(3, 3, bits, kind, rows))
    palette = [(b"PLTE", bytes(range(12))), (b"tRNS", b"\0\x80\xff")]
    write("png", "palette", png(4, 1, 2, 3, b"\0\x1b", more=palette))
    write("png", "gamma", png(1, 1, 8, 2, b"\0abc", more=[(b"gAMA", struct.pack(">I", 100000))]))
    write("png", "interlaced", png(2, 2, 8, 0, b"\0a\0b\0cd", interlaced=1))


# ---- weights ----
def weights():
    about = {"weft.config": "model: {}", "weft.step": "7", "weft.weights": "ema"}
    arrays = {"a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
              "b.bias": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}}
    for name, header in (("whole", {"__metadata__": about, **arrays}), ("bare", arrays)):
        text = json.dumps(header).encode()
        write("safetensors", name, struct.pack("<Q", len(text)) + text + bytes(range(32)))


if __name__ == "__main__":
    archives()
    sounds()
    images()
    pngs()
    weights()
