# SPDX-License-Identifier: MIT
"""Devices, inputs and gradients for the tests with PyTorch."""
import pytest
import torch
import weft_attention as wa

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=CUDA)]


PATTERN = wa.strided(8) | wa.local(3)


def random(*shape, device="cpu", dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device, dtype)


def qkv(device="cpu", dtype=torch.float32, grad=False):
    return [random(2, 40, 4, 16, device=device, dtype=dtype, seed=s).requires_grad_(grad) for s in range(3)]


def gradients(function, inputs, d_o):
    inputs = [x.detach().requires_grad_() for x in inputs]
    o = function(*inputs)
    return [x.detach() for x in (o, *torch.autograd.grad(o, inputs, d_o))]
