"""Checks `host` instructions that come from a file: see `host`, and `objects` for what they refer to."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.meta.array import MetaArray, new
from ...backends.meta.random import MetaRandom
from ...core.tensor import Tensor
from ...optim import Optimizer
from ...random import Generator
from ...utils.nested import mapped
from ..program.instruction import Reference, Value
from ..program.kernels import MetaDraw


class HostChecker:
    """Runs `host` instructions on meta arrays; what they refer to isn't touched.

    Args:
        state: the values of the tensors that they refer to.
        array: returns the meta array of a value.

    Its methods raise ValueError, or whatever Python raises for wrong arguments.
    """

    def __init__(self, state: dict[Tensor, Value], array: Callable[[object], Any]):
        self._state, self._array = state, array
        self._grads: dict[Tensor, Value] = {}  # by now

    def written_by(self, name: str, args: tuple) -> tuple[Value, ...]:
        """Returns the storages in which a call changes elements: parameters, and gradients that are known."""
        params: list[Tensor] = []
        target = args[0].target if args and isinstance(args[0], Reference) else None
        owner = getattr(target, "__self__", target)
        if isinstance(owner, Optimizer):
            params = [p for group in owner.param_groups for p in group["params"]]
        elif isinstance(target, functools.partial):
            params = target.args[0]
        values = [self._state[p] for p in params] if name == "host.step" else []
        return (*values, *[self._grads[p] for p in params if p in self._grads])

    def run(self, name: str, args: tuple, outputs: tuple[Value, ...]) -> list[Any]:
        """Returns the arrays that a call gives; for what is no array something that stands for it."""
        return getattr(self, name.removeprefix("host."))(*args, outputs=outputs)

    def grad(self, of: Reference, *, outputs: tuple[Value, ...]) -> list[MetaArray]:
        (self._grads[of.target],) = outputs
        return [_like(self._state[of.target])]

    def set_grad(self, of: Reference, grad: Value | None, *, outputs: tuple[Value, ...]) -> list[MetaArray]:
        x = self._array(self._state[of.target])
        self._grads.pop(of.target, None)
        if grad is None:
            return []
        if not of.target.requires_grad:
            raise ValueError(f"{self._state[of.target].described()} doesn't require gradients")
        (self._grads[of.target],) = outputs
        if (self._array(grad).shape, self._array(grad).dtype) != (x.shape, x.dtype):
            raise ValueError(f"the gradient {grad.described()} of a tensor of shape {x.shape}")
        return [_like(self._state[of.target])]

    def step(self, of: Reference, *, outputs: tuple[Value, ...]) -> list[MetaArray]:
        if not isinstance(of.target, Optimizer):
            raise ValueError(f"there is no step of a {type(of.target).__name__}")
        return []

    def call(
        self, of: Reference, args: tuple, kwargs: dict, *, outputs: tuple[Value, ...]
    ) -> list[MetaArray]:
        given = inspect.signature(of.target).bind(*args, **kwargs).arguments.values()
        if not all([x is None or isinstance(x, (bool, int, float)) for x in given]):
            raise ValueError(f"the arguments are {args}, {kwargs}")
        return []

    def norm(self, of: Reference, args: tuple, *, outputs: tuple[Value, ...]) -> list[MetaArray]:
        bound = inspect.signature(of.target).bind(*args).arguments
        if not {"max_norm"} <= bound.keys() or not all([isinstance(x, (bool, int, float)) for x in args]):
            raise ValueError(f"the arguments are {args}")
        dtypes = {value.dtype for value in self.written_by("host.norm", (of,))}
        return [new((), np.result_type(np.float32, *dtypes))]

    def expect(self, x: Value, answer: bool | int, *, outputs: tuple[Value, ...]) -> list[MetaArray]:
        if self._array(x).size != 1 or not isinstance(answer, (bool, int)):
            raise ValueError(f"{x.described()} is no element, or {answer!r} none that is expected")
        return []

    def draw(self, *, outputs: tuple[Value, ...]) -> list[MetaDraw]:
        return [MetaDraw()]

    def kept(self, draw: Value, x: Value, p: float, *, outputs: tuple[Value, ...]) -> list[MetaArray]:
        if not 0 <= p <= 1:
            raise ValueError(f"p is {p}")
        return [self._array(draw).mask(self._array(x), p)]

    def random(
        self, of: Reference | None, name: str, args: tuple, kwargs: dict, *, outputs: tuple[Value, ...]
    ) -> list[MetaArray]:
        if name.startswith("_") or not (of is None or isinstance(of.target, Generator)):
            raise ValueError(f"there is no {name!r} of {of}")
        args, kwargs = mapped(self._array, args), mapped(self._array, kwargs)
        return [getattr(MetaRandom(), name)(*args, **kwargs)]


def _like(value: Value) -> MetaArray:
    return new(value.shape, value.dtype)
