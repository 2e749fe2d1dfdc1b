# SPDX-License-Identifier: MIT
"""load() of the model in stock PyTorch: the config inside a file, and files that hold no such model."""
import json
import re
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("yaml")

from weft_attention import sparse_transformer as twin  # noqa: E402

CONFIG = r'''name: "a \"b\": \\ [c], {d} # e\x0a"
seed: 18446744073709551615
data:
  path: ../some_data.h5
  mix: ""
  separator: -1
  labels: false
augment:
  random_order_seeds: [42, 314, 2718, 1618]
  conditional: true
model:
  kind: sparse_transformer
  vocab: 20
  context: 16
  layers: 2
  width: 16
  heads: 2
  qk_ratio: 1
  mlp_ratio: 2
  activation: relu2
  dropout: 0
  embedding_dropout: 0.1
  tied_output: false
  final_norm: true
  norm_eps: 1e-05
  previous_token: true
  positions: rotary
  rotary_base: 10000
  qk_norm: rms
  position_axes: [4, 4]
  attention: [{kind: fixed, stride: 8, c: 2, num_verts: 1}, {kind: merged, of: [{kind: local, stride: 3}, {kind: strided, stride: 4}]}]
  init:
    token_std: 0.5
    position_std: 0.1
    weight_gain: 0.125
    weight_rule: variance
train:
  steps: 300
  context_schedule: [[0, 8], [100, 16]]
'''


@pytest.mark.parametrize("text", ["model: [", "a list", "- item"])
def test_what_is_no_table_is_refused(text):
    with pytest.raises(ValueError, match="has a config that is"):
        twin.read_config(text)


def parameters():
    return twin.SparseTransformer(twin.model_of(twin.read_config(CONFIG))).state_dict()


def saved(path, arrays, config=CONFIG, metadata=None, dtype=torch.float32):
    """A file as `convert` writes it; returns its path."""
    header, data = {"__metadata__": {"weft.config": config} if metadata is None else metadata}, b""
    for name, array in arrays.items():
        values = array.to(dtype).contiguous().view(torch.uint8).numpy().tobytes()
        kind = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}[dtype]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_load_gives_the_model(tmp_path, dtype):
    arrays = parameters()
    model = twin.load(saved(tmp_path / "a.safetensors", arrays, dtype=dtype))
    assert not model.training and model.m.norm_eps == 1e-5 and model.m.attention[1]["of"][0] == {"kind": "local", "stride": 3}
    assert all(torch.equal(array, arrays[name].to(dtype).float()) for name, array in model.state_dict().items())
    assert model(torch.zeros(2, 16, dtype=torch.long)).shape == (2, 16, 20)


def one_pattern(spec):
    """CONFIG whose attention is a mapping, not a list."""
    return re.sub(r"attention: .*", f"attention: {spec}", CONFIG)


def test_a_mapping_loads_as_a_list_of_one(tmp_path):
    config = one_pattern("{kind: fixed, stride: 8, c: 2}")
    model = twin.load(saved(tmp_path / "a.safetensors", parameters(), config))
    assert model.m.attention == [{"kind": "fixed", "stride": 8, "c": 2}]
    assert model(torch.zeros(2, 16, dtype=torch.long)).shape == (2, 16, 20)


def test_without_pyyaml_load_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)  # import yaml: ImportError
    with pytest.raises(ImportError, match="pip install pyyaml"):
        twin.load(saved(tmp_path / "a.safetensors", {}))


def changed(text, new):
    assert text in CONFIG
    return CONFIG.replace(text, new)


TOLD = "told of each sequence .*data.labels.* The programs sample and evaluate run it"


@pytest.mark.parametrize("content, words", [
    (b"Holmes said nothing, and smoked for a while.", "does not begin with the length of a header"),
    (b"", "does not begin with the length of a header"),
    (bytes(100), "does not begin with the length of a header"),
    (b"\x89HDF\r\n\x1a\n" + bytes(100), "is a checkpoint of train, or another HDF5 file"),
    (b"weft: length and hash of what follows" + bytes(100), "is a checkpoint of train, or another HDF5 file"),
    (100, "is cut: its header has"),
    (-4, "is cut: its arrays have .* bytes, the file has"),
    ((20).to_bytes(8, "little") + b"x" * 20, "has no header of safetensors"),
    ((2).to_bytes(8, "little") + b"{}", "has no weft.config in its metadata: weft did not write it"),
    ((9).to_bytes(8, "little") + b'{"a": [1]}', "has no header of safetensors"),
    (dict(metadata={"format": "pt"}), "has no weft.config in its metadata"),
    (dict(dtype=torch.float16), "of the type F16, not one of F32, BF16"),
    (dict(config="model: {kind: sparse_transformer"), "has a config that is no YAML"),
    (dict(config="name: a"), "without the section `model`"),
    (dict(config=changed("  heads: 2\n", "")), "has a config that this module does not know: .*heads"),
    (dict(config=changed("attention: [", "others: [")), "has a config that this module does not know: .*attention"),
    (dict(config=changed("kind: fixed, ", "")), "has a config that this module does not know: .*kind"),
    (dict(config=changed("kind: strided, ", "")), "has a config that this module does not know: .*kind"),
    (dict(config=one_pattern("{stride: 8}")), "has a config that this module does not know: .*kind"),
    (dict(config=one_pattern("fixed")), "has a config that this module does not know"),
    (dict(config=one_pattern("{kind: routing, clusters: 4}")), "attends by routing, whose keys depend"),
    (dict(config=changed("kind: sparse_transformer", "kind: stair")), "kind stair; this module has sparse_transformer alone"),
    (dict(config=changed("kind: strided, stride: 4", "kind: routing, clusters: 4")), "attends by routing, whose keys depend"),
    (dict(config=changed("separator: -1", "separator: 10")), "data.separator"),
    (dict(config=changed("layers: 2", "layers: 1")), "expected blocks.1.attention.proj.bias of the shape none, got"),
    (dict(start=torch.zeros(5, 16), config=changed("labels: false", "labels: true")), TOLD),
    (dict(start=torch.zeros(15)), r"expected start of the shape \[16\], got \[15\]"),
], ids=lambda x: x[:20] if isinstance(x, str) else "")
def test_files_that_hold_no_model(tmp_path, content, words):
    path = tmp_path / "some.file"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, int):
        path.write_bytes(saved(path, parameters()).read_bytes()[:content])
    else:
        arrays = parameters() | {name: x for name, x in content.items() if name == "start"}
        saved(path, arrays, **{name: x for name, x in content.items() if name != "start"})
    with pytest.raises(ValueError, match=f"some.file .*{words}") as raised:
        twin.load(path)
    assert "Expected a safetensors file of a model, as `convert runs/NAME NAME.safetensors` writes it" in str(raised.value)
