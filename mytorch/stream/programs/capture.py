"""Captures programs: runs a function on arrays that hold nothing and note what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.device import META
from ...backends.meta.array import MetaArray, new_of
from ...backends.meta.layout import layout
from ...core.array import Array
from ...core.tensor import Tensor, from_raw, raw_of
from ...nn.functional.composite import choose
from ...nn.module import Module
from .kernels import kept_whole
from .program import Program, mapped
from .tracing import Tracer, tracing


def capture(function: Callable, *examples: Any, **named: Any) -> Program:
    """Returns what a function computes of arguments like the examples, as a program. Nothing is computed.

    All that happens is part of it: the forward pass, the backward pass, what is written in place. Composites
    are taken apart, except those with kernels that do more than loops can (see `kernels.KEPT`); with
    `F.use_fused(False)` these, too.

    Args:
        function: of tensors, numbers and nested structures of these. Numbers are constants of the program;
            tensors that are no arguments, as parameters, are its state.
        examples, named: arguments; of tensors only shape, strides, dtype and `requires_grad` matter.

    Raises:
        NotImplementedError: the function asks for an element, as `.item()` or `if x > 0` do, or for random
            numbers.

    >>> print(mytorch.capture(lambda x, y: (x * y).sum(-1), mytorch.ones(2, 3), mytorch.ones(3)))
    <lambda>(%0: float32[2, 3], %1: float32[3])
      %2: float32[2, 3] = multiply(%0, %1)
      %3: float32[2] = sum(%2, axis=(1,), keepdims=False, dtype=None)
      return %3
    """
    inputs: list[MetaArray] = []
    with tracing() as tracer, kept_whole(), META, choose(auto=True):
        for tensor in tensors_of(function):
            tracer.lift(raw_of(tensor), tensor)
        args, kwargs = mapped(lambda x: _as_input(x, tracer, inputs), (examples, named))
        try:
            result = function(*args, **kwargs)
        except (RuntimeError, TypeError) as error:
            if "on meta" not in str(error):
                raise
            raise NotImplementedError("a program can't ask for an element while it is captured") from error
        outputs = mapped(lambda x: _as_output(x, tracer), result)
    name = getattr(function, "__name__", type(function).__name__)
    given = tuple(map(tracer.value, inputs))
    return Program(given, tracer.state, tracer.constants, tracer.instructions, outputs, name)


def tensors_of(function: Callable) -> list[Tensor]:
    """Returns the tensors that a function can be seen to use: those of modules and tensors among its globals,
    in its closure, or that it is a method of."""
    found = [function, getattr(function, "__self__", None)]
    code = getattr(function, "__code__", None)
    if code is not None:
        found += [function.__globals__.get(name) for name in code.co_names]
        found += [cell.cell_contents for cell in function.__closure__ or () if _is_set(cell)]
    tensors: list[Tensor] = []
    for x in found:
        if isinstance(x, Tensor):
            tensors.append(x)
        elif isinstance(x, Module):
            tensors += [*x.parameters(), *x.buffers()]
    return [x for x in dict.fromkeys(tensors) if isinstance(raw_of(x), np.ndarray)]


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises
    except ValueError:
        return False
    return True


def _as_input(x: Any, tracer: Tracer, inputs: list[MetaArray]) -> Any:
    if not isinstance(x, (Tensor, Array, np.ndarray)):
        return x
    raw = raw_of(x)
    strides = raw.strides if isinstance(raw, np.ndarray) else None
    made = new_of(layout(raw.shape, strides, raw.dtype))
    tracer.new(made)
    inputs.append(made)
    if isinstance(x, Tensor):
        found = from_raw(made)
        found.requires_grad = x.requires_grad
        return found
    return Array(made)


def _as_output(x: Any, tracer: Tracer) -> Any:
    if not isinstance(x, (Tensor, Array, np.ndarray, MetaArray)):
        return x
    raw = raw_of(x)
    return tracer.value(tracer.lift(raw, x if isinstance(x, Tensor) else None))
