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


def test_a_pattern_and_something_else_have_no_union():
    for one in (lambda: wa.local(4) | 3, lambda: 3 | wa.local(4), lambda: wa.local(4) | None):
        with pytest.raises(TypeError, match="unsupported operand"):
            one()


@pytest.mark.parametrize("pattern, heads", [
    (wa.local(3), 1), (wa.by_head(wa.all(), wa.local(3)), 2), (wa.by_head(*[wa.all()] * 3) | wa.local(3), 3),
    (wa.by_head(wa.by_head(wa.local(3), wa.local(4)), wa.all()), 4),
    (wa.by_head(wa.all(), wa.by_head(wa.local(3), wa.local(4))), 4),
    (wa.fixed(16, 4, num_verts=4), 4), (wa.summary(16, 4, num_verts=3), 3),
    (wa.fixed(32, block=8, vertsize=2, num_verts=2), 2), (wa.longformer(8, dilation=(1, 2)), 2),
    (wa.local(3, num_verts=2), 1),  # which local ignores
    (wa.longformer(8, dilation=(1, 2, 3)) | wa.fixed(16, 4, num_verts=2), 6),
    (wa.by_head(wa.all(), wa.local(3), wa.local(4)) | wa.by_head(wa.strided(5), wa.local(6)), 6),
    (wa.by_head(wa.fixed(16, 4, num_verts=2), wa.fixed(16, 4, num_verts=3), wa.all()), 18),
    (wa.by_head(wa.longformer(8, dilation=(1, 2)), wa.all()) | wa.summary(16, 4, num_verts=3), 12),
    (wa.by_layout(np.ones((2, 2))), 1), (wa.by_layout(np.ones((5, 2, 2), bool)), 5)])
def test_without_a_number_of_heads_all_of_a_pattern_is_shown(pattern, heads):
    n = 128  # of two blocks of a layout
    mask = pattern.mask(n)
    assert mask.shape == (heads, n, n) and (mask == pattern.mask(n, heads=heads)).all()
    assert pattern.cost(n).needed == mask.sum()
    if pattern.text not in wa.patterns._layouts:  # more heads show nothing else
        assert (pattern.mask(n, heads=2 * heads) == np.concatenate([mask, mask])).all()


@pytest.mark.parametrize("pattern, fewest", [
    (wa.by_head(wa.all(), wa.local(3)), 2), (wa.by_head(*[wa.all()] * 3) | wa.local(3), 3),
    (wa.by_head(wa.by_head(wa.local(3), wa.local(4)), wa.all()), 3),
    (wa.by_head(wa.all(), wa.by_head(wa.local(3), wa.local(4))), 4), (wa.longformer(8, dilation=(1, 2)), 1),
    (wa.by_layout(np.ones((5, 2, 2), bool)), 5)])
def test_heads_may_be_as_few_as_the_library_takes(pattern, fewest):
    assert pattern.mask(128, heads=fewest).shape[0] == fewest
    with pytest.raises(ValueError, match="heads"):
        library.Pattern(wa.patterns._layouts.get(pattern.text, pattern.text), fewest - 1)


def test_layouts_of_any_numbers_that_are_0_and_1():
    want = wa.by_layout([[True, False], [True, True]])
    for dtype in (np.uint8, np.int64, np.float32, np.float16):
        assert wa.by_layout(np.array([[1, 0], [1, 1]], dtype)) == want


def test_patterns_of_a_config():
    both = {"kind": "merged", "of": [{"kind": "local", "stride": 4}, {"kind": "strided", "stride": 5}]}
    assert wa.patterns.of_config(both) == wa.local(4) | wa.strided(5)
    assert wa.patterns.of_config({"kind": "fixed", "stride": 128, "c": 32, "num_verts": 1}) == wa.fixed(128)
    assert wa.patterns.of_config({"kind": "heads", "of": [both, {"kind": "all"}]}) == wa.by_head(wa.local(4) | wa.strided(5), wa.all())


@pytest.mark.parametrize("call, text", [
    (lambda: wa.local(0).mask(8), "stride"),
    (lambda: wa.local(4, width=3).mask(8), "a pattern has no field width; there are stride, c,"),
    (lambda: wa.fixed(128).mask(0), "n must be 1 or more, got 0"),
    (lambda: wa.local(4).mask(-1), "n must be 1 or more, got -1"),
    (lambda: wa.local(4).mask(4, -1), "n_k must be 1 or more, got -1"),
    (lambda: wa.local(4).mask(4.5), "n must be a whole number, got 4.5"),
    (lambda: wa.local(4).mask("4"), "n must be a whole number, got '4'"),
    (lambda: wa.local(4).mask(4, heads=0), "heads must be 1 to 65536, got 0"),
    (lambda: wa.local(4).mask(4, heads=-1), "heads must be 1 to 65536, got -1"),
    (lambda: wa.local(4).mask(4, heads=2.0), "heads must be a whole number, got 2.0"),
    (lambda: wa.local(4).plot(4, head=3), "head must be 0 to 0, got 3: try heads=4"),
    (lambda: wa.local(4).cost(-1), "n_q must be 1 to .*, got -1"),
    (lambda: wa.local(4).cost("4"), "n_q must be a whole number, got '4'"),
    (lambda: wa.by_head(wa.all(), wa.all()).mask(8, heads=1), "this one needs 2 heads or more, got 1. Try heads=2"),
    (lambda: wa.by_head(3), "heads: expected patterns such as .*, got 3"),
    (lambda: wa.merged(wa.all(), "x"), "merged: expected patterns such as .*, got 'x'"),
    (lambda: wa.by_head().mask(4), "of must list 1 to"),
    (lambda: wa.fixed(16, 4, num_verts=0).mask(32), "num_verts must be between 1 and .*, got 0"),
    (lambda: wa.fixed(16, 4, num_verts=2 ** 30).mask(2 ** 15), "num_verts can be at most 4"),
    (lambda: wa.fixed(16, 4, num_verts=[1, 2]).mask(32), r"num_verts must be a whole number, got \[1, 2\]"),
    (lambda: wa.longformer(8, dilation=2).mask(32), "dilation must be a whole number, got 2"),
    (lambda: wa.fixed(128).cost(64, d=0), "d_qk must be 1 to"),
    (lambda: wa.by_layout(np.ones((2, 2)), block=5).mask(8), "layout.block must be 8, 16, 32 or 64, got 5"),
    (lambda: wa.by_layout(np.ones(3)), "active must be"),
    (lambda: wa.by_layout([[1, np.nan], [0, 1]]), "active must be an array of bool, or of 0 and 1, got nan: try active > 0"),
    (lambda: wa.by_layout([[1, 0], [2, 1]]), "active must be an array of bool, or of 0 and 1, got 2"),
    (lambda: wa.by_layout([[1, 0], [-1, 1]]), "active must be an array of bool, or of 0 and 1, got -1"),
    (lambda: wa.by_layout([["a", "b"]] * 2), "active must be an array of bool, or of 0 and 1, got the type <U1"),
    (lambda: wa.by_layout([[1, 0], [1]]), "active must be an array of bool, or of 0 and 1"),
    (lambda: wa.by_layout(np.ones((2, 2)), keep=3), "keep must be a function of .*, got 3"),
    (lambda: (wa.by_layout(np.ones((2, 2))) | wa.local(3)).mask(8), "a layout is no part of another pattern"),
    (lambda: library.Plan(library.Pattern(wa.all().text, 1), 8, 8, 8, 8, -2), "device must be WEFT_CPU"),
    (lambda: wa.local(2 ** 64 + 8).mask(8), "stride is 18446744073709551624, which does not fit into 64 bits"),
    (lambda: wa.local(8.9).mask(8), "the fields of a pattern are whole numbers, got 8.9"),
    (lambda: wa.local(None), "the fields of a pattern are whole numbers, got None"),
    (lambda: wa.local("x"), "the fields of a pattern are whole numbers, got 'x'"),
    (lambda: wa.local(float("inf")), "the fields of a pattern are whole numbers, got inf"),
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


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setenv("WEFT_ATTENTION_LIBRARY", "/no/libweft_attention.so")
    with pytest.raises(ImportError, match="needs libweft_attention, which .* set WEFT_ATTENTION_LIBRARY to build/cpu"):
        library.library.__wrapped__()
