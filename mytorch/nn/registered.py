"""Registration of attributes: a module's parameters, buffers and children."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from .parameter import Buffer, Parameter

REGISTRIES = ("_parameters", "_buffers", "_modules")


class Registered:
    """Base of `Module`: registers assigned parameters, buffers and modules.

    They are stored in the dicts `_parameters`, `_buffers` and `_modules` and found as attributes. A name in
    one of them accepts only another such entry or None.
    """

    training: bool

    def __init__(self) -> None:
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _modules={}, _non_persistent_buffers_set=set()
        )

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__
        for registry in REGISTRIES:
            entries = attributes.get(registry)
            if entries is not None and name in entries:
                return entries[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        if isinstance(value, Parameter):
            self._claim(name, "_parameters", "parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Registered):
            self._claim(name, "_modules", "modules")
            attributes["_modules"][name] = value
        elif name in attributes.get("_parameters", ()):
            if value is not None:
                raise _wrong_type(value, "parameter", name, "Parameter")
            attributes["_parameters"][name] = None
        elif name in attributes.get("_modules", ()):
            if value is not None:
                raise _wrong_type(value, "child module", name, "Module")
            attributes["_modules"][name] = None
        elif isinstance(value, Buffer):
            self._claim(name, "_buffers", "buffers")
            self.register_buffer(name, value, value.persistent)
        elif name in attributes.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise _wrong_type(value, "buffer", name, "Tensor")
            attributes["_buffers"][name] = value
        else:
            object.__setattr__(self, name, value)

    def _claim(self, name: str, registry: str, what: str) -> None:
        """Removes `name` from the other registries and the attributes."""
        if registry not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        self.__dict__.pop(name, None)
        for other in REGISTRIES:
            if other != registry:
                self.__dict__[other].pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name: str) -> None:
        for registry in REGISTRIES:
            if name in self.__dict__.get(registry, ()):
                del self.__dict__[registry][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter; None registers the name of an optional one."""
        self._check_name(name, "_parameters", "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise _wrong_type(param, "parameter", name, "Parameter")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a buffer, a tensor of the state that is not trained; saved if `persistent`."""
        self._check_name(name, "_buffers", "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise _wrong_type(tensor, "buffer", name, "Tensor")
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(
            name
        )

    def add_module(self, name: str, module: Registered | None) -> None:
        """Adds a child module."""
        if module is not None and not isinstance(module, Registered):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._check_name(name, "_modules", "module")
        self._modules[name] = module

    register_module = add_module

    def _check_name(self, name: object, registry: str, what: str) -> None:
        if registry not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string, got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain ".", got {name!r}')
        if not name:
            raise KeyError(f'{what} name can\'t be empty string ""')
        if name not in self.__dict__[registry] and hasattr(self, name):
            raise KeyError(f"attribute {name!r} already exists")


def _wrong_type(value: object, what: str, name: str, expected: str) -> TypeError:
    return TypeError(
        f"cannot assign {type(value).__name__!r} as {what} {name!r} ({expected} or None expected)"
    )
