"""What `host` instructions call when a program runs, by their names: see `host`."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from ...backends.device import CPU, RawArray, as_device
from ...core.array import Array
from ...core.grad_accumulator import GradAccumulator, LazyGrad
from ...core.op import as_raw
from ...core.tensor import Tensor, raw_of
from ...nn.functional.dropout import Draw
from ...optim.optimizer import Optimizer
from ...random import Generator, default_generator
from ..tracing.number import COMPARISONS, OPERATIONS


class Mismatch(Exception):
    """Raised by a program that asks for an element, where the element is another than in its capture."""


def _grad(owner: Tensor) -> RawArray:
    if owner._grad is None:
        raise RuntimeError("a program that was captured with a .grad found None")
    return owner._grad._array


def _set_grad(owner: Tensor, grad: RawArray | LazyGrad | None) -> RawArray | None:
    """Sets `.grad`: computed into its section of a flat buffer, if it has one, or copied."""
    slot, before = owner.grad_slot, owner._grad
    if before is not None and slot is not None and before._array is slot.raw and type(grad) is np.ndarray:
        owner._grad = None
        if getrefcount(before) == _ONE_REFERENCE and not owner._post_hooks:  # else it is needed
            slot.raw[...] = grad
            owner._grad = before
            return slot.raw
    owner._grad = before = None  # a gradient that is still referenced would be copied
    return None if grad is None else _add_grad(owner, grad)


def _add_grad(owner: Tensor, grad: RawArray | LazyGrad) -> RawArray:
    """Adds to `.grad` as the engine does."""
    accumulator = GradAccumulator()
    if type(grad) is LazyGrad:
        out, beta = accumulator.destination(owner.node)
        out = np.empty(grad.shape, grad.like.dtype, like=grad.like) if out is None else out
        grad.compute(out, beta)
        accumulator.store(owner.node, out, True)
    else:
        accumulator.store(owner.node, grad, False)
    return owner._grad._array


def _new_grad(owner: Tensor) -> RawArray:
    """Returns memory for a gradient that nothing is added to: that in a flat buffer, or new."""
    owner._grad = None
    out, _ = _accumulator.destination(owner.node)
    return np.empty(owner._data._array.shape, owner._data._array.dtype) if out is None else out


def _stored(owner: Tensor, grad: RawArray) -> RawArray:
    """Makes memory of `_grad` or `_new_grad`, in which a gradient has been computed, the `.grad`."""
    _accumulator.store(owner.node, grad, True)
    return owner._grad._array


_accumulator = GradAccumulator()


def _references() -> int:
    x = Array(np.empty(0))
    return getrefcount(x)


_ONE_REFERENCE = _references()  # what `getrefcount` returns for an object that only a variable refers to


def _step(optimizer: Optimizer) -> None:
    optimizer.step()


def _norm(function: Callable, args: tuple) -> RawArray:
    return raw_of(function(*args))


def _call(method: Callable, args: tuple, kwargs: dict) -> None:
    method(*args, **kwargs)


def _expect(x: RawArray, answer: bool | int) -> None:
    if x.item() != answer:
        raise Mismatch(f"an element that it asks for is {x.item()}, was {answer}")


def _number(name: str, *args: Any) -> Any:
    return OPERATIONS[name](*args)


def _outcome(answer: bool, name: str, *args: Any) -> None:
    """Raises Mismatch if a comparison of numbers has another outcome than in the capture."""
    if OPERATIONS[name](*args) != answer:
        if name == "is_a":
            raise Mismatch(f"a number is of type {type(args[0]).__name__}, was of type {args[1]}")
        symbol = COMPARISONS.get(name)
        text = f"{args[0]!r} {symbol} {args[1]!r}" if symbol else f"{name}({', '.join(map(repr, args))})"
        raise Mismatch(f"{text} is {not answer}, was {answer}")


def _draw(where: str | None = None) -> Draw:
    return Draw(CPU if where is None else as_device(where))


def _mask(draw: Draw, x: RawArray, p: float) -> RawArray:
    return draw.mask(x, p)


def _random(generator: Generator | str | None, name: str, args: tuple, kwargs: dict) -> RawArray:
    """Draws by a generator, or by the default one of a device."""
    drawn = generator if isinstance(generator, Generator) else default_generator(generator)
    return as_raw(getattr(drawn.rng, name)(*args, **kwargs))


HOST = {
    "grad": _grad, "set_grad": _set_grad, "add_grad": _add_grad, "new_grad": _new_grad, "stored": _stored,
    "step": _step, "call": _call, "norm": _norm, "expect": _expect, "draw": _draw, "kept": _mask,
    "random": _random, "number": _number, "outcome": _outcome,
}
