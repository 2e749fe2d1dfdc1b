# SPDX-License-Identifier: MIT
"""attention() and its gradient beside a dense masked softmax in f64, for every pattern, on the CPU and on CUDA.
Errors are relative to the largest value; allowed are 2 x the error of the same softmax in the same precision, plus rounding."""
import pytest

torch = pytest.importorskip("torch")

import numpy  # noqa: E402
import weft_attention as wa  # noqa: E402
from cases import BATCH, D_QK, D_V, HEADS, cases  # noqa: E402
from tensors import CUDA, DEVICES, PATTERN, gradients, qkv, random  # noqa: E402

TYPES = [("cpu", torch.float32), ("cpu", torch.float64)] + [
    pytest.param("cuda", dtype, marks=CUDA) for dtype in (torch.float32, torch.float16, torch.bfloat16)]


def dense(q, k, v, mask, scale=None):
    """The definition, in the precision of q: mask (B or 1, H, n_q, n_k). Rows that see nothing give 0."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.einsum("bhij,bjhd->bihd", torch.softmax(scores, -1) * mask, v)


def error(got, exact):
    gap = (got.double() - exact).abs().max() / exact.abs().max().clamp_min(1)
    return gap.item() if torch.isfinite(got).all() else float("inf")


def packed_inputs(case, dtype, device, generator):
    """q, k, v as columns of one projection where lengths agree, as a model has them; the gradient of o."""
    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).to(device)
    rows = max(case.n_q, case.n_k)
    together = normal(BATCH, rows, HEADS, 2 * D_QK + D_V)
    q, k, v = together[:, :case.n_q, :, :D_QK], together[:, :case.n_k, :, D_QK:2 * D_QK], together[:, :case.n_k, :, 2 * D_QK:]
    return (q, k, v), normal(BATCH, case.n_q, HEADS, D_V)


@pytest.mark.parametrize("device, dtype", TYPES)
@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.title)
def test_every_pattern(case, device, dtype):
    generator = torch.Generator().manual_seed(len(case.title) + case.n_q)
    mask = torch.from_numpy(case.pattern.mask(case.n_q, case.n_k, heads=HEADS))[None].to(device)
    inputs, d_o = packed_inputs(case, dtype, device, generator)
    segments = None
    if case.segments:
        segments = [torch.randint(-1, 3, (BATCH, n), generator=generator).sort()[0].to(device) for n in (case.n_q, case.n_k)]
        rows, columns = segments[0][:, None, :, None], segments[1][:, None, None, :]
        mask = mask & (rows == columns) & (rows >= 0)
    exact = gradients(lambda q, k, v: dense(q, k, v, mask), [x.double() for x in inputs], d_o.double())
    plain = gradients(lambda q, k, v: dense(q, k, v, mask), inputs, d_o)
    runs = [gradients(lambda q, k, v: wa.attention(q, k, v, case.pattern, segments=segments), inputs, d_o) for _ in range(2)]
    floor = (64 if dtype == torch.float64 else 8) * torch.finfo(dtype).eps  # f64 is compared with f64 itself
    for name, got, same, want in zip(("o", "dq", "dk", "dv"), runs[0], plain, exact):
        assert error(got, want) <= 2 * error(same, want) + floor, name
    assert all(torch.equal(first, second) for first, second in zip(*runs)), "two runs differ in their bits"
    empty = (~mask.any(-1)).expand(BATCH, -1, -1).transpose(1, 2)
    assert (runs[0][0][empty] == 0).all() and (runs[0][1][empty] == 0).all()


def test_gradcheck():
    inputs = [random(1, 11, 2, 3, dtype=torch.float64, seed=s).requires_grad_() for s in range(3)]
    assert torch.autograd.gradcheck(lambda *x: wa.attention(*x, PATTERN, scale=0.3), inputs)


@pytest.mark.parametrize("device", DEVICES)
def test_layouts_and_strides(device):
    """Strides that the library reads in place, and those of which it gets a copy: the same numbers."""
    q, k, v = qkv(device)
    want = wa.attention(q, k, v, PATTERN)
    heads_first = wa.attention(*(x.transpose(1, 2) for x in (q, k, v)), PATTERN, layout="bhtd")
    assert torch.equal(heads_first.transpose(1, 2), want)
    contiguous = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    assert torch.equal(wa.attention(*contiguous, PATTERN, layout="bhtd").transpose(1, 2), want)
    spread = [torch.empty(2, 16, 41, 4, device=device)[:, :, 1:].permute(0, 2, 3, 1).copy_(x) for x in (q, k, v)]
    assert spread[0].stride(3) != 1 and torch.equal(wa.attention(*spread, PATTERN), want)
    odd = [torch.empty(2, 40, 4, 17, device=device)[..., 1:].copy_(x) for x in (q, k, v)]  # rows off 16 bytes
    assert torch.equal(wa.attention(*odd, PATTERN), want)
    one = q[:1, :1].expand_as(q)  # a stride of 0
    assert torch.equal(wa.attention(one, k, v, PATTERN), wa.attention(one.contiguous(), k, v, PATTERN))
    d_o = random(1, 1, 1, 16, device=device).expand_as(want)  # as sum() gives it
    for got, exact in zip(gradients(lambda *x: wa.attention(*x, PATTERN), spread, d_o),
                          gradients(lambda *x: wa.attention(*x, PATTERN), (q, k, v), d_o.contiguous())):
        assert torch.equal(got, exact)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_off_16_bytes(device):
    """Contiguous tensors whose memory starts where CUDA kernels cannot read it, beside the same ones elsewhere."""
    inputs = qkv(device)
    off = [torch.empty(x.numel() + 1, device=device)[1:].view(x.shape).copy_(x) for x in inputs]
    d_o = random(2, 40, 4, 16, device=device, seed=9)
    shifted = torch.empty(d_o.numel() + 1, device=device)[1:].view(d_o.shape).copy_(d_o)
    attend = lambda q, k, v: wa.attention(q, k, v, PATTERN)
    for got, want in zip(gradients(attend, off, shifted), gradients(attend, inputs, d_o)):
        assert torch.equal(got, want)


def test_plans_are_freed():
    from weft_attention import dlpack, launch
    wa.attention(*qkv(), PATTERN)
    assert dlpack._plans and launch._calls
    wa.clear_plans()
    assert not dlpack._plans and not launch._calls
    wa.attention(*qkv(), PATTERN)


def test_scale():
    mask = torch.from_numpy(PATTERN.mask(40, heads=4))[None]
    q, k, v = qkv(dtype=torch.float64)
    torch.testing.assert_close(wa.attention(q, k, v, PATTERN, scale=0.7), dense(q, k, v, mask, 0.7))


def test_nothing_to_do():
    q, k, v = (x[:0].requires_grad_() for x in qkv())
    o = wa.attention(q, k, v, PATTERN)
    o.sum().backward()
    assert o.shape == (0, 40, 4, 16) and q.grad.shape == q.shape


def test_module():
    torch.manual_seed(0)
    block = wa.Attention(32, 4, PATTERN)
    x, segments = random(2, 40, 32), torch.arange(40).expand(2, -1) // 20
    q, k, v = block.qkv(x).view(2, 40, 3, 4, 8).unbind(2)
    rows = segments[:, None]
    mask = torch.from_numpy(PATTERN.mask(40, heads=4))[None] & (rows[..., :, None] == rows[..., None, :])
    torch.testing.assert_close(block(x, segments), block.proj(dense(q, k, v, mask).flatten(2)))
    assert "strided" in repr(block)


BIG = 2 ** 63
IDS = [(torch.int64, [-BIG, -1, 0, 1, 2 ** 31, 2 ** 32, 3_000_000_000, 3_000_000_001, BIG - 1]),
       (torch.uint64, [0, 2 ** 32, 3_000_000_000, 3_000_000_001, BIG, 2 * BIG - 1]),
       (torch.uint32, [0, 3_000_000_000, 3_000_000_001, 2 ** 32 - 1]),
       (torch.int16, [-5, 0, 32767]), (torch.uint16, [0, 40000, 65535]), (torch.bool, [0, 1])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype, ids", IDS, ids=lambda x: str(x).replace("torch.", "") if isinstance(x, torch.dtype) else "")
def test_segments_of_any_integer(dtype, ids, device):
    """Equal numbers see each other and different ones don't, over all of a type; none below 0 sees or is seen."""
    q, k, v = qkv(device)
    generator = torch.Generator().manual_seed(1)
    at = [torch.randint(0, len(ids), (2, 40), generator=generator) for _ in range(2)]
    number = {n: i if n >= 0 else -1 for i, n in enumerate(ids)}
    wide = [[[ids[i] for i in row] for row in one.tolist()] for one in at]
    segments = [torch.tensor(one, dtype=dtype, device=device) for one in wide]
    small = [torch.tensor([[number[n] for n in row] for row in one], dtype=torch.int32, device=device) for one in wide]
    want = wa.attention(q, k, v, wa.all(causal=False), segments=small)
    assert torch.equal(wa.attention(q, k, v, wa.all(causal=False), segments=segments), want)
    one = wa.attention(q, k, v, wa.all(causal=False), segments=segments[0])
    assert torch.equal(one, wa.attention(q, k, v, wa.all(causal=False), segments=small[0]))
    assert (want != 0).any() and ((want == 0).all(-1).any() or min(ids) >= 0)
    if dtype == torch.uint64:  # beside signed ones: 2^64 - 1 is not -1
        mixed = segments[0], torch.full_like(small[0], -1, dtype=torch.int64)
        assert (wa.attention(q, k, v, wa.all(causal=False), segments=mixed) == 0).all()


@pytest.mark.parametrize("change, text", [
    (dict(scale=-1.0), "scale must be positive and finite"),
    (dict(layout="thbd"), 'layout must be "bthd" or "bhtd"'),
    (dict(pattern="fixed"), "pattern must be a Pattern"),
    (dict(pattern=wa.local(0)), "stride"),
    (dict(pattern=wa.by_layout([[1, 0], [1, 1]], block=16)), "n_q is 40, layout.* is made for 32 queries"),
    (dict(q=torch.zeros(2, 40, 64)), "q must have 4 axes, bthd"),
    (dict(k=torch.zeros(2, 40, 4, 8)), "k must be .*(2, 40, 4, 16)"),
    (dict(v=torch.zeros(2, 40, 2, 16)), "v must be .*(2, 40, 4, 16)"),
    (dict(v=torch.zeros(2, 40, 4, 16, dtype=torch.float64)), "q is torch.float32, v torch.float64: expected"),
    (dict(q=torch.zeros(2, 40, 4, 16, device="meta")), "^q is on meta: expected the CPU or one CUDA device"),
    (dict(v=torch.zeros(2, 40, 4, 16, device="meta")), "q is on cpu, v on meta"),
    (dict(q=torch.zeros(2, 40, 4, 16, dtype=torch.int32)), "^q is torch.int32: expected float32, .* try q.float"),
    (dict(q=torch.zeros(2, 40, 4, 16).to_sparse()), "q must be a dense tensor, got torch.sparse_coo; try .to_dense"),
    (dict(k=torch.zeros(2, 40, 4, 16).to_sparse()), "k must be a dense tensor, got torch.sparse_coo; try .to_dense"),
    (dict(k=[1.0]), "k must be an array with __dlpack__"),
    (dict(k=None), "k must be an array with __dlpack__"),
    (dict(v=numpy.zeros((2, 40, 4, 16), ">f4")), "v cannot be read by __dlpack__: .* native byte order"),
    (dict(scale=0), "scale must be positive and finite, or None .*, got 0"),
    (dict(scale="x"), "scale must be positive and finite, or None .*, got 'x'"),
    (dict(pattern=wa.by_head(*[PATTERN] * 5)), "this one needs 5 heads or more, got 4. Try heads=5, a q of 5 heads"),
    (dict(segments=[[0] * 40] * 2), "segments of queries must be an array with __dlpack__"),
    (dict(segments=[torch.zeros(2, 40, dtype=torch.int)] * 3), "segments must be an array .*, or a pair .*, got a list of 3"),
    (dict(segments=torch.zeros(2, 40, dtype=torch.int).to_sparse()), "segments of queries must be a dense tensor"),
    (dict(segments=torch.zeros(2, 39, dtype=torch.int)), "segments of queries must be integers"),
    (dict(segments=torch.zeros(2, 40)), "segments of queries must be integers"),
    (dict(segments=torch.zeros(2, 40, dtype=torch.complex64)), "segments of queries must be integers"),
])
def test_errors(change, text):
    arguments = dict(zip("qkv", qkv()), pattern=PATTERN) | change
    with pytest.raises(ValueError, match=text.replace("(2", r"\(2").replace("6)", r"6\)")):
        wa.attention(**arguments)


def test_nested_tensors_are_refused():
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([x for x in qkv()[0]], layout=layout)
        with pytest.raises(ValueError, match="q must be a dense tensor, got .*; try .*padding and segments="):
            wa.attention(nested, nested, nested, PATTERN)


def test_segments_that_are_no_tensors():
    q, k, v = qkv()
    segments = torch.arange(40).expand(2, -1) // 13
    want = wa.attention(q, k, v, PATTERN, segments=segments)
    assert torch.equal(wa.attention(q, k, v, PATTERN, segments=segments.numpy()), want)
    assert torch.equal(wa.attention(q, k, v, PATTERN, segments=(segments, segments.numpy())), want)


@pytest.mark.parametrize("arguments, text", [
    ((32, 0, PATTERN), "heads must be 1 or more, got 0"),
    ((32, -2, PATTERN), "heads must be 1 or more, got -2"),
    ((32, 2.0, PATTERN), "heads must be a whole number, got 2.0"),
    ((32, None, PATTERN), "heads must be a whole number, got None"),
    ((32, 3, PATTERN), "width must be a multiple of heads, got 32 and 3"),
    ((0, 2, PATTERN), "width must be 1 or more, got 0"),
    ((-32, 2, PATTERN), "width must be 1 or more, got -32"),
    ((32.0, 2, PATTERN), "width must be a whole number, got 32.0"),
    ((32, 2, "x"), "pattern must be a Pattern such as .*, got 'x'"),
    ((32, 2, wa.local(0)), "stride must be between 1 and"),
    ((32, 1, wa.by_head(PATTERN, PATTERN)), "this one needs 2 heads or more, got 1"),
])
def test_a_module_checks_what_it_is_made_of(arguments, text):
    with pytest.raises(ValueError, match=text):
        wa.Attention(*arguments)


@pytest.mark.parametrize("shape", [(40, 32), (2, 40, 31)])
def test_a_module_checks_its_input(shape):
    with pytest.raises(ValueError, match=r"x must be \(batch, time, width\) = \(B, T, 32\), got"):
        wa.Attention(32, 2, PATTERN)(torch.zeros(shape))


def test_a_module_of_an_earlier_version_runs():
    """Unpickled whole, it has the attributes of its version: heads, pattern, qkv, proj."""
    new = wa.Attention(32, 2, PATTERN)
    old = wa.Attention.__new__(wa.Attention)
    torch.nn.Module.__init__(old)
    old.heads, old.pattern, old.qkv, old.proj = 2, PATTERN, new.qkv, new.proj
    x = random(2, 40, 32)
    assert torch.equal(old(x), new(x))


@CUDA
def test_errors_of_cuda():
    with pytest.raises(ValueError, match="d_qk is 12: on CUDA heads have 8 to 256 numbers in steps of 8"):
        wa.attention(*(torch.zeros(1, 8, 1, 12, device="cuda") for _ in range(3)), wa.all())


def test_what_is_not_differentiable():
    q, k, v = qkv(grad=True)
    attend = lambda q: wa.attention(q, k.detach(), v.detach(), PATTERN)
    once, = torch.autograd.grad(attend(q).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="weft_attention has no second derivatives"):
        once.sum().backward()
    x = q.detach()
    for transformed in (lambda: torch.func.vmap(attend)(x[None]), lambda: torch.func.grad(lambda x: attend(x).sum())(x),
                        lambda: torch.func.jvp(attend, (x,), (x,)), lambda: torch.func.hessian(lambda x: attend(x).sum())(x)):
        with pytest.raises(RuntimeError, match="weft_attention does not run under torch.func"):
            transformed()
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(RuntimeError, match="weft_attention does not run .* in forward mode"):
            attend(torch.autograd.forward_ad.make_dual(x, x))
