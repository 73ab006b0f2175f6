"""
Composites: functions with one meaning and several implementations.

The decorated function is the *reference*: plain Tensor code, differentiated by the engine, and the definition
of what is right. Faster variants are registered on it. Each takes the reference's arguments, all by position,
under the contract of an op: raw arrays in, `(result, vjp)` out.

    @composite
    def silu(input, inplace=False):
        return input * sigmoid(input)

    @silu.manual             # the backward derived by hand, in NumPy calls: the default, on every device
    def _silu(x, inplace): ...

    @silu.fused("cpu")       # a kernel for one kind of device
    def _silu_cpu(x, inplace): ...

    silu(x)                  # the kernel if there is one and `use_fused` allows it, else by hand
    silu(x, auto=True)       # the reference
    silu(x, fused=True)      # the kernel, or an error; fused=False: not the kernel
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

from ...backends.dtypes import is_half
from ...core.op import op
from ...core.tensor import Tensor
from ...core.upcast import downcast, in_float32, upcast
from ...ops.inplace import inplace

REGISTRY: dict[str, Composite] = {}


class Unsupported(Exception):
    """A variant raises this, before it does any work, for arguments that it can't take; it says for which."""


class Composite:
    """A function with a reference and faster variants; made by `@composite`.

    Attributes:
        reference: the decorated function.
        by_hand: the hand-derived variant, an op; None if the reference's own ops are as good.
        kernels: the fused variants, ops, by kind of device ("cpu", "cuda"), as far as they are loaded.
        suppliers: what loads the others, by kind of device (see `fused_ops.registry`).
        outputs: the result is a tuple of tensors.
        checker: looks at the arguments before any variant gets them (see `check`).
    """

    def __init__(self, reference: Callable, outputs: bool = False):
        functools.update_wrapper(self, reference)
        self.reference, self.outputs = reference, outputs
        self.by_hand: Callable | None = None
        self.kernels: dict[str, Callable] = {}
        self.suppliers: dict[str, Callable[[], None]] = {}
        self.checker: Callable | None = None
        self.signature = inspect.signature(reference)
        self._names = tuple(self.signature.parameters)
        self._defaults = {
            n: p.default for n, p in self.signature.parameters.items() if p.default is not p.empty
        }
        self._inplace = self._names.index("inplace") if "inplace" in self._names else None
        self._tensors = tuple(
            (i, name, p.annotation)
            for i, (name, p) in enumerate(self.signature.parameters.items())
            if p.annotation in ("Tensor", "Tensor | None")
        )
        REGISTRY[self.__name__] = self

    def check(self, checker: Callable) -> Callable:
        """Register what runs first, on the Tensors, for all variants: it raises the errors of a wrong call.

        It returns None, or the arguments that the variants are to get, or a Tensor: then this is the result.
        """
        self.checker = checker
        return checker

    def manual(self, forward: Callable | None = None, *, half: bool = False) -> Callable:
        """Register the hand-derived variant; it may raise `Unsupported`.

        Args:
            half: it handles half precision itself; without it, it is called with float32 instead.
        """
        if forward is None:
            return functools.partial(self.manual, half=half)
        self.by_hand = self._op(forward if half else _in_single(forward))
        return forward

    def fused(self, kind: str) -> Callable:
        """Register the kernel for a kind of device, "cpu" or "cuda"; it may raise `Unsupported`.

        A kernel for the CPU is called with float32 instead of half precision.
        """
        if kind not in ("cpu", "cuda"):
            raise ValueError(f"a kernel is for 'cpu' or 'cuda', got {kind!r}")

        def register(forward: Callable) -> Callable:
            variant = self._op(_in_single(forward) if kind == "cpu" else forward)
            variant.is_kernel = True  # its vjp knows raw arrays only
            self.kernels[kind] = variant
            return forward

        return register

    def kernel(self, kind: str) -> Callable:
        """The fused variant for a kind of device, loaded now if it wasn't; `Unsupported` if there is none."""
        found = self.kernels.get(kind)
        if found is None:
            if kind not in self.suppliers:
                raise Unsupported(f"there is no fused kernel for {kind}")
            self.suppliers[kind]()
            found = self.kernels[kind]
        return found

    def _op(self, forward: Callable) -> Callable:
        variant = op(forward, outputs=self.outputs, half=True)
        variant.__name__ = variant.__qualname__ = self.__name__  # for errors, and for who looks at the graph
        variant.reference = lambda *args: _reference_in_single(self.reference, args)
        return variant

    def __call__(self, *args: Any, auto: bool = False, fused: bool | None = None, **kwargs: Any) -> Tensor:
        if kwargs or len(args) != len(self._names):
            args = self._bind(args, kwargs)
        for i, name, kind in self._tensors:
            if not isinstance(args[i], Tensor) and (args[i] is not None or kind == "Tensor"):
                raise TypeError(f"{self.__name__}(): {name} must be a {kind}, got {type(args[i]).__name__}")
        if self.checker is not None:
            answer = self.checker(*args)
            if answer is not None:
                if isinstance(answer, Tensor):
                    return answer
                args = answer
        if self._inplace is not None and args[self._inplace]:
            return inplace(lambda *args: self._run(args, auto, fused), self.__name__)(*args)
        return self._run(args, auto, fused)

    def _run(self, args: tuple, auto: bool, fused: bool | None) -> Tensor:
        if auto:
            if fused:
                raise ValueError(
                    f"{self.__name__}(): auto=True runs the reference, fused=True the kernel: choose one"
                )
            return _reference_in_single(self.reference, args)
        if fused or (fused is None and use_fused.default and (self.kernels or self.suppliers)):
            for first in args:
                if isinstance(first, Tensor):
                    break
            kind = first.device.type
            try:
                kernel = self.kernels.get(kind) or self.kernel(kind)
                return kernel(*args)
            except Unsupported as reason:
                if fused:
                    raise RuntimeError(f"{self.__name__}(): fused=True, but {reason}") from None
        if self.by_hand is not None:
            try:
                return self.by_hand(*args)
            except Unsupported:
                pass
        return _reference_in_single(self.reference, args)

    def _bind(self, args: tuple, kwargs: dict) -> tuple:
        """All arguments by position, with the defaults."""
        bound, defaults = [*args], self._defaults
        taken = 0
        for name in self._names[len(args) :]:
            if name in kwargs:
                bound.append(kwargs[name])
                taken += 1
            elif name in defaults:
                bound.append(defaults[name])
        if taken != len(kwargs) or len(bound) != len(self._names):
            try:
                self.signature.bind(*args, **kwargs)  # says what is wrong
            except TypeError as error:
                raise TypeError(f"{self.__name__}(): {error}") from None
        return tuple(bound)

    def __repr__(self) -> str:
        return f"<composite {self.__name__}>"

    def __reduce__(self) -> str:
        return self.__name__  # there is one of it: copies and pickles refer to it by name


def composite(reference: Callable | None = None, *, outputs: bool = False) -> Any:
    """Make a `Composite` of its reference.

    Args:
        outputs: it returns a tuple of tensors; its variants then return a tuple of arrays, and their vjp gets
            a list with a gradient or None for each.
    """
    if reference is None:
        return functools.partial(composite, outputs=outputs)
    return Composite(reference, outputs)


def _in_single(forward: Callable) -> Callable:
    """Let `forward` compute in float32 where it is given half precision."""

    @functools.wraps(forward)
    def call(*args):
        half = _half(args)
        if half is None:
            return forward(*args)
        result, vjp = in_float32(forward, args, {})
        return downcast(result, half), vjp

    return call


def _reference_in_single(reference: Callable, args: tuple) -> Any:
    half = _half(args)
    return reference(*args) if half is None else downcast(reference(*map(upcast, args)), half)


def _half(args: tuple) -> Any:
    """The first dtype of half precision among the arrays or Tensors; None if there is none."""
    for a in args:
        dtype = getattr(a, "dtype", None)
        if dtype is not None and is_half(dtype):
            return dtype
    return None


class use_fused:  # noqa: N801 - used like a function
    """Use fused kernels wherever there are some, or never: from now on as a plain call, inside as a context.

    It holds for the whole process, for calls that don't say `fused=`. The environment variable USE_FUSED_OPS
    (0 or 1) sets it from the start; without it kernels are used.

    Args:
        mode: True to use them.
    """

    default: bool

    def __init__(self, mode: bool = True):
        if not isinstance(mode, bool):
            raise TypeError(f"use_fused(): expected True or False, got {mode!r}")
        self.before, use_fused.default = use_fused.default, mode

    def __enter__(self) -> use_fused:
        return self

    def __exit__(self, *exception: Any) -> None:
        use_fused.default = self.before


def _from_environment() -> bool:
    value = os.environ.get("USE_FUSED_OPS", "1")
    if value not in ("0", "1"):
        raise ValueError(f"the environment variable USE_FUSED_OPS is 0 or 1, got {value!r}")
    return value == "1"


use_fused.default = _from_environment()
