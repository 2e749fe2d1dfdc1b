# SPDX-License-Identifier: MIT
"""Patterns and errors, without PyTorch."""
import os
import re
import subprocess

import numpy as np
import pytest
import weft_attention as wa
from cases import HEADS, cases
from weft_attention import library

ROOT = os.path.join(os.path.dirname(__file__), "../../..")


def read(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read()


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.title)
def test_mask_is_the_definition(case):
    mask = case.pattern.mask(case.n_q, case.n_k, heads=HEADS)
    assert mask.dtype == bool and mask.shape == (HEADS, case.n_q, case.n_k)
    case.check_mask(mask)
    cost = case.pattern.cost(case.n_q, case.n_k, heads=HEADS, d=32, d_v=16)
    assert cost.needed == mask.sum() <= cost.executed
    assert cost.flops == 2 * (32 + 16) * cost.needed


def test_patterns_are_values():
    assert wa.fixed(128, c=32) == wa.fixed(128) and hash(wa.local(4)) == hash(wa.local(4)) and wa.local(4) != wa.local(5)
    three = wa.local(4) | wa.strided(5) | wa.all()
    assert three == wa.local(4) | (wa.strided(5) | wa.all()) == wa.merged(wa.local(4), wa.strided(5), wa.all())
    ones = np.ones((2, 2))
    assert wa.by_layout(ones) == wa.by_layout(ones.astype(bool)) != wa.by_layout(np.eye(2))


def test_patterns_of_a_config():
    both = {"kind": "merged", "of": [{"kind": "local", "stride": 4}, {"kind": "strided", "stride": 5}]}
    assert wa.patterns.of_config(both) == wa.local(4) | wa.strided(5)
    assert wa.patterns.of_config({"kind": "fixed", "stride": 128, "c": 32, "num_verts": 1}) == wa.fixed(128)
    assert wa.patterns.of_config({"kind": "heads", "of": [both, {"kind": "all"}]}) == wa.by_head(wa.local(4) | wa.strided(5), wa.all())


@pytest.mark.parametrize("call, text", [
    (lambda: wa.local(0).mask(8), "stride"),
    (lambda: wa.local(4, width=3).mask(8), "a pattern has no field width; there are stride, c,"),
    (lambda: wa.fixed(128).mask(0), "n_q must be 1 to"),
    (lambda: wa.fixed(128).cost(64, d=0), "d_qk must be 1 to"),
    (lambda: wa.by_layout(np.ones((2, 2)), block=5).mask(8), "layout.block must be 8, 16, 32 or 64, got 5"),
    (lambda: wa.by_layout(np.ones(3)), "active must be"),
    (lambda: (wa.by_layout(np.ones((2, 2))) | wa.local(3)).mask(8), "a layout is no part of another pattern"),
    (lambda: library.Plan(library.Pattern(wa.all().text, 1), 8, 8, 8, 8, -2), "device must be WEFT_CPU"),
    (lambda: wa.local(2 ** 64 + 8).mask(8), "stride is 18446744073709551624, which does not fit into 64 bits"),
    (lambda: wa.local(8.9).mask(8), "the fields of a pattern are whole numbers, got 8.9"),
    (lambda: wa.local(4, causal=2 ** 32).mask(8), "causal is 4294967296, which does not fit into 32 bits"),
    (lambda: wa.local(4, documents=[0, 2 ** 64 + 4]).mask(8), "documents is 18446744073709551620, which does not fit"),
    (lambda: wa.bigbird(8, 24, 1, seed=-1).mask(64), "seed is -1, which does not fit into 64 bits"),
    (lambda: wa.local(4).cost(2 ** 64 + 8), "n_q is 18446744073709551624, which does not fit"),
    (lambda: wa.local(4).cost(8, heads=2 ** 32 + 2), "heads is 4294967298, which does not fit into 32 bits"),
    (lambda: wa.by_layout(np.ones((2, 2)), block=2 ** 64 + 16).mask(8), "block is 18446744073709551632, which does not"),
    (lambda: wa.by_layout(np.ones((2, 2)), block=16.5), "whole numbers, got 16.5"),
])
def test_errors_have_the_text_of_the_library(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_plot():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, axis = pyplot.subplots()
    assert wa.strided(4).plot(16, axis=axis) is axis
    assert (np.asarray(axis.images[0].get_array()) == wa.strided(4).mask(16)[0]).all()
    pyplot.close(figure)


def test_structs_are_those_of_the_header():
    """Same fields in the same order; the library compares the sizes at each call."""
    header = re.sub(r"//[^\n]*", "", read("src/capi/weft_attention.h"))
    for struct in (library.Spec, library.Layout, library.PlanInfo, library.View, library.ForwardArgs, library.BackwardArgs):
        name = {"Spec": "pattern_spec", "Layout": "layout", "PlanInfo": "plan_info", "View": "input",
                "ForwardArgs": "forward_args", "BackwardArgs": "backward_args"}[struct.__name__]
        body = re.search(r"typedef struct weft_%s \{(.*?)\} weft_%s;" % (name, name), header, re.S).group(1)
        declared = [re.findall(r"(\w+)$", one.strip())[0] for line in body.split(";") if line.strip() for one in line.split(",")]
        assert declared == [field for field, _ in struct._fields_], name


def test_version_is_that_of_the_library():
    major, minor, patch = map(int, re.search(r'^version = "(\d+)\.(\d+)\.(\d+)"', read("src/python/pyproject.toml"), re.M).groups())
    assert major * 10000 + minor * 100 + patch == library.VERSION == library.library().weft_attention_version()


def test_a_library_of_another_version_is_refused(tmp_path, monkeypatch):
    source = tmp_path / "old.c"
    source.write_text("int weft_attention_version(void) { return 9900; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "old.so", source], check=True)
    monkeypatch.setenv("WEFT_ATTENTION_LIBRARY", str(tmp_path / "old.so"))
    with pytest.raises(ImportError, match="old.so has version 9900, this module needs 10000"):
        library.library.__wrapped__()
