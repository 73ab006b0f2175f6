"""
Composites: functions with one meaning and several implementations.

The decorated function is the *reference*: Tensor code, differentiated by the engine, that defines the result.
Faster variants are registered on it. Each takes the reference's arguments, all by position, and is an op: raw
arrays in, `(result, vjp)` out.

    @composite
    def silu(input, inplace=False):
        return input * sigmoid(input)

    @silu.manual             # a manual backward, in NumPy calls: the default, on every device
    def _silu(x, inplace): ...

    @silu.fused("cpu")       # a kernel for one kind of device
    def _silu_cpu(x, inplace): ...

    silu(x)                  # the kernel if one exists and `use_fused` allows it, else the manual variant
    silu(x, auto=True)       # the reference
    silu(x, fused=True)      # the kernel, or an error; fused=False: not the kernel

`variant()` says what runs where a call says neither (see `variant`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.device import device_of
from ...backends.door import forces, in_force, stand_in
from ...backends.dtypes import is_floating_point, is_half
from ...core.array import Array
from ...core.grad_mode import _state
from ...core.op import op
from ...core.overriding import overriding
from ...core.tensor import Tensor, raw_of
from ...core.upcast import downcast, in_float32, upcast
from ...ops.arrays import as_tensors
from ...ops.inplace import inplace
from .variant import thread, variant

REGISTRY: dict[str, Composite] = {}
Result = Tensor | tuple[Tensor, ...]


class Unsupported(Exception):
    """Raised by a variant, before it computes anything, for arguments that it does not support."""


class Composite:
    """A function with a reference and faster variants; made by `@composite`.

    Attributes:
        reference: the decorated function.
        manual_variant: the op with a manual backward; None if the reference's ops are as good.
        kernels: the loaded fused variants, ops, by kind of device ("cpu", "cuda").
        suppliers: functions that load the others, by kind of device (see `fused_ops.registry`).
        outputs: whether the result is a tuple of tensors.
        order: puts the reference's result into the memory order that the variants give; None if it is in it.
        checker: called with the arguments before any variant (see `check`).
        autocast: casts the arguments within `amp.autocast`; set when `amp` is imported.
    """

    def __init__(self, reference: Callable, outputs: bool = False, order: Callable | None = None):
        functools.update_wrapper(self, reference)
        self.reference, self.outputs, self.order = reference, outputs, order
        self.manual_variant: Callable | None = None
        self.kernels: dict[str, Callable] = {}
        self.suppliers: dict[str, Callable[..., None]] = {}
        self.checker: Callable | None = None
        self.autocast: Callable | None = None
        self.signature = inspect.signature(reference)
        parameters = self.signature.parameters
        self._names = tuple(parameters)
        self._count = len(self._names)  # arguments by position that are those of the reference
        self._modern: Callable | None = None
        self._defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
        self._dtype = self._names.index("dtype") if "dtype" in self._names else None
        self._inplace = self._names.index("inplace") if "inplace" in self._names else None
        self._tensors = tuple(
            (i, name, p.annotation)
            for i, (name, p) in enumerate(parameters.items())
            if p.annotation in ("Tensor", "Tensor | None")
        )
        REGISTRY[self.__name__] = self

    def check(self, checker: Callable) -> Callable:
        """Registers the function that raises the errors of a wrong call, on Tensors, before all variants.

        It returns None, or the arguments for the variants, or a Tensor, which is then the result.
        """
        self.checker = checker
        return checker

    def accept(self, modern: Callable, signature: inspect.Signature) -> Composite:
        """Lets calls have another signature: `modern(args, kwargs)` returns the reference's arguments."""
        self._modern, self._count, self.__signature__ = modern, -1, signature
        return self

    def manual(self, forward: Callable | None = None, *, half: bool = False) -> Callable:
        """Registers the variant with a manual backward; it may raise `Unsupported`.

        Args:
            half: it takes half precision as it is; without it, it is called with float32 instead.
        """
        if forward is None:
            return functools.partial(self.manual, half=half)
        self.manual_variant = self._op(forward, half)
        return forward

    def fused(self, kind: str) -> Callable:
        """Registers the kernel for a kind of device, "cpu" or "cuda"; it may raise `Unsupported`.

        A kernel for the CPU is called with float32 instead of half precision.
        """
        if kind not in ("cpu", "cuda"):
            raise ValueError(f"a kernel is for 'cpu' or 'cuda', got {kind!r}")

        def register(forward: Callable) -> Callable:
            variant = self._op(forward, half=kind == "cuda")
            variant.is_kernel = True  # its vjp takes raw arrays only
            self.kernels[kind] = variant
            return forward

        return register

    def kernel(self, kind: str, demanded: bool = False) -> Callable:
        """Returns the fused variant for a kind of device, loading it if necessary.

        Args:
            demanded: wait until it is compiled.

        Raises:
            Unsupported: no such kernel.
        """
        found = self.kernels.get(kind)
        if found is None:
            if kind not in self.suppliers:
                raise Unsupported(f"there is no fused kernel for {kind}")
            self.suppliers[kind](demanded=demanded)
            found = self.kernels[kind]
        return found

    def _op(self, forward: Callable, half: bool) -> Callable:
        variant = op(forward if half else self._in_float32(forward), outputs=self.outputs, half=True)
        variant.__name__ = variant.__qualname__ = self.__name__  # for errors and for names in the graph
        variant.reference = self.run_reference
        return variant

    def __call__(self, *args: Any, auto: bool = False, fused: bool | None = None, **kwargs: Any) -> Result:
        if overriding:
            named = kwargs if not auto and fused is None else {**kwargs, "auto": auto, "fused": fused}
            if (answer := overriding.dispatch(self, args, named)) is not NotImplemented:
                return answer
        if kwargs or len(args) != self._count:
            args = self._bind(args, kwargs)
        if fused is None and not auto:
            auto, fused = variant()
        for i, name, kind in self._tensors:
            if isinstance(args[i], Tensor):
                continue
            if isinstance(args[i], Array):
                args = (*args[:i], as_tensors(args[i]), *args[i + 1 :])
            elif args[i] is not None or kind == "Tensor":
                error = f"{self.__name__}(): {name} must be a {kind}, got {type(args[i]).__name__}"
                return overriding.refused(self, self._given(args), {}, TypeError(error))
        if self.autocast is not None and _state.autocast is not None:
            args = tuple(self.autocast(args))
        if self.checker is not None:
            answer = self.checker(*args)
            if answer is not None:
                if isinstance(answer, Tensor):
                    return answer
                args = answer
        if self._inplace is not None and args[self._inplace]:
            return inplace(lambda *args: self._run(args, auto, fused), self.__name__)(*args)
        return self._run(args, auto, fused)

    def _run(self, args: tuple, auto: bool, fused: bool | None) -> Result:
        if auto:
            if fused:
                raise ValueError(
                    f"{self.__name__}(): auto=True runs the reference, fused=True the kernel: choose one"
                )
            return self.run_reference(*args)
        if forces and not fused and (result := in_force().composite(self, args, fused is None)) is not None:
            return result
        if fused or (fused is None and (self.kernels or self.suppliers)):
            for first in args:
                if isinstance(first, Tensor):
                    break
            target = device_of(raw_of(first))
            kind = (stand_in(target) if forces else target).kernels
            try:
                # A call in a checkpoint, which is made again, waits for its kernel: the manual variant draws
                # other numbers.
                kernel = self.kernels.get(kind) or self.kernel(kind, bool(fused) or _state.tape is not None)
                result = kernel(*args)
                if fused:
                    thread.kernel_ran = True
                return result
            except Unsupported as reason:
                if fused:
                    raise RuntimeError(f"{self.__name__}(): fused=True, but {reason}") from None
        if self.manual_variant is not None:
            try:
                return self.manual_variant(*args)
            except Unsupported:
                pass
        return self.run_reference(*args)

    # The rule for half precision: unless a variant takes it, arguments are upcast to float32 and the results
    # are rounded once to the half dtype, or to `dtype`; also where parameters are float32, unlike in ops.

    def run_reference(self, *args: object) -> Result:
        half = self._half_dtype(args)
        result = self.reference(*(args if half is None else map(upcast, args)))
        result = result if half is None else downcast(result, half)
        return result if self.order is None else self.order(result)

    def _in_float32(self, forward: Callable) -> Callable:
        @functools.wraps(forward)
        def call(*args):
            half = self._half_dtype(args)
            if half is None:
                return forward(*args)
            result, vjp = in_float32(forward, args, {})
            return downcast(result, half), vjp

        return call

    def _half_dtype(self, args: tuple) -> np.dtype | None:
        """Returns the first dtype of half precision among the arguments, or `dtype` in its place; or None."""
        for a in args:
            dtype = getattr(a, "dtype", None)
            if dtype is not None and dtype.itemsize == 2 and is_half(dtype):
                wanted = None if self._dtype is None else args[self._dtype]
                return dtype if wanted is None else wanted
        return None

    def _bind(self, args: tuple, kwargs: dict[str, object]) -> tuple:
        """Returns all arguments by position, with the defaults."""
        if self._modern is not None:
            args, kwargs = self._modern(args, kwargs)
        bound, defaults, used = [*args], self._defaults, 0
        for name in self._names[len(args) :]:
            if name in kwargs:
                bound.append(kwargs[name])
                used += 1
            elif name in defaults:
                bound.append(defaults[name])
        if used != len(kwargs) or len(bound) != len(self._names):
            try:
                self.signature.bind(*args, **kwargs)  # raises with the reason
            except TypeError as error:
                raise TypeError(f"{self.__name__}(): {error}") from None
        return tuple(bound)

    def _given(self, args: tuple) -> tuple:
        """Returns the bound arguments without the defaults at the end."""
        while self._defaults.get(self._names[len(args) - 1], self) is args[-1]:
            args = args[:-1]
        return args

    def __repr__(self) -> str:
        return f"<composite {self.__name__}>"

    def __reduce__(self) -> str:
        return self.__name__  # copies and pickles refer to the one instance by name


def composite(
    reference: Callable | None = None, *, outputs: bool = False, order: Callable | None = None
) -> Callable:
    """Makes a `Composite` of its reference.

    Args:
        outputs: it returns a tuple of tensors; its variants then return a tuple of arrays, and their vjp gets
            a list with a gradient or None for each.
        order: puts the reference's result into the memory order that the variants give: a
            program made of the reference has their strides, then.
    """
    if reference is None:
        return functools.partial(composite, outputs=outputs, order=order)
    return Composite(reference, outputs, order)


def require_float(dtype: np.dtype, name: str) -> None:
    """Raises NotImplementedError unless the dtype is floating-point."""
    if dtype.kind != "f" and not is_floating_point(dtype):
        raise NotImplementedError(
            f"{name}(): not implemented for dtype {dtype}, only for floating-point tensors"
        )


def floats_only(function: Composite) -> None:
    """Registers a checker that raises unless the input is floating-point."""

    @function.check
    def check(input, *args):
        require_float(input.dtype, function.__name__)
