"""
The arguments `auto` and `fused` of every layer. They choose the variant of each composite that its `forward`
calls (see `functional.composite`), also within the layers that it contains, unless these make another choice.

    nn.LayerNorm(256)              # the kernel if one exists, else the manual backward
    nn.LayerNorm(256, auto=True)   # the reference, differentiated by autograd
    nn.LayerNorm(256, fused=True)  # the kernel, or an error; fused=False: not the kernel

Both are attributes, too, which can be changed: `layer.auto = True`. A layer without a choice is called as if
this file didn't exist.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ..functional.variant import choosing, thread
from ..module import Module


class _Option:
    """The attribute `auto` or `fused` of a layer."""

    def __init__(self, name: str, default: bool | None, annotation: str):
        self.name, self.default = name, default
        self.parameter = inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )

    def __get__(self, layer: Module | None, owner: type) -> bool | None:
        return self.default if layer is None else layer.__dict__.get(self.name, self.default)

    def __set__(self, layer: Module, value: bool | None) -> None:
        kind, before = type(layer).__name__, layer.__dict__.get(self.name, self.default)
        if value is not True and value is not False and value is not self.default:
            raise TypeError(f"{kind}: {self.name} must be a {self.parameter.annotation}, got {value!r}")
        layer.__dict__[self.name] = value
        if layer.auto and layer.fused:
            layer.__dict__[self.name] = before
            raise ValueError(f"{kind}: auto=True runs the reference, fused=True the kernel: choose one")
        chosen = layer.auto or layer.fused is not None
        if chosen or layer._hooks is not None:
            layer._with_hooks().around = _forward if chosen else None


_OPTIONS = _Option("auto", False, "bool"), _Option("fused", None, "bool | None")


def _forward(layer: Module, args: tuple, kwargs: dict) -> Any:
    """Returns layer.forward(*args, **kwargs), computed by the variants that the layer chose."""
    ran_before, thread.kernel_ran = thread.kernel_ran, False
    try:
        with choosing(layer.auto, layer.fused):
            result = layer.forward(*args, **kwargs)
        if layer.fused and not thread.kernel_ran and all(result is not x for x in (*args, *kwargs.values())):
            raise RuntimeError(f"{type(layer).__name__}: fused=True, but it has no fused kernel")
    finally:
        thread.kernel_ran |= ran_before
    return result


def with_variants(layer: type[Module]) -> type[Module]:
    """Adds the keyword arguments `auto` and `fused` to a class of layers; a decorator."""
    init = layer.__init__
    signature = inspect.signature(init)
    if "fused" in signature.parameters:  # inherited from a class that has them
        return layer

    @functools.wraps(init)
    def __init__(self: Module, *args, auto: bool = False, fused: bool | None = None, **kwargs):
        init(self, *args, **kwargs)
        if auto is not False:
            self.auto = auto
        if fused is not None:
            self.fused = fused

    parameters = list(signature.parameters.values())
    end = len(parameters) - (parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
    parameters[end:end] = [option.parameter for option in _OPTIONS]
    __init__.__signature__ = signature.replace(parameters=parameters)
    layer.__init__ = __init__
    for option in _OPTIONS:
        setattr(layer, option.name, option)
    return layer
