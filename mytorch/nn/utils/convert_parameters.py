"""Conversion of parameters to one vector and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...autograd import no_grad
from ...core.tensor import Tensor, raw_of
from ...ops import cat
from ...ops.inplace import write


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Returns the elements of all parameters, concatenated in a new vector."""
    return cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copies the elements of a vector into the parameters, in order.

    Raises:
        TypeError: `vec` is not a Tensor.
        RuntimeError: its length is not the total of all parameters.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected a Tensor, but got {type(vec).__name__}")
    parameters = list(parameters)
    total = sum(parameter.numel() for parameter in parameters)
    if tuple(vec.shape) != (total,):
        raise RuntimeError(
            f"expected a vector of {total} elements for these parameters, got shape {tuple(vec.shape)}"
        )
    start = 0
    with no_grad():
        for parameter in parameters:
            stop = start + parameter.numel()
            write(parameter, raw_of(vec)[start:stop].reshape(parameter.data.shape))
            start = stop
