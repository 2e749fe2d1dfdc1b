# SPDX-License-Identifier: MIT
"""attention() inside what PyTorch does with operators: compile, graphs, autocast, checkpoints, several processes."""
import pytest

torch = pytest.importorskip("torch")

import weft_attention as wa  # noqa: E402
from tensors import CUDA, DEVICES, PATTERN, gradients, qkv, random  # noqa: E402

OLD = torch.__version__.startswith("2.6.")  # its compiler knows no | of objects, and says less of an exception
BACKENDS = ["aot_eager", pytest.param("inductor", marks=CUDA)]  # inductor's C++ takes minutes to compile on a CPU


def same(results, wanted, **limits):
    for got, want in zip(results, wanted):
        torch.testing.assert_close(got, want, **limits)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("segments", [False, True])
def test_opcheck(device, segments):
    pair = [torch.zeros(2, 40, dtype=torch.int32, device=device)] * 2 if segments else [None, None]
    q, k, v = qkv(device, grad=True)
    torch.library.opcheck(torch.ops.weft.attention, (q, k, v, PATTERN.text, 0.0, *pair))
    assert not torch.ops.weft.attention(q, k, v, PATTERN.text, 0.0, *pair)[1].requires_grad  # lse
    o, lse = torch.ops.weft.attention(*qkv(device), PATTERN.text, 0.0, *pair)
    torch.library.opcheck(torch.ops.weft.attention_backward, (o, *qkv(device), o, lse, PATTERN.text, 0.0, *pair))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", ["bthd", "bhtd"])
def test_compile(backend, device, layout):
    """One graph, patterns made inside it or outside, lengths that change."""
    def step(q, k, v):
        two = (wa.fixed(16, c=4), wa.local(8))
        inside = wa.by_head(wa.merged(*two) if OLD else two[0] | two[1], wa.longformer(8, dilation=[1, 2], globals=[0, 3]))
        return wa.attention(q * 2, k, v, inside, layout=layout) + wa.attention(q, k, v, PATTERN, layout=layout)
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for n in (40, 24, 32):
        inputs = [x[:, :n] if layout == "bthd" else x[:, :n].transpose(1, 2) for x in qkv(device)]
        d_o = random(*inputs[2].shape, device=device, seed=9)
        same(gradients(compiled, inputs, d_o), gradients(step, inputs, d_o), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_errors_and_segments(device):
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v, s: wa.attention(q, k, v, PATTERN, segments=s), fullgraph=True, backend="aot_eager")
    segments = torch.arange(40, device=device).expand(2, -1) // 13
    q, k, v = qkv(device)
    same([compiled(q, k, v, segments)], [wa.attention(q, k, v, PATTERN, segments=segments)])
    with pytest.raises(Exception, match="Observed exception" if OLD else "v must be"):
        compiled(q, k, v[:, :, :2], segments)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast(device):
    q, k, v = qkv(device, grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        o = wa.attention(q, k, v.bfloat16(), PATTERN)
    assert o.dtype == torch.bfloat16
    assert torch.equal(o, wa.attention(*(x.bfloat16() for x in (q, k, v)), PATTERN))
    o.float().sum().backward()
    assert q.grad.dtype == torch.float32 and q.grad.abs().max() > 0
    double = qkv("cpu", torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert wa.attention(*double, PATTERN).dtype == torch.float64


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(device, reentrant):
    from torch.utils.checkpoint import checkpoint
    attend = lambda q, k, v: wa.attention(q, k, v, PATTERN)
    d_o = random(2, 40, 4, 16, device=device, seed=9)
    again = lambda *x: checkpoint(attend, *x, use_reentrant=reentrant)
    if reentrant:
        inputs = qkv(device, grad=True)
        again(*inputs).backward(d_o)
        results = [x.grad for x in inputs]
    else:
        results = gradients(again, qkv(device), d_o)[1:]
    for got, want in zip(results, gradients(attend, qkv(device), d_o)[1:]):
        assert torch.equal(got, want)


def test_ddp(tmp_path):
    """Buckets of gradients find the parameters around the operator."""
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        module = wa.Attention(32, 4, PATTERN)
        x = random(2, 40, 32)
        torch.nn.parallel.DistributedDataParallel(module)(x).square().sum().backward()
        parallel = [p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        module(x).square().sum().backward()
        same(parallel, [p.grad for p in module.parameters()])
    finally:
        dist.destroy_process_group()


@CUDA
def test_cuda_graph():
    static, stream = qkv("cuda", torch.bfloat16, grad=True), torch.cuda.Stream()
    attend = lambda: wa.attention(*static, wa.local(7) | wa.strided(9))
    with pytest.raises(RuntimeError, match="run them once before a CUDA graph is captured"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            attend()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.autograd.grad(attend().sum(), static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = attend()
        captured = torch.autograd.grad(o.sum(), static)
    with torch.no_grad():
        for seed, x in enumerate(static):
            x.copy_(random(2, 40, 4, 16, device="cuda", dtype=torch.bfloat16, seed=10 + seed))
    graph.replay()
    eager = attend()
    for got, want in zip((o, *captured), (eager, *torch.autograd.grad(eager.sum(), static))):
        assert torch.equal(got, want)


@CUDA
def test_compiled_into_cuda_graphs():
    torch._dynamo.reset()
    step = lambda q, k, v: wa.attention(q * 2, k, v, PATTERN)
    compiled = torch.compile(step, fullgraph=True, mode="reduce-overhead")
    for seed in range(4):
        inputs, d_o = qkv("cuda", torch.bfloat16), random(2, 40, 4, 16, device="cuda", dtype=torch.bfloat16, seed=seed)
        same(gradients(compiled, inputs, d_o), gradients(step, inputs, d_o))


@CUDA
def test_current_cuda_stream():
    """Work queued behind a long kernel of another stream sees what that stream wrote."""
    stream, (q, k, v) = torch.cuda.Stream(), qkv("cuda")
    want = wa.attention(q * 3, k, v, PATTERN)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        got = wa.attention(q.mul_(3), k, v, PATTERN)
    stream.synchronize()
    assert torch.equal(got, want)


class Recorded(torch.utils._python_dispatch.TorchDispatchMode):
    """Names of what runs in it."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["bthd", "bhtd"])
def test_with_and_without_the_dispatcher(device, layout):
    """What traces or records sees the operators; both ways give the same bits."""
    swapped = (lambda x: x.transpose(1, 2).contiguous()) if layout == "bhtd" else lambda x: x
    inputs, d_o = [swapped(x) for x in qkv(device)], swapped(random(2, 40, 4, 16, device=device, seed=9))
    attend = lambda q, k, v: wa.attention(q, k, v, PATTERN, layout=layout)
    direct, mode = gradients(attend, inputs, d_o), Recorded()
    with mode:
        recorded = gradients(attend, inputs, d_o)
    assert {"weft.attention.default", "weft.attention_backward.default"} <= set(mode.names)
    assert all(torch.equal(one, two) and one.stride() == two.stride() for one, two in zip(direct, recorded))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(memory_format=torch.contiguous_format), lambda x: x):
        hooked = gradients(attend, inputs, d_o)  # what is saved comes back with other strides
    assert all(torch.equal(one, two) for one, two in zip(direct, hooked))


def test_fake_tensors():
    with torch._subclasses.FakeTensorMode():
        q, k, v = (torch.empty(2, 40, 4, 16, requires_grad=True) for _ in range(3))
        o = wa.attention(q, k, v, PATTERN)
        o.sum().backward()
    assert o.shape == q.grad.shape == (2, 40, 4, 16)
