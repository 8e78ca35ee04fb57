"""Arrays in the memory of a CUDA device: tensors of PyTorch and arrays of CuPy, with the part of NumPy's interface that the package uses.

Arrays of other libraries (JAX, Numba, anything with DLPack or __cuda_array_interface__) are taken by CuPy, or by PyTorch where there is no
CuPy, over the same memory.
"""

import importlib.util
import math
import sys
from types import SimpleNamespace

import numpy as np

from . import _core
from ._errors import UnsupportedError, UnsupportedTypeError

__all__ = ["Bfloat16Array", "DeviceArray", "as_array", "contiguous", "device_of", "distinct", "native", "on_device", "on_host", "singular_values", "stream_of",
           "sums_of_squares", "taken_from_device"]

_FLAGS = SimpleNamespace(aligned=True, writeable=True)  # of arrays that a library has allocated


class _CuPy:
    """CuPy has NumPy's functions."""

    def __init__(self):
        self.cupy = importlib.import_module("cupy")

    def shape(self, a):
        return a.shape

    def strides(self, a):
        return a.strides

    def dtype(self, a):
        return a.dtype

    def address(self, a):
        return a.data.ptr

    def device(self, a):
        return a.device.id

    def stream(self, a):
        return self.owner_of_stream(a).ptr

    def owner_of_stream(self, a):
        with a.device:
            return self.cupy.cuda.get_current_stream()

    def capturing(self, a):
        return self.owner_of_stream(a).is_capturing()

    def empty(self, like, shape, dtype):
        with like.device:
            return self.cupy.empty(shape, dtype)

    def zeros(self, like, shape, dtype):
        with like.device:
            return self.cupy.zeros(shape, dtype)

    def identity(self, like, n, dtype):
        with like.device:
            return self.cupy.eye(n, dtype=dtype)

    def cast(self, a, dtype):
        with a.device:
            return a.astype(dtype)

    def contiguous(self, a):
        with a.device:
            return self.cupy.ascontiguousarray(a)

    def copy(self, a):
        with a.device:
            return a.copy()

    def assign(self, to, value):
        with to.device:
            to[...] = value

    def multiply(self, a, factor):
        with a.device:
            a *= factor

    def move_axes(self, a, axes, to):
        return self.cupy.moveaxis(a, axes, to)

    def conjugate(self, a):
        with a.device:
            return self.cupy.conjugate(a)

    def upper(self, a):
        with a.device:
            return self.cupy.triu(a)

    def sums_of_squares(self, a, axis):
        with a.device:
            return self.cupy.square(a).sum(axis=axis)

    def singular_values(self, a):
        with a.device:
            return self.cupy.linalg.svd(a, compute_uv=False)

    def to_host(self, a):
        return self.cupy.asnumpy(a)

    def distinct(self, labels, most):
        with labels.device:
            return int((self.cupy.bincount(labels, minlength=most) > 0).sum())


class _Torch:
    def __init__(self):
        self.torch = torch = importlib.import_module("torch")
        self.to_numpy = {getattr(torch, name): np.dtype(name) for name in
                         ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")}
        self.from_numpy = {value: key for key, value in self.to_numpy.items()}
        # PyTorch's own compiler uses this; current_stream() makes an object for each call.
        self.raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (lambda device: torch.cuda.current_stream(device).cuda_stream)

    def shape(self, a):
        return tuple(a.shape)

    def strides(self, a):
        return tuple(step * a.element_size() for step in a.stride())

    def dtype(self, a):
        found = self.to_numpy.get(a.dtype)
        if found is None:
            raise UnsupportedTypeError(f"ballast does not compute with elements of type {a.dtype}; convert the tensor")
        return found

    def address(self, a):
        return a.data_ptr()

    def device(self, a):
        return a.get_device()

    def stream(self, a):
        return self.raw_stream(a.get_device())

    def owner_of_stream(self, a):
        return None  # PyTorch's streams live as long as the program

    def capturing(self, a):
        return self.torch.cuda.is_current_stream_capturing()

    def empty(self, like, shape, dtype):
        return self.torch.empty(shape, dtype=self.from_numpy[np.dtype(dtype)], device=like.device)

    def zeros(self, like, shape, dtype):
        return self.torch.zeros(shape, dtype=self.from_numpy[np.dtype(dtype)], device=like.device)

    def identity(self, like, n, dtype):
        return self.torch.eye(n, dtype=self.from_numpy[np.dtype(dtype)], device=like.device)

    def cast(self, a, dtype):
        return a.to(self.from_numpy[dtype])

    def contiguous(self, a):
        return a.contiguous()

    def copy(self, a):
        return a.clone(memory_format=self.torch.contiguous_format)

    def assign(self, to, value):
        to.copy_(value if isinstance(value, self.torch.Tensor) else self.torch.as_tensor(value))

    def multiply(self, a, factor):
        a.mul_(factor)

    def move_axes(self, a, axes, to):
        return a.movedim(tuple(axes), tuple(to))

    def conjugate(self, a):
        return a.conj().resolve_conj()

    def upper(self, a):
        return a.triu()

    def sums_of_squares(self, a, axis):
        return a.square().sum(dim=axis)

    def singular_values(self, a):
        return self.torch.linalg.svdvals(a)

    def to_host(self, a):
        return a.detach().cpu().numpy()

    def distinct(self, labels, most):
        return int((self.torch.bincount(labels, minlength=most) > 0).sum())


_libraries = {"cupy": _CuPy, "torch": _Torch}


def _library(name):
    made = _libraries[name]
    if isinstance(made, type):
        made = _libraries[name] = made()
    return made


class DeviceArray:
    """An array of `library` in a device's memory. It answers those of NumPy's functions and operators that this package calls."""

    __slots__ = ("library", "native", "shape", "strides", "dtype", "device")
    flags = _FLAGS

    def __init__(self, library, native):
        self.library, self.native = library, native
        self.shape, self.strides, self.dtype = library.shape(native), library.strides(native), library.dtype(native)
        self.device = library.device(native)

    def _like(self, native):
        return DeviceArray(self.library, native)

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def itemsize(self):
        return self.dtype.itemsize

    @property
    def address(self):
        return self.library.address(self.native)

    @property
    def T(self):
        return self._like(self.native.T)

    @property
    def real(self):
        return self._like(self.native.real)

    @property
    def imag(self):
        return self._like(self.native.imag)

    def __len__(self):
        return self.shape[0]

    def tensor(self):
        """The array as the extension takes it."""
        code = {"c": 5, "f": 2, "i": 0, "u": 1, "b": 6}[self.dtype.kind]
        size = self.itemsize
        return _core.tensor(self.address, self.shape, [step // size for step in self.strides], code, 8 * size, self.device)

    def astype(self, dtype, order="K", copy=True):
        return self if not copy and dtype == self.dtype else self._like(self.library.cast(self.native, np.dtype(dtype)))

    def copy(self):
        return self._like(self.library.copy(self.native))

    def reshape(self, *shape):
        return self._like(self.native.reshape(*shape))

    def swapaxes(self, one, other):
        return self._like(self.native.swapaxes(one, other))

    def __getitem__(self, kept):
        return self._like(self.native[kept])

    def __setitem__(self, where, value):
        self.library.assign(self.native[where], native(value))

    def multiply(self, where, factor):
        """Multiplies this part of the array."""
        self.library.multiply(self.native[where], factor)

    def __array__(self, dtype=None, copy=None):
        raise UnsupportedError("an array in the memory of a device is not copied to the host unasked")

    def __array_function__(self, function, types, args, kwargs):
        if function in _MAKERS:  # called with like=self
            return self._like(getattr(self.library, _MAKERS[function])(self.native, *args, **kwargs))
        mine = _FUNCTIONS.get(function)
        return NotImplemented if mine is None else mine(*args, **kwargs)

    def __array_ufunc__(self, function, method, *inputs, out=None, **kwargs):
        if function is not np.conjugate or method != "__call__" or kwargs:
            return NotImplemented
        made = inputs[0]._like(self.library.conjugate(inputs[0].native))
        if out is None:
            return made
        out[0][...] = made
        return out[0]


class Bfloat16Array(DeviceArray):
    """A tensor of PyTorch's bfloat16, a type that NumPy does not have: the bits as int16, and what the extension takes them for."""

    __slots__ = ()

    def tensor(self):
        return _core.tensor(self.address, self.shape, [step // 2 for step in self.strides], 4, 16, self.device)

    def copy(self):
        return Bfloat16Array(self.library, self.library.copy(self.native))


def native(a):
    """The array of its own library; others as they are."""
    return a.native if isinstance(a, DeviceArray) else a


# ---- NumPy's functions

_MAKERS = {np.empty: "empty", np.zeros: "zeros", np.identity: "identity"}


def _empty_like(of, dtype=None, *, shape=None, subok=True):
    dtype = of.dtype if dtype is None else np.dtype(dtype)
    return of._like(of.library.empty(of.native, of.shape if shape is None else tuple(shape), dtype))


def _zeros_like(of, *, shape):
    return of._like(of.library.zeros(of.native, tuple(shape), of.dtype))


def _range(a):
    reach = sum((n - 1) * step for n, step in zip(a.shape, a.strides))
    return a.address, a.address + reach + a.itemsize


def _may_share_memory(a, b):
    if not (isinstance(a, DeviceArray) and isinstance(b, DeviceArray) and a.device == b.device and a.size and b.size):
        return False
    (first, end), (other, other_end) = _range(a), _range(b)
    return first < other_end and other < end


def _copyto(to, value, casting="same_kind"):
    to[...] = value


_FUNCTIONS = {
    np.empty_like: _empty_like,
    np.zeros_like: _zeros_like,
    np.may_share_memory: _may_share_memory,
    np.copyto: _copyto,
    np.moveaxis: lambda a, axes, to: a._like(a.library.move_axes(a.native, axes, to)),
    np.triu: lambda a: a._like(a.library.upper(a.native)),
    np.ndim: lambda a: a.ndim,
}


def as_array(a):
    """numpy.asarray, which a DeviceArray passes as it is."""
    return a if isinstance(a, DeviceArray) else np.asarray(a)


def contiguous(a):
    """numpy.ascontiguousarray."""
    return a._like(a.library.contiguous(a.native)) if isinstance(a, DeviceArray) else np.ascontiguousarray(a)


def sums_of_squares(a, axis):
    """Of the absolute values; on a device the numbers are real."""
    if isinstance(a, DeviceArray):
        return a._like(a.library.sums_of_squares(a.native, axis))
    return (np.square(a.real) + np.square(a.imag) if np.iscomplexobj(a) else np.square(a)).sum(axis=axis)


def singular_values(a):
    return a._like(a.library.singular_values(a.native)) if isinstance(a, DeviceArray) else np.linalg.svd(a, compute_uv=False)


def on_host(a):
    """A NumPy array: for a DeviceArray a copy, which waits for its stream."""
    return a.library.to_host(a.native) if isinstance(a, DeviceArray) else a


def distinct(labels, most):
    """How many different values, below `most`, the array has."""
    return labels.library.distinct(labels.native, most) if isinstance(labels, DeviceArray) else len(np.unique(labels))


# ---- Recognising and naming

def on_device(a):
    """Whether `a`, an array of a library other than NumPy, lies in a device's memory."""
    kind = type(a)
    if hasattr(kind, "__dlpack_device__"):
        return a.__dlpack_device__()[0] in (2, 13)  # DLPack's CUDA, and memory that CUDA manages
    return hasattr(kind, "__cuda_array_interface__")


def taken_from_device(a, bfloat16=False):
    """`a` as a DeviceArray over the same memory. `bfloat16`: a tensor of that type may be a Bfloat16Array."""
    name = type(a).__module__.partition(".")[0]
    if name == "torch":  # conjugates and negatives that PyTorch has only noted are computed
        if bfloat16 and a.dtype == sys.modules["torch"].bfloat16:
            return Bfloat16Array(_library("torch"), a.detach().view(sys.modules["torch"].int16))
        return DeviceArray(_library("torch"), a.detach().resolve_conj().resolve_neg())
    if name == "cupy":
        return DeviceArray(_library("cupy"), a)
    through = next((each for each in _libraries if each in sys.modules or importlib.util.find_spec(each)), None)
    if through is None:
        raise UnsupportedError(f"{type(a).__module__}.{type(a).__qualname__} on a device: CuPy or PyTorch is needed to allocate beside it")
    library = _library(through)
    module = sys.modules[through]
    if hasattr(type(a), "__dlpack__"):
        return DeviceArray(library, module.from_dlpack(a))
    return DeviceArray(library, module.asarray(a) if through == "cupy" else module.as_tensor(a, device="cuda"))


def device_of(a):
    """The number of the array's device; None for arrays of the host."""
    return a.device if isinstance(a, DeviceArray) else None


def stream_of(a):
    """The current stream of the array's library and device, as the driver's handle; 0 for arrays of the host."""
    return a.library.stream(a.native) if isinstance(a, DeviceArray) else 0

