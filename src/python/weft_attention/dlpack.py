# SPDX-License-Identifier: MIT
"""attention() on any arrays with __dlpack__ (numpy, JAX, CuPy), read in place: https://dmlc.github.io/dlpack. Needs neither
numpy nor PyTorch for that. The result is new memory, which supports __dlpack__ as well."""
import ctypes
import functools
import math
import sys

from . import library, patterns

CPU, CUDA = 1, 2  # DLDeviceType
LEGACY_STREAM = 1  # of CUDA, which waits for others and others for it
INTEGERS, FLOATS = (0, 1), {(2, 32): 1, (2, 16): 2, (4, 16): 3, (2, 64): 4}  # DLDataTypeCode; with bits: weft_dtype
TYPES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}  # DLDataTypeCode
MEMORY = 64  # bytes, of which the start of a result is a multiple: JAX copies others
UNUSED, USED, VERSIONED = b"dltensor", b"used_dltensor", b"dltensor_versioned"


class Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", library.LIST), ("strides", library.LIST), ("byte_offset", ctypes.c_uint64)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):  # DLManagedTensor
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class ManagedVersioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


def _api(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)(("PyCapsule_" + name, ctypes.pythonapi))


_new = _api("New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, Deleter)
_pointer = _api("GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_is_named = _api("IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer_of_dying = _api("GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_dying_is_named = _api("IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)


UNREADABLE = (BufferError, RuntimeError, TypeError, AttributeError, ValueError)  # of __dlpack__, from whoever has it


def unreadable(name, error):
    """What is raised where an array gives no capsule."""
    why = str(error).rstrip(".")
    return ValueError(f"{name} cannot be read by __dlpack__: {why}. Expected a dense array of native byte order without a "
                      "gradient. Try numpy.ascontiguousarray(x, numpy.float32), or x.detach() of a tensor; only a q of "
                      "PyTorch has gradients")


def _capsule(source, stream):
    try:  # read-only arrays have this form alone
        return source.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:
        try:
            return source.__dlpack__(**stream)
        except BufferError:  # read-only, of a numpy before 2.1
            if not hasattr(source, "copy"):
                raise
            return source.copy().__dlpack__()


def check_is_array(name, source):
    if not hasattr(source, "__dlpack__"):
        raise ValueError(f"{name} must be an array with __dlpack__ (of numpy, JAX, CuPy, PyTorch ...), got {type(source)}")


class Array:
    """What a DLPack capsule says; it lives as long as this does."""

    def __init__(self, name, source):
        check_is_array(name, source)
        try:
            self.device = tuple(map(int, source.__dlpack_device__()))
            self.capsule = _capsule(source, {"stream": LEGACY_STREAM} if self.device[0] == CUDA else {})
        except UNREADABLE as error:
            raise unreadable(name, error) from error
        kind, capsule_name = (ManagedVersioned, VERSIONED) if _is_named(self.capsule, VERSIONED) else (Managed, UNUSED)
        t = kind.from_address(_pointer(self.capsule, capsule_name)).tensor
        self.shape = tuple(t.shape[:t.ndim])
        self.code, self.bits = t.code, t.bits
        self.address = (t.data or 0) + t.byte_offset
        if t.strides:
            self.strides = tuple(t.strides[:t.ndim])
        else:  # rows lie one behind the other
            self.strides = tuple(functools.reduce(int.__mul__, self.shape[axis + 1:], 1) for axis in range(t.ndim))


def allocate(device, count):
    """Address and owner of memory on a DLPack device."""
    if device[0] == CPU:
        owner = ctypes.create_string_buffer(count + MEMORY)
        return ctypes.addressof(owner) + -ctypes.addressof(owner) % MEMORY, owner
    owner = CudaMemory(device[1], count)
    return owner.address, owner


class Cuda:
    """The primary context of a CUDA device, which the library has initialised. Any thread may call the driver in it."""

    def __init__(self, number):
        self.driver, self.context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        if self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), number):
            raise RuntimeError(f"CUDA device {number} cannot be used by weft_attention.attention")

    def call(self, name, *arguments):
        self.driver.cuCtxPushCurrent_v2(self.context)
        failed = getattr(self.driver, name)(*arguments)
        self.driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        return failed


cuda = functools.lru_cache(maxsize=None)(Cuda)


class CudaMemory:
    def __init__(self, number, count):
        address = ctypes.c_uint64()
        self.cuda, self.address = cuda(number), None
        if self.cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(count, 1))):
            raise MemoryError(f"CUDA has no {count} bytes for the result of weft_attention.attention")
        self.address = address.value

    def __del__(self):
        if self.address:
            self.cuda.call("cuMemFree_v2", ctypes.c_uint64(self.address))


@Deleter
def _release(address):
    Result.exported.pop(address, None)


@Deleter
def _capsule_dies(capsule):
    if _dying_is_named(capsule, UNUSED):  # nobody took it
        _release(_pointer_of_dying(capsule, UNUSED))


for _callback in (_release, _capsule_dies):  # others may call them while the interpreter ends
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


class Result:
    """New memory of some shape; numpy.from_dlpack(), jax.numpy.from_dlpack(), cupy.from_dlpack() take it without a copy."""
    exported = {}  # address of a DLManagedTensor -> it and what it points to

    def __init__(self, like, shape, code=None, bits=None):
        self.device, self.shape = like.device, shape
        self.code, self.bits = like.code if code is None else code, bits or like.bits
        sizes = [functools.reduce(int.__mul__, shape[axis:], 1) for axis in range(len(shape) + 1)]
        self.strides = tuple(sizes[1:])
        self.address, self.owner = allocate(like.device, sizes[0] * self.bits // 8)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Results are complete on every stream."""
        if copy or (dl_device is not None and tuple(map(int, dl_device)) != self.device):
            raise BufferError(f"this array is on the DLPack device {self.device}, and makes no copies")
        count = len(self.shape)
        shape, strides = (library.INT64 * count)(*self.shape), (library.INT64 * count)(*self.strides)
        managed = Managed(Tensor(self.address, *self.device, count, self.code, self.bits, 1,
                                 ctypes.cast(shape, library.LIST), ctypes.cast(strides, library.LIST), 0), None, _release)
        address = ctypes.addressof(managed)
        Result.exported[address] = (managed, shape, strides, self)
        return _new(address, UNUSED, _capsule_dies)


_plans = {}
caches = [_plans]  # what holds plans, in other modules too


def planned(*of, before=lambda: None):
    """The library's plan of (text of a pattern, heads, n_q, n_k, d_qk, d_v, device), kept until clear_plans(). before() is
    called ahead of one that is made."""
    if of not in _plans:
        before()
        _plans[of] = library.Plan(patterns.made(*of[:2]), *of[2:])
    return _plans[of]


def clear_plans():
    """Frees the tables of all plans. No launch, captured graph or backward pass that uses them may be left."""
    for cache in caches:
        cache.clear()


def check_shapes(q, k, v):
    """Of q, k and v with axes in the order (batch, time, heads, size)."""
    (B, _, H, D), (_, n_k, _, d_v) = q.shape, v.shape
    if k.shape[0] != B or k.shape[1] != n_k or k.shape[2] != H or k.shape[3] != D:
        raise ValueError(f"k must be (batch, time, heads, size) = {(B, n_k, H, D)} beside q and v, got {tuple(k.shape)}")
    if v.shape[0] != B or v.shape[2] != H:
        raise ValueError(f"v must be (batch, time, heads, size) = {(B, n_k, H, d_v)} beside q, got {tuple(v.shape)}")


def check_layout(layout, pattern):
    if layout not in ("bthd", "bhtd"):
        raise ValueError(f'layout must be "bthd" or "bhtd", got {layout!r}')
    check_pattern(pattern)


def check_pattern(pattern):
    if not isinstance(pattern, patterns.Pattern):
        raise ValueError(f"pattern must be a Pattern such as weft_attention.fixed(128, c=32), got {pattern!r}")


def checked_scale(scale):
    """A number for the library, to which 0 is 1 / sqrt(D)."""
    if scale is None:
        return 0.0
    try:
        number = float(scale)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"scale must be positive and finite, or None for 1 / sqrt(D), got {scale!r}")
    return number


def segment_pair(segments):
    """Of queries and of keys."""
    if not isinstance(segments, (tuple, list)):
        return segments, segments
    if len(segments) != 2:
        raise ValueError("segments must be an array (batch, time), or a pair of them, for queries and for keys, "
                         f"got a {type(segments).__name__} of {len(segments)}")
    return segments


def _type_name(x):
    return "bool" if x.code == 6 else TYPES.get(x.code, f"type {x.code} of DLPack, bits ") + str(x.bits)


def _checked(q, k, v, layout):
    for name, x in (("q", q), ("k", k), ("v", v)):
        if len(x.shape) != 4:
            raise ValueError(f"{name} must have 4 axes, {layout}, got {x.shape}")
        if x.device != q.device or x.device[0] not in (CPU, CUDA):
            also = "" if x is q else f", {name} on {x.device}"
            raise ValueError(f"q is on the DLPack device {q.device}{also}: "
                             "expected the CPU, (1, 0), or one CUDA device, (2, N)")
        if (q.code, q.bits) not in FLOATS:
            raise ValueError(f"q is {_type_name(q)}: expected float32, float16, bfloat16 or float64; "
                             "try another type of array")
        if (x.code, x.bits) != (q.code, q.bits):
            raise ValueError(f"q is {_type_name(q)}, {name} {_type_name(x)}: expected one type for all; "
                             f"convert {name} to {_type_name(q)}")
        if x.strides[3] != 1 and x.shape[3] > 1:
            raise ValueError(f"{name} must have its last axis contiguous, as it is read in place: its strides are {x.strides}")
        if layout == "bhtd":
            x.shape, x.strides = ((a[0], a[2], a[1], a[3]) for a in (x.shape, x.strides))
    check_shapes(q, k, v)


def _segments(segments, q, k):
    """Arrays of int32. Of a CPU other integers become numbers of int32 that are equal where they are."""
    if segments is None:
        return None, None
    pair = segment_pair(segments)
    given = [Array(f"segments of {name}", s) for name, s in zip(("queries", "keys"), pair)]
    for name, s, x in zip(("queries", "keys"), given, (q, k)):
        if s.shape != x.shape[:2] or s.device != q.device or s.code not in INTEGERS:
            raise ValueError(f"segments of {name} must be integers {x.shape[:2]} on the DLPack device {q.device}, "
                             f"got {_type_name(s)} {s.shape} on {s.device}")
    if all((s.code, s.bits) == (0, 32) and s.strides == (s.shape[1], 1) for s in given):
        return given
    if q.device[0] == CUDA:
        raise ValueError("segments on CUDA must be int32 and contiguous: they are read in place")
    import numpy
    flat = [numpy.asarray(s) for s in pair]
    ids = numpy.unique(numpy.concatenate([s[s >= 0].astype(numpy.uint64) for s in flat]))
    return [Array("segments", numpy.where(s < 0, -1, numpy.searchsorted(ids, s.astype(numpy.uint64))).astype(numpy.int32))
            for s in flat]


def _like(source, result):
    """The result as an array of the kind of `source`, or as it is where that has no from_dlpack()."""
    if hasattr(source, "__array_namespace__"):
        module = source.__array_namespace__()
    else:
        module = sys.modules[type(source).__module__.partition(".")[0]]
    return getattr(module, "from_dlpack", lambda x: x)(result)


def attention(source, k, v, pattern, layout="bthd", scale=None, segments=None):
    """As attention() in op.py says, forward alone. The call returns when the result is there."""
    check_layout(layout, pattern)
    scale = checked_scale(scale)
    q, k, v = Array("q", source), Array("k", k), Array("v", v)
    _checked(q, k, v, layout)
    q_segments, k_segments = _segments(segments, q, k)
    (B, n_q, H, D), d_v = q.shape, v.shape[3]
    device = library.CPU if q.device[0] == CPU else q.device[1]
    plan = planned(pattern.text, H, n_q, k.shape[1], D, d_v, device)
    shape = (B, H, n_q, d_v) if layout == "bhtd" else (B, n_q, H, d_v)
    o, lse = Result(q, shape), Result(q, (B, H, n_q), 2, max(q.bits, 32))
    steps = o.strides[:1] + o.strides[2:0:-1] if layout == "bhtd" else o.strides[:3]
    args = library.ForwardArgs(
        batch=B, dtype=FLOATS[q.code, q.bits], scale=scale, lse=lse.address,
        q_segments=q_segments and q_segments.address, k_segments=k_segments and k_segments.address,
        o=library.View(o.address, *steps), stream=None,
        **{name: library.View(x.address, *x.strides[:3]) for name, x in (("q", q), ("k", k), ("v", v))})
    plan.run(args)
    if q.device[0] == CUDA:  # what reads and what frees need not know our stream
        cuda(device).call("cuStreamSynchronize", ctypes.c_void_p(LEGACY_STREAM))
    return _like(source, o)
