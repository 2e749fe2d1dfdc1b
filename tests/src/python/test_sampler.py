# SPDX-License-Identifier: MIT
"""Sampler: the class over libweft_sampler. What computes needs a checkpoint of bytes, WEFT_TEST_CHECKPOINT, from
tests/train/sampling/capi/sampler_test.cpp."""
import os
import subprocess
import sys

import numpy as np
import pytest
import weft_attention as wa

CHECKPOINT = os.environ.get("WEFT_TEST_CHECKPOINT")
needs_checkpoint = pytest.mark.skipif(not CHECKPOINT, reason="no WEFT_TEST_CHECKPOINT")


@needs_checkpoint
def test_a_text_alone_and_in_a_batch():
    sampler = wa.Sampler(CHECKPOINT)
    assert (sampler.vocab, sampler.context, sampler.step, sampler.ema) == (32, 64, 20, True)
    alone = []
    for row in ([3, 1, 4], [1, 5, 9]):
        text = sampler.open(length=10)
        text.feed(row)
        first = text.logits()
        text.feed(row[0])
        text.feed(bytes(row[1:]))
        alone.append((first, text.logits()))
    batch = sampler.open(2)
    del sampler, text
    batch.feed(np.array([[3, 1, 4], [1, 5, 9]], np.uint8))
    first = batch.logits()
    batch.feed(np.array([3, 1]))
    batch.feed([[1, 4], [5, 9]])
    assert first.dtype == np.float32 and first.shape == (2, 32)
    for b in range(2):
        assert np.array_equal(first[b], alone[b][0]) and np.array_equal(batch.logits()[b], alone[b][1])
    assert not np.array_equal(first[0], first[1])


@needs_checkpoint
@pytest.mark.parametrize("batch, tokens, words", [
    (None, [1, 32], "tokens must be 0 to 31, got 1 to 32"),
    (None, 2**32, "tokens must be 0 to 31"),
    (None, np.array([-1]), "tokens must be 0 to 31, got -1"),
    (None, [0.5], "tokens must be integers"),
    (None, [[1]], r"tokens must be \(count\), got \(1, 1\)"),
    (2, [1, 2, 3], r"tokens must be \(2\) or \(2, count\), got \(3,\)"),
    (2, 1, r"tokens must be \(2\) or"),
    (None, [1] * 64, "a text of 64 positions has at most 63 tokens: it has 0, got 64 more")])
def test_what_is_refused(batch, tokens, words):
    with pytest.raises(ValueError, match=words):
        wa.Sampler(CHECKPOINT).open(batch).feed(tokens)


@needs_checkpoint
def test_errors_of_files_and_devices():
    with pytest.raises(ValueError, match="no_such.h5"):
        wa.Sampler("no_such.h5")
    with pytest.raises(ValueError, match='device must be "cpu"'):
        wa.Sampler(CHECKPOINT, "gpu")
    with pytest.raises(ValueError, match="length must be 1 to"):
        wa.Sampler(CHECKPOINT).open(length=65)


@needs_checkpoint
@pytest.mark.parametrize("given, words", [
    ({"batch": 2**64 + 2}, "batch is 18446744073709551618, which does not fit into 64 bits"),
    ({"length": 2**64 + 8}, "length is 18446744073709551624, which does not fit into 64 bits")])
def test_numbers_lose_no_bits(given, words):
    with pytest.raises(ValueError, match=words):
        wa.Sampler(CHECKPOINT).open(**given)


@needs_checkpoint
@pytest.mark.parametrize("number", [2**32, 2**32 - 1])  # of 32 bits: 0, and the CPU
def test_a_device_loses_no_bits(number):
    with pytest.raises(ValueError, match=f"device is {number}, which does not fit into 32 bits"):
        wa.Sampler(CHECKPOINT, f"cuda:{number}")


def test_a_device_is_a_text():
    with pytest.raises(ValueError, match='device must be "cpu", "cuda" or "cuda:N", got 0'):
        wa.Sampler("a.h5", 0)


def test_a_missing_library_is_named():
    code = "import weft_attention as wa; wa.Sampler('a.h5')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "WEFT_SAMPLER_LIBRARY": "/no/libweft_sampler.so"})
    assert done.returncode == 1 and "ImportError: weft_attention.Sampler needs libweft_sampler" in done.stderr
    assert "--target weft_sampler" in done.stderr and "WEFT_LIBRARY_ONLY=OFF" in done.stderr
