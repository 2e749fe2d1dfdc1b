# SPDX-License-Identifier: MIT
"""libweft_attention by ctypes: src/capi/weft_attention.h says what everything means. Needs neither numpy nor PyTorch.
The library is the one beside this file, or the one that the environment variable WEFT_ATTENTION_LIBRARY names."""
import ctypes
import functools
import json
import os

VERSION = 10000  # WEFT_ATTENTION_VERSION of the header that the structs below repeat
POINTER, INT64, INT32, SIZE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_size_t
LIST = ctypes.POINTER(INT64)
PREDICATE = ctypes.CFUNCTYPE(INT32, POINTER, INT32, INT64, INT64)
OK, INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY = range(4)
CPU = -1


Spec = type("Spec", (ctypes.Structure,), {})  # weft_pattern_spec, which points to its own kind
Spec._fields_ = [
    ("size", SIZE), ("kind", ctypes.c_char_p), ("stride", INT64), ("c", INT64), ("num_verts", INT64), ("block", INT64),
    ("vertsize", INT64), ("causal", INT32), ("of", ctypes.POINTER(ctypes.POINTER(Spec))), ("of_count", SIZE),
    ("prefix", INT64), ("documents", LIST), ("documents_count", SIZE), ("length", INT64), ("window", INT64),
    ("dilation", LIST), ("dilation_count", SIZE), ("globals", LIST), ("globals_count", SIZE), ("random", INT64),
    ("seed", ctypes.c_uint64), ("grid", LIST), ("grid_count", SIZE), ("filter", LIST), ("filter_count", SIZE),
    ("step", INT64), ("transposed", INT32)]
FIELDS = [name for name, _ in Spec._fields_[1:] if not name.endswith("_count")]


class Layout(ctypes.Structure):  # weft_layout
    _fields_ = [("size", SIZE), ("active", POINTER), ("heads", INT64), ("q_blocks", INT64), ("k_blocks", INT64),
                ("block", INT64), ("causal", INT32), ("keep", PREDICATE), ("user", POINTER)]


class PlanInfo(ctypes.Structure):  # weft_plan_info
    _fields_ = [("size", SIZE), ("bytes", INT64), ("needed_pairs", INT64), ("executed_pairs", INT64),
                ("passes", INT32), ("heads", INT32)]


class View(ctypes.Structure):  # weft_input, weft_output
    _fields_ = [("data", POINTER), ("batch_stride", INT64), ("time_stride", INT64), ("head_stride", INT64)]


_COMMON = [("size", SIZE), ("batch", INT64), ("dtype", INT32), ("form", INT32), ("scale", ctypes.c_double)]
_SEGMENTS = [("q_segments", POINTER), ("k_segments", POINTER)]


class ForwardArgs(ctypes.Structure):
    _fields_ = _COMMON + [(name, View) for name in "qkvo"] + [("lse", POINTER)] + _SEGMENTS + [("stream", POINTER)]


class BackwardArgs(ctypes.Structure):
    _fields_ = _COMMON + [(name, View) for name in ("q", "k", "v", "o", "d_o")] + [("lse", POINTER)] + [
        (name, View) for name in ("dq", "dk", "dv")] + _SEGMENTS + [
        ("workspace", POINTER), ("workspace_bytes", SIZE), ("stream", POINTER)]


def load(name, version):
    """libNAME.so beside this file, or the file that the environment variable NAME_LIBRARY names."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"lib{name}.so")
    c = ctypes.CDLL(os.environ.get(f"{name.upper()}_LIBRARY", beside))
    have = getattr(c, f"{name}_version")()
    if have // 10000 != version // 10000 or have < version:
        raise ImportError(f"{c._name} has version {have}, this module needs {version} or a later minor version of it")
    return c


@functools.lru_cache(maxsize=None)
def library():
    try:
        c = load("weft_attention", VERSION)
    except OSError as error:
        raise ImportError(f"weft_attention needs libweft_attention, which cannot be loaded ({error}): "
                          "pip install ./src/python in a clone of weft, or build the target "
                          "weft_attention there and set WEFT_ATTENTION_LIBRARY to "
                          "build/cpu/lib/libweft_attention.so") from None
    c.weft_last_error.restype = c.weft_pattern_name.restype = ctypes.c_char_p
    for name in ("weft_pattern_name", "weft_pattern_destroy", "weft_attention_plan_destroy"):
        getattr(c, name).argtypes = [POINTER]
    return c


def check(status, last_error):
    """An error is a ValueError, a MemoryError or a RuntimeError with the text of the library."""
    if status != OK:
        kind = {INVALID_ARGUMENT: ValueError, UNSUPPORTED: ValueError, OUT_OF_MEMORY: MemoryError}.get(status, RuntimeError)
        raise kind(last_error().decode())


def call(name, *arguments):
    """Calls weft_NAME."""
    check(getattr(library(), "weft_" + name)(*arguments), library().weft_last_error)


def fitted(kind, value, name):
    """A ctypes number of a Python one. ctypes alone drops the bits that the kind has no room for."""
    try:
        number = kind(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
    if number.value != value:
        raise ValueError(f"{name} is {value}, which does not fit into {8 * ctypes.sizeof(kind)} bits")
    return number


def positive(value, name):
    """A Python number from 1 on."""
    number = fitted(INT64, value, name).value
    if number < 1:
        raise ValueError(f"{name} must be 1 or more, got {number}")
    return number


def _spec(fields):
    """A weft_pattern_spec of a dict; what it points to lives as long as it does."""
    spec = Spec()
    call("pattern_spec_init", ctypes.byref(spec), SIZE(ctypes.sizeof(spec)))
    spec.kept, numbers = [], dict(Spec._fields_)
    if fields["kind"] == "layout":
        raise ValueError("a layout is no part of another pattern, and stays in the process that made it")
    for name, value in fields.items():
        if name not in FIELDS:
            raise ValueError(f"a pattern has no field {name}; there are {', '.join(FIELDS[1:])}")
        if name == "kind":
            value = value.encode()
        elif name == "of":
            value = (ctypes.POINTER(Spec) * len(value))(*(ctypes.pointer(_spec(one)) for one in value))
        elif isinstance(value, list):
            if name + "_count" not in numbers:
                raise ValueError(f"{name} must be a whole number, got {value!r}")
            value = (INT64 * len(value))(*(fitted(INT64, one, name) for one in value))
        else:
            value = fitted(numbers[name], value, name).value
        if isinstance(value, ctypes.Array):
            setattr(spec, name + "_count", len(value))
        spec.kept.append(value)
        setattr(spec, name, value)
    return spec


class Pattern:
    """A weft_pattern for some number of heads, from the JSON text of a spec or from a layout (active, block, causal,
    keep): active is a C-contiguous array (1 or heads, q_blocks, k_blocks) of bytes, keep is None or a function of
    (head, query, key)."""

    def __init__(self, source, heads):
        self.handle = POINTER()
        if isinstance(source, str):
            spec = _spec(json.loads(source))
            call("pattern_create", ctypes.byref(spec), fitted(INT32, heads, "heads"), ctypes.byref(self.handle))
        else:
            active, block, causal, keep = source
            predicate = PREDICATE(lambda _, *pair: int(keep(*pair))) if keep else PREDICATE(0)
            layout = Layout(ctypes.sizeof(Layout), active.ctypes.data, *active.shape, fitted(INT64, block, "block"),
                            bool(causal), predicate, None)
            call("pattern_create_layout", ctypes.byref(layout), fitted(INT32, heads, "heads"), ctypes.byref(self.handle))
        self.name = library().weft_pattern_name(self.handle).decode()

    def mask(self, head, n_q, n_k, address):
        """Writes the n_q * n_k bytes of one head."""
        call("pattern_mask", self.handle, fitted(INT32, head, "head"), fitted(INT64, n_q, "n_q"), fitted(INT64, n_k, "n_k"),
             POINTER(address))

    def __del__(self):
        if self.handle:
            library().weft_pattern_destroy(self.handle)


class Plan:
    """A weft_attention_plan: device is CPU or the number of a CUDA device."""

    def __init__(self, pattern, n_q, n_k, d_qk, d_v, device):
        self.handle = POINTER()
        sizes = [fitted(INT64, value, name) for name, value in (("n_q", n_q), ("n_k", n_k), ("d_qk", d_qk), ("d_v", d_v))]
        call("attention_plan_create", pattern.handle, *sizes, fitted(INT32, device, "device"), ctypes.byref(self.handle))

    def info(self):
        info = PlanInfo(ctypes.sizeof(PlanInfo))
        call("attention_plan_info", self.handle, ctypes.byref(info))
        return info

    def workspace_size(self, batch, dtype):
        size = SIZE()
        call("attention_workspace_size", self.handle, INT64(batch), dtype, ctypes.byref(size))
        return size.value

    def run(self, args):
        c = library()
        args.size = ctypes.sizeof(args)
        launch = c.weft_attention_backward if type(args) is BackwardArgs else c.weft_attention_forward
        check(launch(self.handle, ctypes.byref(args)), c.weft_last_error)

    def __del__(self):
        if self.handle:
            library().weft_attention_plan_destroy(self.handle)
