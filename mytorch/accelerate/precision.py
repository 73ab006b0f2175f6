"""Making a model compute in half precision: its parameters, and the casts at its ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._array import Array
from ..nn.module import Module
from ..nn.parameter import replace_data
from ..tensor import Tensor

HALF = np.dtype(np.float16)

_PRECISIONS = {False: "no", None: "no", "no": "no", "fp32": "no", True: "fp16", "fp16": "fp16"}


def read_precision(value: bool | str | None) -> str:
    """ "no" or "fp16".

    Raises:
        ValueError: something else, bfloat16 too, which the arrays beneath don't have.
    """
    if value == "bf16":
        raise ValueError(
            "mixed_precision='bf16': NumPy and CuPy have no bfloat16 arrays; use 'fp16', whose loss scaling "
            "makes up for its smaller range"
        )
    if not isinstance(value, (bool, str, type(None))) or value not in _PRECISIONS:
        raise ValueError(f"mixed_precision is 'no', 'fp16', True or False, got {value!r}")
    return _PRECISIONS[value]


def half_parameters(model: Module) -> dict[Tensor, Array]:
    """Make the float32 parameters of a model float16, in place; buffers stay as they are.

    Returns:
        The float32 values of those parameters. Tied ones are one parameter, here as everywhere.
    """
    values = {p: p.data for p in model.parameters() if p.dtype == np.float32}
    for p, value in values.items():
        replace_data(p, value.to(HALF))
        p._grad = None
    return values


def check_half(p: Tensor) -> None:
    """Raise if a parameter isn't float16."""
    if p.dtype != HALF:
        raise ValueError(
            f"mixed precision needs float16 parameters, got one of {p.dtype} and shape {tuple(p.shape)}; "
            "half_parameters(model) makes them so"
        )


def cast_around(model: Module) -> list:
    """Give the model its inputs in float16, and everybody else its outputs in float32.

    Returns:
        The handles of the hooks that do so.
    """
    return [
        model.register_forward_pre_hook(_halve_inputs, with_kwargs=True),
        model.register_forward_hook(_widen_outputs),
    ]


def _halve_inputs(module: Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    return floats_to(args, HALF), floats_to(kwargs, HALF)


def _widen_outputs(module: Module, args: tuple, result: Any) -> Any:
    return floats_to(result, np.dtype(np.float32))


def floats_to(value: Any, dtype: np.dtype) -> Any:
    """Nested dicts, lists and tuples with the real floating-point tensors in them cast to `dtype`."""
    if isinstance(value, Tensor):
        return value.to(dtype) if value.dtype.kind == "f" and value.dtype != dtype else value
    if isinstance(value, dict):
        return type(value)({key: floats_to(item, dtype) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(floats_to(item, dtype) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(floats_to(item, dtype) for item in value)
    return value
