"""Options of optimizers: the table of their valid ranges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from .update import as_number


def _is_not_negative(x: float) -> bool:
    return x >= 0  # False for NaN


# option: (whether a number is valid, the message of the ValueError)
RANGES: dict[str, tuple[Callable[..., bool], str]] = {
    "lr": (_is_not_negative, "Invalid learning rate: {}"),
    "eps": (_is_not_negative, "Invalid epsilon value: {}"),
    "rho": (lambda x: 0 <= x <= 1, "Invalid rho value: {}"),
    "etas": (lambda x: 0 < x[0] < 1 < x[1], "Invalid eta values: {0[0]}, {0[1]}"),
    **{
        name: (_is_not_negative, f"Invalid {name} value: {{}}")
        for name in (
            "alpha", "initial_accumulator_value", "lr_decay", "momentum", "momentum_decay", "weight_decay",
        )
    },
}


def checked_options(arguments: dict[str, object], unchecked: Collection[str] = ()) -> dict[str, Any]:
    """Returns the options among the arguments of an optimizer's `__init__`, its `locals()`.

    Args:
        unchecked: options that may be outside the ranges in the table, as in PyTorch.

    Raises:
        ValueError: an option is outside its range, or a tensor of more than one element.
    """
    options = {k: v for k, v in arguments.items() if k not in ("self", "params", "__class__")}
    for name, value in options.items():
        if name == "betas":
            _check_betas(value)
        elif name in RANGES and name not in unchecked:
            is_valid, message = RANGES[name]
            if isinstance(value, Tensor):
                _check_one_element(name, value)
            if not is_valid(as_number(value)):
                raise ValueError(message.format(as_number(value)))
    return options


def check_kind(name: str, ours: object, loaded: object) -> None:
    """Raises ValueError if a loaded value takes the place of a number, and isn't one; also in lists."""
    if _is_number(ours) and not _is_number(loaded):
        raise ValueError(f"{name} must be a number, got {loaded!r}")
    if isinstance(ours, (list, tuple)):
        if not isinstance(loaded, (list, tuple)):
            raise ValueError(f"{name} must be a list, got {loaded!r}")
        for i, (x, y) in enumerate(zip(ours, loaded, strict=False)):  # what they are of checks the lengths
            check_kind(f"{name}[{i}]", x, y)


def _is_number(x: object) -> bool:
    return isinstance(x, (int, float, np.number, Tensor)) and not isinstance(x, bool)


def _check_betas(betas: Sequence[float | Tensor]) -> None:
    if len({isinstance(beta, Tensor) for beta in betas}) > 1:
        raise ValueError("betas must be either both floats or both Tensors, got one of each")
    for i, beta in enumerate(betas):
        if isinstance(beta, Tensor):
            _check_one_element(f"betas[{i}]", beta)
        if not 0 <= as_number(beta) < 1:
            raise ValueError(f"Invalid beta parameter at index {i}: {as_number(beta)}")


def _check_one_element(name: str, value: Tensor) -> None:
    if value.numel() != 1:
        raise ValueError(f"Tensor {name} must be 1-element, got shape {tuple(value.shape)}")


def check_not_tensors(options: dict[str, object]) -> None:
    """Raises ValueError if an option is a Tensor, which PyTorch refuses for foreach without capturable."""
    for name, value in options.items():
        if isinstance(value, Tensor):
            raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
