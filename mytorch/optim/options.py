"""Options of optimizers: what is the same about their checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.device import CPU
from ..core.array import Array
from ..core.tensor import Tensor, raw_of


def as_number(value: Any) -> Any:
    """An option as a Python number, so that it can't change the dtype of an update; also inside a tuple."""
    if isinstance(value, tuple):
        return tuple([as_number(v) for v in value])
    return value.item() if isinstance(value, (Tensor, Array, np.generic)) else value


def as_numbers(group: dict[str, Any], lr_stays: bool = False) -> dict[str, Any]:
    """All options of a group as Python numbers.

    Args:
        lr_stays: a learning rate that is on a GPU stays there, as a vector of one float32.
    """
    options = {name: value for name, value in group.items() if name != "params"}
    lr = options.get("lr")
    if lr_stays and isinstance(lr, Tensor) and lr.device is not CPU:
        options["lr"] = raw_of(lr).astype(np.float32, copy=False).reshape(1)
    return {name: as_number(value) for name, value in options.items()}


def check_not_negative(what: str, value: Any) -> None:
    if not as_number(value) >= 0:  # so NaN fails, too
        raise ValueError(f"Invalid {what}: {as_number(value)}")


def check_lr(lr: Any, foreach: bool | None = None, capturable: bool = False) -> None:
    """Raise ValueError unless `lr` is one number, or tensor of one, and not negative."""
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, got shape {tuple(lr.shape)}")
        if foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
    check_not_negative("learning rate", lr)


def check_betas(betas: Any, foreach: bool | None = None, capturable: bool = False) -> None:
    """Raise ValueError unless these are two numbers, or two tensors of one, both in [0, 1)."""
    tensors = [isinstance(beta, Tensor) for beta in betas]
    if len(set(tensors)) > 1:
        raise ValueError("betas must be either both floats or both Tensors, got one of each")
    for i, beta in enumerate(betas):
        if tensors[i] and beta.numel() != 1:
            raise ValueError(f"Tensor betas[{i}] must be 1-element, got shape {tuple(beta.shape)}")
        if tensors[i] and foreach and not capturable:
            raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
        if not 0 <= as_number(beta) < 1:
            raise ValueError(f"Invalid beta parameter at index {i}: {as_number(beta)}")
