"""Complex numbers: made from real ones, and taken apart.

The gradient of a real loss L with respect to z = x + iy is ∂L/∂x + i ∂L/∂y, as in PyTorch: the step of
steepest descent is against it. For an op with a complex result it is conj(derivative) * g, and the backward
pass conjugates, not the op: it calls the vjp, written as if for real numbers, with conj(g), and conjugates
what that returns (see `engine.call_vjp`). The vjps of `complex` and `view_as_complex`, whose inputs are real,
therefore get conj(g), too.

Source: https://docs.pytorch.org/docs/stable/notes/autograd.html#complex-autograd
"""

from __future__ import annotations

import numpy as np

from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .elementwise import cos, mul, sin
from .elementwise.operands import zero_gradient
from .shape import matrix_transpose

__all__ = [
    "angle", "complex", "conj", "conj_physical", "imag", "polar", "real", "resolve_conj", "view_as_complex",
    "view_as_real",
]


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """real + i imag, broadcast: complex64 of float32, complex128 of float64.

    Raises:
        RuntimeError: the two differ in dtype, or it is another one.

    >>> mytorch.complex(mytorch.tensor([1.0]), mytorch.tensor([2.0]))
    tensor([1.00000+2.00000j], dtype=complex64)
    """
    _check_parts("complex", real, imag)
    return _complex(real, imag)


def _check_parts(name, *parts):
    for x in parts:
        require_tensor(x, name)
    a, b = (x.dtype for x in parts)
    if a not in (np.float32, np.float64) or a != b:
        raise RuntimeError(f"{name}(): Expected both inputs to be float32 or float64, got {a} and {b}")


@op
def _complex(real, imag):
    z = np.empty(np.broadcast_shapes(real.shape, imag.shape), _complex_dtype(real), like=real)
    z.real, z.imag = real, imag
    return z, (lambda g: g.real, lambda g: -g.imag)  # of conj(g)


def _complex_dtype(x):
    return np.dtype("complex64" if x.dtype == np.float32 else "complex128")


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * exp(i angle) = complex(abs * cos(angle), abs * sin(angle))

    Raises:
        RuntimeError: as `complex`.

    >>> mytorch.polar(mytorch.tensor([2.0]), mytorch.tensor([0.0]))
    tensor([2.00000+0.00000j], dtype=complex64)
    """
    _check_parts("polar", abs, angle)
    return _complex(mul(abs, cos(angle)), mul(abs, sin(angle)))


@op(view=True)
def view_as_complex(input):
    """The pairs of the last dim, of size 2, as complex numbers, (..., 2) to (...): a view.

    Raises:
        RuntimeError: it isn't of size 2, or its elements aren't neighbours; neither float32 nor float64.
    """
    if input.dtype not in (np.float32, np.float64):
        raise RuntimeError(f"view_as_complex(): Expected float32 or float64, got {input.dtype}")
    if input.ndim == 0 or input.shape[-1] != 2:
        raise RuntimeError(
            f"view_as_complex(): Tensor must have a last dimension of size 2, got shape {list(input.shape)}"
        )
    size = input.dtype.itemsize
    if input.size and (input.strides[-1] != size or any(step % (2 * size) for step in input.strides[:-1])):
        raise RuntimeError(
            "view_as_complex(): Tensor must have a last dimension with stride 1 and even strides before it"
        )
    whole = input if input.size else input.copy()
    return whole.view(_complex_dtype(input))[..., 0], lambda g: view_as_real.dual(np.conj(g))  # of conj(g)


@op(view=True)
def view_as_real(input):
    """The real and imaginary parts as a last dim, (...) to (..., 2): a view.

    Raises:
        RuntimeError: the tensor isn't complex.

    >>> mytorch.view_as_real(mytorch.tensor([1 + 2j]))
    tensor([[1.00000 2.00000]])
    """
    _need_complex("view_as_real", input)
    parts = input[..., None].view(input.real.dtype)
    return parts, lambda g: _pairs(g)


def _pairs(g):
    """The complex numbers whose parts are in the last dim, which may be of any stride."""
    if isinstance(g, Tensor):
        return _complex(g[..., 0], g[..., 1])
    return g.copy().view(_complex_dtype(g))[..., 0]


def _need_complex(name, x):
    if x.dtype.kind != "c":
        raise RuntimeError(f"{name}(): is not implemented for tensors with non-complex dtypes, got {x.dtype}")


def real(input: Tensor) -> Tensor:
    """The real part, a view; of a tensor that isn't complex, itself.

    >>> mytorch.real(mytorch.tensor([1 + 2j]))
    tensor([1.00000])
    """
    require_tensor(input, "real")
    return _real(input) if input.dtype.kind == "c" else input


@op(view=True)
def _real(x):
    return x.real, lambda g: g


def imag(input: Tensor) -> Tensor:
    """The imaginary part, a view.

    Raises:
        RuntimeError: the tensor isn't complex.

    >>> mytorch.imag(mytorch.tensor([1 + 2j]))
    tensor([2.00000])
    """
    require_tensor(input, "imag")
    _need_complex("imag", input)
    return _imag(input)


@op(view=True)
def _imag(x):
    return x.imag, lambda g: g * 1j


def conj(input: Tensor) -> Tensor:
    """The complex conjugate, real - i imag, in new memory; of a tensor that isn't complex, itself.

    >>> mytorch.conj(mytorch.tensor([1 + 2j]))
    tensor([1.00000-2.00000j], dtype=complex64)
    """
    require_tensor(input, "conj")
    return conj_physical(input) if input.dtype.kind == "c" else input


@op(half=True)
def conj_physical(input):
    """The complex conjugate, in new memory."""
    if input.dtype.kind != "c":
        return input.copy(), lambda g: g
    return np.conj(input), lambda g: np.conj(g)


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: `conj` leaves nothing to be done later."""
    require_tensor(input, "resolve_conj")
    return input


@op(promote="float")
def angle(input):
    """The angle in radians, in [-π, π]; of a real number 0 or, if negative, π. At 0 the gradient is 0.

    >>> mytorch.angle(mytorch.tensor([-1.0, 1.0]))
    tensor([3.14159 0.00000])
    """
    if input.dtype.kind != "c":
        y = np.where(np.less(input, 0), np.pi, np.where(np.isnan(input), np.nan, 0)).astype(input.dtype)
        return y, zero_gradient

    def vjp(g):
        size = np.square(input.real) + np.square(input.imag)
        return g * (1j * input) / np.where(np.equal(size, 0), 1, size)

    return np.arctan2(input.imag, input.real), vjp


def conjugate_transpose(x: Tensor) -> Tensor:
    """The last two dims exchanged, and conjugated: `x.mH`."""
    return conj(matrix_transpose(x))


def conjugate_of_matrix(x: Tensor) -> Tensor:
    """The conjugate transpose of a matrix, or the conjugate of a number: `x.H`."""
    if x.ndim not in (0, 2):
        raise RuntimeError(f"H needs a matrix, got a tensor with {x.ndim} dimensions; use mH")
    return conjugate_transpose(x) if x.ndim else conj(x)
