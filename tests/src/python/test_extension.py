# SPDX-License-Identifier: MIT
"""weft::eager in C++ beside the same in Python: equal bits, and equal errors."""
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

torch = pytest.importorskip("torch")

import weft_attention as wa  # noqa: E402
from tensors import DEVICES, PATTERN, gradients, qkv, random  # noqa: E402
from weft_attention import extension, op  # noqa: E402


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler")
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    extension.build()
    yield extension.operator()
    patch.undo()
    extension.operator.cache_clear()


def both_ways(built, monkeypatch, function):
    results = []
    for operator in (built, None):
        monkeypatch.setattr(extension, "operator", lambda: operator)
        results.append(function())
    return zip(*results)


def spread(x):
    """The same numbers, with strides that are read in place, or copied."""
    off = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)[1:].view(x.shape)
    return {"packed": x, "apart": torch.stack([x, x], 3)[:, :, :, 0], "by size": x.transpose(1, 3).contiguous().transpose(1, 3),
            "off 16 bytes": off.copy_(x)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["bthd", "bhtd"])
@pytest.mark.parametrize("strides", ["packed", "apart", "by size", "off 16 bytes"])
def test_equal_bits(built, monkeypatch, device, layout, strides):
    swapped = (lambda x: x.transpose(1, 2)) if layout == "bhtd" else lambda x: x
    inputs = [swapped(spread(x)[strides]) for x in qkv(device)]
    segments = torch.arange(40, device=device).expand(2, -1) // 13
    d_o = swapped(spread(random(2, 40, 4, 16, device=device, seed=9))[strides])
    attend = lambda q, k, v: wa.attention(q, k, v, PATTERN, layout=layout, scale=0.3, segments=segments)
    for got, want in both_ways(built, monkeypatch, lambda: gradients(attend, inputs, d_o)):
        assert torch.equal(got, want) and got.stride() == want.stride()
    with torch.no_grad():
        for got, want in both_ways(built, monkeypatch, lambda: [attend(*inputs)]):
            assert torch.equal(got, want) and not got.requires_grad


def test_what_is_saved_may_move(built, monkeypatch):
    monkeypatch.setattr(extension, "operator", lambda: built)
    inputs, d_o = [x.transpose(1, 2) for x in qkv()], random(2, 4, 40, 16, seed=9)
    attend = lambda q, k, v: wa.attention(q, k, v, PATTERN, layout="bhtd")
    want = gradients(attend, inputs, d_o)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(memory_format=torch.contiguous_format), lambda x: x):
        assert all(torch.equal(one, two) for one, two in zip(gradients(attend, inputs, d_o), want))


def test_gradients_of_some(built, monkeypatch):
    monkeypatch.setattr(extension, "operator", lambda: built)
    q, k, v = qkv(grad=True)
    every = torch.autograd.grad(wa.attention(q, k, v, PATTERN).sum(), (q, k, v))
    one, = torch.autograd.grad(wa.attention(q.detach(), k, v.detach(), PATTERN).sum(), k)
    assert torch.equal(one, every[1])
    once, = torch.autograd.grad(wa.attention(q, k.detach(), v.detach(), PATTERN).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="weft_attention has no second derivatives"):
        once.sum().backward()


def test_errors_keep_their_text(built, monkeypatch):
    for scale, text in ((-1.0, "scale must be positive and finite"), (float("nan"), "scale must be")):
        monkeypatch.setattr(extension, "operator", lambda: built)
        with pytest.raises(ValueError, match=text):
            wa.attention(*qkv(grad=True), PATTERN, scale=scale)


def test_a_file_that_does_not_load():
    """Python does what the extension would."""
    code = """if 1:
        import torch, weft_attention as wa
        from weft_attention import extension
        import os
        os.makedirs(os.path.dirname(extension.path()))
        open(extension.path(), "w").write("no library")
        x = torch.zeros(1, 8, 1, 8)
        assert (wa.attention(x, x, x, wa.all()) == 0).all() and extension.operator() is None"""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": cache})
    assert done.returncode == 0 and "its extension cannot be loaded" in done.stderr, done.stderr


def test_a_compiler_that_fails(built, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(RuntimeError, match="compiling .*eager.cpp failed; weft_attention works without it"):
        extension.build()
    assert op.extension.operator() is not None
