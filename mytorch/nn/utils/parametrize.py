"""Parametrizations: a parameter that is a function of the trained one.

    register_parametrization(layer, "weight", Symmetric())   # a module: forward(original) -> weight
    layer.weight                                             # is computed at each access
    layer.parametrizations.weight.original                   # is what an optimizer updates
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np

from ...autograd import no_grad
from ...core.tensor import Tensor
from ...ops.inplace import write
from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter, replace_data

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "type_before_parametrizations",
]

_cache: dict[tuple[int, str], Tensor] | None = None  # within `cached`
_depth = 0


@contextmanager
def cached() -> Iterator[None]:
    """Within the block each parametrized tensor is computed once."""
    global _cache, _depth
    _depth += 1
    _cache = {} if _cache is None else _cache
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            _cache = None


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, in the order of their calls, and what they compute it from.

    Args:
        modules: at least one; `right_inverse` of a module, if it has one, maps a value to what `forward`
            makes it from: one tensor, or several, which then are the arguments of `forward`.
        original: the tensor.
        unsafe: the result may have another shape or dtype.

    Attributes:
        original: what is trained; original0, original1, … if there are several.

    Raises:
        ValueError: a result is no tensor, or has another shape or dtype.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False):
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad(), suppress(NotImplementedError):  # then it is made from the tensor itself
            values = original
            values = self._inverted(original, strict=False)
        self.is_tensor = isinstance(values, Tensor)
        if not self.is_tensor and not isinstance(values, (tuple, list)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(values).__name__}"
            )
        self.ntensors = 1 if self.is_tensor else len(values)
        shape, dtype = original.shape, original.dtype
        if self.is_tensor:
            _set(original, values, "right_inverse")
            _register(self, "original", original)
        else:
            for i, value in enumerate(values):
                kind = Parameter if isinstance(original, Parameter) else Tensor
                _register(self, f"original{i}", kind(value.detach(), requires_grad=original.requires_grad))
        if not unsafe:
            _check(self(), shape, dtype)

    def _inverted(self, value: Tensor, strict: bool) -> object:
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                value = module.right_inverse(value)
            elif strict:
                raise RuntimeError(
                    f"parametrization {type(module).__name__} does not implement right_inverse."
                )
        return value

    def originals(self) -> list[Tensor]:
        """Returns what the tensor is computed from."""
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
        return [getattr(self, name) for name in names]

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that the tensor has this value.

        Raises:
            RuntimeError: a parametrization has no `right_inverse`.
            ValueError: it returns another number of tensors, or another dtype.
        """
        with no_grad():
            values = self._inverted(value, strict=True)
            values = [values] if isinstance(values, Tensor) else list(values)
            if len(values) != self.ntensors:
                raise ValueError(f"right_inverse: expected {self.ntensors} tensors, got {len(values)}")
            for original, new in zip(self.originals(), values, strict=True):
                _set(original, new, "right_inverse")

    def forward(self) -> Tensor:
        first, *others = self
        x = first(*self.originals())
        for module in others:
            x = module(x)
        return x


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Makes a parameter or buffer of the module the result of a parametrization; returns the module.

    Args:
        tensor_name: its name; if it is parametrized, the new one is called with the result of the others.
        parametrization: see `ParametrizationList`. Its mode becomes that of the module.
        unsafe: the result may have another shape or dtype.

    Raises:
        ValueError: the module has no such tensor; a result has another shape or dtype.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        parametrizations = module.parametrizations[tensor_name]
        if not unsafe:
            value = getattr(module, tensor_name)
            _check(parametrization(value), value.shape, value.dtype)
        if hasattr(parametrization, "right_inverse"):
            with no_grad():
                value = parametrization.right_inverse(getattr(module, tensor_name))
            parametrizations.right_inverse(value)
        parametrizations.append(parametrization)
        return module
    tables = [table for table in (module._parameters, module._buffers) if tensor_name in table]
    if not tables:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    parametrizations = ParametrizationList([parametrization], tables[0][tensor_name], unsafe)
    del tables[0][tensor_name]
    if not is_parametrized(module):
        _inject_class(module)
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _computed(tensor_name))
    module.parametrizations[tensor_name] = parametrizations
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Returns whether the module has a parametrization, or whether this tensor of it has."""
    parametrizations = module._modules.get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes the tensor a parameter or buffer again; returns the module.

    Args:
        leave_parametrized: its value is the parametrized one, not the original.

    Raises:
        ValueError: it is not parametrized; or the original, which is wanted, is several tensors.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    original = parametrizations.originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name)
        if parametrizations.is_tensor:
            _set(original, value, "the parametrization")
        else:
            original = Parameter(value, original.requires_grad) if isinstance(original, Parameter) else value
    elif not parametrizations.is_tensor:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in "
            "terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    _register(module, tensor_name, original)
    return module


def type_before_parametrizations(module: Module) -> type:
    """Returns the class that the module had before its first parametrization."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def _inject_class(module: Module) -> None:
    """Gives the module a class of its own, which can have properties: the parametrized tensors."""

    def deepcopied(self: Module, memo: dict) -> Module:
        replica = memo[id(self)] = self.__new__(type(self))
        replica.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return replica

    def refuse(self: Module, protocol: int = 2) -> None:
        raise RuntimeError("Serialization of parametrized modules is only supported through state_dict().")

    before = type(module)
    methods = {"__deepcopy__": deepcopied, "__reduce_ex__": refuse, "__module__": before.__module__}
    module.__class__ = type(f"Parametrized{before.__name__}", (before,), methods)


def _computed(name: str) -> property:
    def get(self: Module) -> Tensor:
        parametrization = self.parametrizations[name]
        if _cache is None:
            return parametrization()
        key = id(self), name
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    return property(get, lambda self, value: self.parametrizations[name].right_inverse(value))


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _set(original: Tensor, value: Tensor, what: str) -> None:
    """Gives the original this value, in its own memory if the shape is the same."""
    if original is value:
        return
    if original.dtype != value.dtype:
        raise ValueError(f"{what} may not change the dtype: got {value.dtype} for {original.dtype}")
    if original.shape != value.shape:
        replace_data(original, value.data)
        return
    with no_grad():
        write(original, value)


def _check(value: object, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    for what, expected, got in (("dtype", dtype, value.dtype), ("shape", shape, value.shape)):
        if expected != got:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` "
                f"flag is enabled: {expected} became {got}"
            )
