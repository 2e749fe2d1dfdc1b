# SPDX-License-Identifier: MIT
"""compare_logits.py FOLDER: model.safetensors and tokens (i32) against logits (f32), as
tests/src/python/twin_test.cpp writes them. Relative to the largest logit; leaves with 77 where
PyTorch or PyYAML is missing."""
import sys

try:
    import torch
    import yaml  # noqa: F401
except ImportError as missing:
    print(missing)
    sys.exit(77)

from weft_attention import sparse_transformer as twin

folder, failed = sys.argv[1], False
read = lambda name, dtype: torch.frombuffer(bytearray(open(f"{folder}/{name}", "rb").read()), dtype=dtype)
for attend in (twin.by_operator, twin.by_mask):
    model = twin.load(f"{folder}/model.safetensors", attend=attend)
    tokens = read("tokens", torch.int32).view(2, -1).long()
    with torch.no_grad():
        got = model(tokens)
    want = read("logits", torch.float32).view(got.shape)
    error = ((got - want).abs().max() / want.abs().max()).item()
    failed |= not error < 1e-5
    print(f"{attend.__name__}: {error:.1e} of {want.abs().max():.2f}")
sys.exit(failed)
