"""Half-precision models: their parameters, and the casts of their inputs and outputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..backends.dtypes import as_dtype, float32, is_floating_point, is_half
from ..core.array import Array
from ..core.tensor import RemovableHandle, Tensor
from ..nn.module import Module
from ..nn.parameter import replace_data

HALVES = {"fp16": "float16", "bf16": "bfloat16"}  # a model's dtype by precision
_PRECISIONS = {
    False: "no", None: "no", "no": "no", "fp32": "no", True: "fp16", "fp16": "fp16", "bf16": "bf16",
}


def read_precision(value: bool | str | None) -> str:
    """Returns "no", "fp16" or "bf16".

    Raises:
        ValueError: another value.
        ImportError: "bf16" without the package that it needs.
    """
    if not isinstance(value, (bool, str, type(None))) or value not in _PRECISIONS:
        raise ValueError(f"mixed_precision is 'no', 'fp16', 'bf16', True or False, got {value!r}")
    precision = _PRECISIONS[value]
    half_dtype(precision)
    return precision


def half_dtype(precision: str) -> np.dtype | None:
    """Returns the model's dtype; None if it stays what it is."""
    return as_dtype(HALVES[precision]) if precision in HALVES else None


def half_parameters(model: Module, dtype: str | np.dtype = "float16") -> dict[Tensor, Array]:
    """Casts the float32 parameters of a model to half precision, in place; buffers are unchanged.

    Args:
        dtype: float16 or bfloat16.

    Returns:
        The float32 values by parameter; tied weights are one parameter.

    Raises:
        ValueError: another dtype.
        ImportError: bfloat16 without the package that it needs.
    """
    half = as_dtype(dtype)
    if not is_half(half):
        raise ValueError(f"half_parameters(): dtype is float16 or bfloat16, got {half}")
    values = {p: p.data for p in model.parameters() if p.dtype == np.float32}
    for p, value in values.items():
        replace_data(p, value.to(half))
        p.grad = None
    return values


def check_half(p: Tensor, dtype: np.dtype | None = None) -> None:
    """Raises ValueError unless a parameter is float16 or bfloat16, and of this dtype if one is given."""
    if not is_half(p.dtype) or dtype not in (None, p.dtype):
        raise ValueError(
            f"mixed precision needs {dtype or 'float16 or bfloat16'} parameters, got one of {p.dtype} and "
            f"shape {tuple(p.shape)}; half_parameters(model) makes them so"
        )


def cast_around(model: Module, dtype: np.dtype) -> list[RemovableHandle]:
    """Casts the model's inputs to half precision, and its outputs to float32.

    Returns:
        The handles of the hooks.
    """
    return [
        model.register_forward_pre_hook(partial(_downcast_inputs, dtype), with_kwargs=True),
        model.register_forward_hook(_upcast_outputs),
    ]


def _downcast_inputs(dtype: np.dtype, module: Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    return floats_to(args, dtype), floats_to(kwargs, dtype)


def _upcast_outputs(module: Module, args: tuple, result: object) -> Any:
    return floats_to(result, float32)


def floats_to(value: object, dtype: np.dtype) -> Any:
    """Returns nested dicts, lists and tuples with the real floating-point tensors in them cast to `dtype`."""
    if isinstance(value, Tensor):
        return value.to(dtype) if is_floating_point(value.dtype) and value.dtype != dtype else value
    if isinstance(value, dict):
        return type(value)({key: floats_to(item, dtype) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(floats_to(item, dtype) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(floats_to(item, dtype) for item in value)
    return value
