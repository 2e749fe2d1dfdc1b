# SPDX-License-Identifier: MIT
"""Next-token logits of a checkpoint that `train` wrote: libweft_sampler by ctypes (train/sampling/capi/weft_sampler.h). The library is
the one beside this file, or the one that the environment variable WEFT_SAMPLER_LIBRARY names. Needs numpy."""
import ctypes
import functools
import os

import numpy

from .library import CPU, INT32, INT64, POINTER, SIZE, check, fitted, load

VERSION = 10000  # WEFT_SAMPLER_VERSION


class Info(ctypes.Structure):  # weft_sampler_info
    _fields_ = [("size", SIZE), ("vocab", INT64), ("context", INT64), ("step", INT64), ("ema", INT32)]


@functools.lru_cache(maxsize=None)
def _library():
    try:
        c = load("weft_sampler", VERSION)
    except OSError as error:
        raise ImportError(
            f"weft_attention.Sampler needs libweft_sampler, which this package lacks ({error}): build it in a clone of weft "
            "(cmake --build build/cpu --target weft_sampler) and set WEFT_SAMPLER_LIBRARY to build/cpu/lib/libweft_sampler.so, "
            "or pip install ./src/python --config-settings=cmake.define.WEFT_LIBRARY_ONLY=OFF") from None
    c.weft_sampler_last_error.restype = ctypes.c_char_p
    for name in ("close", "text_close"):
        getattr(c, "weft_sampler_" + name).argtypes = [POINTER]
    return c


def _call(name, *arguments):
    check(getattr(_library(), "weft_sampler_" + name)(*arguments), _library().weft_sampler_last_error)


class Sampler:
    """The model of a checkpoint, on "cpu", "cuda" or "cuda:1". vocab, context, step (updates of its training) and ema
    (whether the weights are the moving average) say what it is."""

    def __init__(self, path, device="cpu"):
        self.handle, info = POINTER(), Info(ctypes.sizeof(Info))
        kind, _, number = str(device).partition(":")
        if kind not in ("cpu", "cuda") or (number and not (kind == "cuda" and number.isdigit())):
            raise ValueError(f'device must be "cpu", "cuda" or "cuda:N", got {device!r}')
        where = fitted(INT32, CPU if kind == "cpu" else int(number or 0), "device")
        _call("open", os.fsencode(path), where, ctypes.byref(self.handle))
        _call("get_info", self.handle, ctypes.byref(info))
        self.vocab, self.context, self.step, self.ema = info.vocab, info.context, info.step, bool(info.ema)

    def open(self, batch=None, length=None):
        """An empty Text, or `batch` of them that grow together, with a cache for `length` positions (the context)."""
        return Text(self, batch, length)

    def __del__(self):
        if self.handle:
            _library().weft_sampler_close(self.handle)


class Text:
    """A text and its cache. Its logits depend in their bits on the model, its tokens and the places where logits() was
    called: not on other texts, in a batch or not."""

    def __init__(self, sampler, batch, length):
        self.handle, self.batch, self.vocab = POINTER(), batch, sampler.vocab
        _call("text_open", sampler.handle, fitted(INT64, 1 if batch is None else batch, "batch"),
              fitted(INT64, length or 0, "length"), ctypes.byref(self.handle))

    def feed(self, tokens):
        """Appends tokens: a number, numbers (count), or bytes; of a batch (batch) or (batch, count)."""
        given = numpy.frombuffer(tokens, numpy.uint8) if isinstance(tokens, (bytes, bytearray)) else numpy.asarray(tokens)
        one = self.batch is None
        rows = given.reshape(1, -1) if one else given[:, None] if given.ndim == 1 else given
        shape = "(count)" if one else f"({self.batch}) or ({self.batch}, count)"
        if given.ndim > (1 if one else 2) or rows.ndim != 2 or len(rows) != (self.batch or 1):
            raise ValueError(f"tokens must be {shape}, got {given.shape}")
        if rows.size == 0:
            return
        if rows.dtype.kind not in "iu":
            raise ValueError(f"tokens must be integers, got {rows.dtype}")
        if rows.min() < 0 or rows.max() >= self.vocab:
            raise ValueError(f"tokens must be 0 to {self.vocab - 1}, got {rows.min()} to {rows.max()}")
        rows = numpy.ascontiguousarray(rows, numpy.int32)
        _call("text_feed", self.handle, POINTER(rows.ctypes.data), INT64(rows.shape[1]))

    def logits(self):
        """float32 (vocab), of a batch (batch, vocab): of the next token."""
        logits = numpy.empty((1 if self.batch is None else self.batch, self.vocab), numpy.float32)
        _call("text_logits", self.handle, POINTER(logits.ctypes.data))
        return logits[0] if self.batch is None else logits

    def __del__(self):
        if self.handle:
            _library().weft_sampler_text_close(self.handle)
