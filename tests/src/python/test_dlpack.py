# SPDX-License-Identifier: MIT
"""attention() on arrays with __dlpack__ that are no tensors of PyTorch: numpy, JAX where it is there, and on CUDA."""
import concurrent.futures
import gc
import os
import subprocess
import sys

import numpy as np
import pytest
import weft_attention as wa
from weft_attention import dlpack

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX leaves the GPU's memory to others
PATTERN = wa.strided(8) | wa.local(3)


def random(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def qkv(dtype=np.float32):
    return [random(2, 40, 4, 16, seed=s, dtype=dtype) for s in range(3)]


def dense(q, k, v, mask):
    """The definition, in f64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.where(mask, np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[3]), -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    return np.einsum("bhij,bjhd->bihd", weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300), v)


class Opaque:
    """Nothing but the protocol, of another array; `asked` are the streams that it was asked for."""

    def __init__(self, of):
        self.of, self.asked = of, []

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        return self.of.__dlpack__() if stream is None else self.of.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.of.__dlpack_device__()


def pointer(x):
    return dlpack.Array("x", x).address


@pytest.mark.parametrize("dtype, tolerance", [(np.float16, 2e-3), (np.float32, 1e-5), (np.float64, 1e-12)])
def test_numpy_is_the_definition(dtype, tolerance):
    q, k, v = qkv(dtype)
    o = wa.attention(q, k, v, PATTERN)
    assert type(o) is np.ndarray and o.dtype == dtype
    np.testing.assert_allclose(o, dense(q, k, v, PATTERN.mask(40, heads=4)[None]), rtol=tolerance, atol=tolerance)


def test_views_are_read_in_place():
    q, k, v = qkv()
    want = wa.attention(q, k, v, PATTERN)
    together = np.concatenate([q, k, v], -1)
    together.flags.writeable = False
    parts = together[..., :16], together[..., 16:32], together[..., 32:]
    assert np.array_equal(wa.attention(*parts, PATTERN), want)
    heads_first = wa.attention(*(x.transpose(0, 2, 1, 3) for x in parts), PATTERN, layout="bhtd")
    assert heads_first.shape == (2, 4, 40, 16) and np.array_equal(heads_first.transpose(0, 2, 1, 3), want)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint64])
def test_equal_segments_attend_and_others_do_not(dtype):
    top = np.iinfo(dtype).max
    ids = np.array([top, 0, top - 1, top // 2], dtype)  # of which int32 would have equal or negative ones
    segments = np.repeat(np.stack([ids, ids[::-1]]), 10, axis=1)
    mask = wa.all().mask(40, heads=4)[None] & (segments[:, :, None] == segments[:, None, :])[:, None]
    q, k, v = qkv()
    for given in (segments, (segments, segments)):
        np.testing.assert_allclose(wa.attention(q, k, v, wa.all(), segments=given), dense(q, k, v, mask), atol=1e-5)


def test_negative_segments_see_nothing():
    segments = np.repeat([[-1, -(2**40), 5, -1]] * 2, 10, axis=1)
    o = wa.attention(*qkv(), wa.all(), segments=segments)
    assert (o[:, segments[0] < 0] == 0).all() and (o[:, segments[0] == 5] != 0).any()


def test_results_go_on_without_copies_and_are_freed():
    before = len(dlpack.Result.exported)
    q, k, v = map(Opaque, qkv())
    o = wa.attention(q, k, v, PATTERN)
    assert isinstance(o, dlpack.Result) and q.asked == [None]
    first, second = np.from_dlpack(o), np.from_dlpack(o)
    assert first.ctypes.data == second.ctypes.data == o.address and o.address % dlpack.MEMORY == 0
    assert np.array_equal(np.from_dlpack(wa.attention(o, k, v, PATTERN)), wa.attention(first, k, v, PATTERN))
    o.__dlpack__()  # a capsule that nobody takes
    with pytest.raises(BufferError, match="makes no copies"):
        o.__dlpack__(copy=True)
    want = first.copy()
    del o
    gc.collect()
    assert np.array_equal(first, want) and len(dlpack.Result.exported) == before + 2
    del first, second
    gc.collect()
    assert len(dlpack.Result.exported) == before


def test_byte_offsets():
    class Shifted(Opaque):
        def __dlpack__(self, stream=None):
            capsule = self.of.__dlpack__()
            tensor = list(dlpack.Result.exported.values())[-1][0].tensor
            tensor.data, tensor.byte_offset = tensor.data - 64, 64
            return capsule

    q, k, v = map(Opaque, qkv())
    o = wa.attention(q, k, v, PATTERN)
    assert np.array_equal(*(np.from_dlpack(wa.attention(x, k, v, PATTERN)) for x in (o, Shifted(o))))


def test_jax():
    jax = pytest.importorskip("jax")
    given = qkv()
    cpu = jax.devices("cpu")[0]  # where there is a GPU, that one is the default
    q, k, v = (jax.device_put(x, cpu) for x in given)
    o = wa.attention(q, k, v, PATTERN)
    assert isinstance(o, jax.Array) and np.array_equal(o, wa.attention(*given, PATTERN))
    addresses = [managed.tensor.data for managed, *_ in dlpack.Result.exported.values()]
    assert pointer(q) == q.unsafe_buffer_pointer() and o.unsafe_buffer_pointer() in addresses
    half = wa.attention(*(x.astype("bfloat16") for x in (q, k, v)), PATTERN)
    assert half.dtype == jax.numpy.bfloat16
    np.testing.assert_allclose(np.asarray(half, np.float32), o, atol=0.05)


def test_tensors_of_pytorch_beside_other_arrays():
    torch = pytest.importorskip("torch")
    q, k, v = qkv()
    want = wa.attention(q, k, v, PATTERN)
    first = torch.from_numpy(q).requires_grad_()
    o = wa.attention(first, k, v, PATTERN)
    o.sum().backward()
    assert isinstance(o, torch.Tensor) and np.array_equal(o.detach(), want) and first.grad.abs().sum() > 0
    assert np.array_equal(wa.attention(q, torch.from_numpy(k), v, PATTERN), want)
    assert np.array_equal(np.from_dlpack(o.detach()), want)


def test_nothing_imports_pytorch():
    code = ("import sys, numpy, weft_attention as wa; x = numpy.ones((1, 4, 1, 2), numpy.float32); "
            "wa.attention(x, x, x, wa.all()); sys.exit('torch' in sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("change, text", [
    (dict(q=[1.0]), "q must be an array with __dlpack__"),
    (dict(q=random(2, 40, 64)), "q must have 4 axes, bthd, got"),
    (dict(k=random(2, 40, 4, 8)), r"k must be .*\(2, 40, 4, 16\)"),
    (dict(v=random(2, 40, 2, 16)), r"v must be .*\(2, 40, 4, 16\)"),
    (dict(v=random(2, 40, 4, 16, dtype=np.float64)), "q is float32, v float64: expected one type for all; convert v to float32"),
    (dict(q=random(2, 40, 4, 16, dtype=np.int32)), "^q is int32: expected float32, float16, bfloat16 or float64; try"),
    (dict(q=random(2, 40, 4, 16, dtype=">f4")), r"q cannot be read by __dlpack__: .* Try numpy.ascontiguousarray\(x, numpy.float32"),
    (dict(k=random(2, 40, 4, 16, dtype=">f4")), "k cannot be read by __dlpack__: .* Expected a dense array of native byte order"),
    (dict(v=random(2, 40, 16, 4).transpose(0, 1, 3, 2)), "v must have its last axis contiguous"),
    (dict(k=random(2, 40, 4, 16)[:, ::-1]), "stride"),
    (dict(layout="thbd"), 'layout must be "bthd" or "bhtd"'),
    (dict(pattern="fixed"), "pattern must be a Pattern"),
    (dict(scale=-1.0), "scale must be positive and finite"),
    (dict(scale=0), "scale must be positive and finite, or None .*, got 0"),
    (dict(scale="x"), "scale must be positive and finite, or None .*, got 'x'"),
    (dict(scale=[1]), "scale must be positive and finite"),
    (dict(segments=[np.zeros((2, 40), int)]), "segments must be an array .*, or a pair of them, .* got a list of 1"),
    (dict(segments=3), "segments of queries must be an array with __dlpack__"),
    (dict(segments=np.zeros((2, 39), int)), "segments of queries must be integers"),
    (dict(segments=np.zeros((2, 40))), "segments of queries must be integers"),
])
def test_errors(change, text):
    with pytest.raises(ValueError, match=text):
        wa.attention(**(dict(zip("qkv", qkv()), pattern=PATTERN) | change))


def test_tensors_of_pytorch_that_cannot_be_read():
    torch = pytest.importorskip("torch")
    q, k, v = qkv()
    for wrong in (torch.from_numpy(k).requires_grad_(), torch.from_numpy(k).to_sparse()):
        with pytest.raises(ValueError, match=r"k cannot be read by __dlpack__: .* only a q of PyTorch has gradients"):
            wa.attention(q, wrong, v, PATTERN)


def torch_with_gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch


def test_cuda():
    torch = torch_with_gpu()
    tensors = [torch.from_numpy(x).cuda() for x in qkv()]
    segments = (torch.arange(40, device="cuda", dtype=torch.int32) // 7).expand(2, -1).contiguous()
    want = wa.attention(*tensors, PATTERN, segments=segments)
    with torch.cuda.stream(torch.cuda.Stream()):  # results are complete on any stream
        given = [Opaque(x + 0) for x in tensors]
        o = wa.attention(*given, PATTERN, segments=Opaque(segments))
        assert given[0].asked == [dlpack.LEGACY_STREAM]
        got = torch.from_dlpack(o)
        assert got.data_ptr() == o.address and torch.equal(got, want)
    with pytest.raises(ValueError, match="segments on CUDA must be int32"):
        wa.attention(*given, PATTERN, segments=Opaque(segments.long()))
    with pytest.raises(ValueError, match="k on"):
        wa.attention(given[0], qkv()[1], given[2], PATTERN)


def taken_on_cuda(arrays, take):
    """The result for arrays on CUDA and what `take` makes of a Result, both of which must be its memory."""
    o = wa.attention(*arrays, PATTERN)
    assert pointer(o) in [managed.tensor.data for managed, *_ in dlpack.Result.exported.values()]
    result = wa.attention(*map(Opaque, arrays), PATTERN)
    assert isinstance(result, dlpack.Result) and pointer(take(result)) == result.address
    return o


def test_cuda_arrays_of_jax():
    torch_with_gpu()
    jax = pytest.importorskip("jax")
    try:
        gpu = jax.devices("cuda")[0]
    except RuntimeError as error:
        pytest.skip(str(error))
    arrays = [jax.device_put(x, gpu) for x in qkv()]
    o = taken_on_cuda(arrays, jax.numpy.from_dlpack)
    assert isinstance(o, jax.Array) and pointer(arrays[0]) == arrays[0].unsafe_buffer_pointer()
    np.testing.assert_allclose(o, wa.attention(*qkv(), PATTERN), atol=5e-3)
    np.testing.assert_allclose(jax.jit(lambda x: 2 * x)(o), 2 * np.asarray(o))


def test_cuda_arrays_of_cupy():
    torch_with_gpu()
    cupy = pytest.importorskip("cupy")
    arrays = [cupy.asarray(x) for x in qkv()]
    o = taken_on_cuda(arrays, cupy.from_dlpack)
    assert isinstance(o, cupy.ndarray) and pointer(arrays[0]) == arrays[0].data.ptr
    np.testing.assert_allclose(cupy.asnumpy(o), wa.attention(*qkv(), PATTERN), atol=5e-3)
    with cupy.cuda.Stream(non_blocking=True):  # results are complete on any stream
        assert cupy.array_equal(wa.attention(*(x + 0 for x in arrays), PATTERN) + 0, o)


def test_cuda_in_a_thread_that_has_not_used_it():
    torch = torch_with_gpu()
    tensors = [torch.from_numpy(x).cuda() for x in qkv()]
    want = torch.from_dlpack(wa.attention(*map(Opaque, tensors), PATTERN))
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        got = thread.submit(wa.attention, *map(Opaque, tensors), PATTERN).result()
        assert torch.equal(torch.from_dlpack(got), want)
        del got
