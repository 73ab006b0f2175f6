"""
Module: a tree of parameters, buffers and other modules.

Hooks are in `hooks`, casts and moves in `conversion`, saving and loading in `state`; `Module.compile` is in
`compiler/compile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..backends import tune
from ..core.grad_mode import _state
from ..core.tensor import Tensor
from .conversion import Convertible
from .hints import hint
from .hooks import Hooked
from .parameter import Buffer, Parameter
from .state import IncompatibleKeys, entries, load

REGISTRIES = ("_parameters", "_modules", "_buffers")


class Module(Hooked, Convertible):
    """Base of all layers and models: define layers in `__init__`, use them in `forward`, call the module.

        class Block(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.norm = nn.LayerNorm(width)
                self.linear = nn.Linear(width, width)

            def forward(self, x):
                return x + self.linear(self.norm(x))

    Attributes:
        training: set by `train()` and `eval()`.
    """

    training: bool

    def __init__(self) -> None:
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _modules={}, _non_persistent_buffers_set=set()
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the result of a call; every subclass defines it.

        """
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (stream := _state.stream) is not None:
            return stream.call_module(self, args, kwargs)
        if self._hooks is None:
            return self.forward(*args, **kwargs)
        return self._hooks.call(self, args, kwargs)

    # Attributes. Parameters, buffers and modules are stored in three dicts, `_parameters`, `_buffers` and
    # `_modules`, and found as attributes. A name in one of them accepts only another such entry or None.

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__
        for registry in REGISTRIES:
            entries = attributes.get(registry, ())
            if name in entries:
                return entries[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        attributes = self.__dict__
        if isinstance(value, Parameter):
            self._claim(name, "_parameters", "parameters")
            replaced = getattr(self._parameters.get(name), "nbytes", 0)
            self.register_parameter(name, value)
            tune.release_freed_memory(replaced)  # a weight that is shared, for example
        elif isinstance(value, Module):
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
        """Adds a parameter; None registers the name of an optional one.

        >>> layer = nn.ReLU()
        >>> layer.register_parameter("scale", nn.Parameter(mytorch.ones(1)))
        >>> [name for name, _ in layer.named_parameters()]
        ['scale']
        """
        self._check_name(name, "_parameters", "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise _wrong_type(param, "parameter", name, "Parameter")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a buffer, a tensor of the state that is not trained; saved if `persistent`.

        >>> layer = nn.ReLU()
        >>> layer.register_buffer("count", mytorch.zeros(1))
        >>> layer.count
        tensor([0.00000])
        """
        self._check_name(name, "_buffers", "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise _wrong_type(tensor, "buffer", name, "Tensor")
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(
            name
        )

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a child module.

        >>> model = nn.Sequential()
        >>> model.add_module("last", nn.ReLU())
        >>> model
        Sequential(
          (last): ReLU()
        )
        """
        if module is not None:
            check_module(module)
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

    # The tree.

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yields this module, named `prefix`, and all below it, each once, with dotted names.

        >>> [name for name, _ in nn.Sequential(nn.ReLU(), nn.Tanh()).named_modules()]
        ['', '0', '1']
        """
        memo, stack = set() if memo is None else memo, [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if module in memo:
                continue
            if remove_duplicate:
                memo.add(module)
            yield path, module
            for name, child in reversed(module._modules.items()):
                if child is not None:
                    stack.append((f"{path}.{name}" if path else name, child))

    def _named_entries(
        self, registry: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple]:
        modules = self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)]
        seen = set()
        for path, module in modules:
            for name, entry in module.__dict__[registry].items():
                if entry is not None and not (remove_duplicate and id(entry) in seen):
                    seen.add(id(entry))
                    yield f"{path}.{name}" if path else name, entry

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yields the parameters with dotted names; a tied one with its first name.

        >>> [name for name, _ in nn.Linear(2, 3).named_parameters()]
        ['weight', 'bias']
        """
        return self._named_entries("_parameters", prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields the buffers with dotted names.

        >>> [name for name, _ in nn.BatchNorm1d(2).named_buffers()]
        ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return self._named_entries("_buffers", prefix, recurse, remove_duplicate)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yields the modules directly below this one, each once.

        >>> dict(nn.Sequential(nn.ReLU(), nn.Tanh()).named_children())
        {'0': ReLU(), '1': Tanh()}
        """
        return self._named_entries("_modules", "", False, True)

    def modules(self) -> Iterator[Module]:
        """Yields the module and all below it, each once.

        >>> [type(m).__name__ for m in nn.Sequential(nn.Linear(2, 3), nn.ReLU()).modules()]
        ['Sequential', 'Linear', 'ReLU']
        """
        return (module for _, module in self.named_modules())

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yields all parameters, each once.

        >>> sum(p.numel() for p in nn.Linear(2, 3).parameters())
        9
        """
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yields the buffers, of the modules below, too, unless `recurse` is False.

        >>> len(list(nn.BatchNorm1d(2).buffers()))
        3
        """
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def children(self) -> Iterator[Module]:
        """Yields the modules directly below.

        >>> list(nn.Sequential(nn.ReLU(), nn.Tanh()).children())
        [ReLU(), Tanh()]
        """
        return (child for _, child in self.named_children())

    def get_submodule(self, target: str) -> Module:
        """Returns the module with this dotted name.

        >>> nn.Sequential(nn.ReLU(), nn.Tanh()).get_submodule("1")
        Tanh()
        """
        module = self
        for name in target.split(".") if target else ():
            module = getattr(module, name, None)
            if not isinstance(module, Module):
                raise AttributeError(
                    f"{type(self).__name__} has no submodule {target!r}: {name!r} is not a Module"
                )
        return module

    def get_parameter(self, target: str) -> Parameter:
        """Returns the parameter with this dotted name.

        >>> nn.Sequential(nn.Linear(2, 3)).get_parameter("0.bias").shape
        Size([3])
        """
        return self._get(target, "_parameters", "parameter")

    def get_buffer(self, target: str) -> Tensor:
        """Returns the buffer with this dotted name.

        >>> nn.BatchNorm1d(2).get_buffer("running_mean")
        tensor([0.00000 0.00000])
        """
        return self._get(target, "_buffers", "buffer")

    def _get(self, target: str, registry: str, what: str) -> Tensor:
        path, _, name = target.rpartition(".")
        entry = self.get_submodule(path).__dict__[registry].get(name)
        if entry is None:
            raise AttributeError(f"{type(self).__name__} has no {what} {target!r}")
        return entry

    # State.

    def state_dict(
        self, *, destination: dict | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Tensor]:
        """Returns all parameters and persistent buffers by dotted name: detached, sharing the module's
        memory.

        Args:
            destination: a dict to add them to.
            prefix: put before each name.
            keep_vars: return the parameters themselves, not detached.

        >>> list(nn.Linear(2, 3).state_dict())
        ['weight', 'bias']
        """
        destination = {} if destination is None else destination
        for name, tensor in entries(self):
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        return destination

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copies a state_dict into the parameters and buffers, cast to their dtypes, in place.

        Args:
            state_dict: values may be Tensors, Arrays, NumPy or CuPy arrays, or PyTorch's tensors.
            strict: raise unless the names are the same.
            assign: use the values' memory and dtype instead of copying.

        Returns:
            (missing_keys, unexpected_keys)

        Raises:
            RuntimeError: shapes, or with `strict` names, do not match; then nothing is changed.

        >>> a, b = nn.Linear(2, 3), nn.Linear(2, 3)
        >>> _ = b.load_state_dict(a.state_dict())
        >>> mytorch.equal(a.weight, b.weight)
        True
        """
        return load(self, state_dict, strict, assign)

    def apply(self, function: Callable[[Module], None]) -> Module:
        """Calls `function` with each module of the tree, this one last; for initialization.

        >>> _ = nn.Sequential(nn.ReLU(), nn.Tanh()).apply(lambda module: print(type(module).__name__))
        ReLU
        Tanh
        Sequential
        """
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def train(self, mode: bool = True) -> Module:
        """Sets training mode or evaluation mode, in the whole tree.

        >>> nn.ReLU().train(False).training
        False
        """
        if not isinstance(mode, bool):
            raise ValueError(f"training mode is expected to be boolean, got {mode!r}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Module:
        """Sets evaluation mode, in which dropout does nothing, as `train(False)`; returns the module.

        >>> nn.Dropout(0.5).eval()(mytorch.ones(2))
        tensor([1.00000 1.00000])
        """
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Sets `requires_grad` of all parameters.

        >>> [p.requires_grad for p in nn.Linear(2, 3).requires_grad_(False).parameters()]
        [False, False]
        """
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Sets the gradients of all parameters to None or zeros.

        >>> layer = nn.Linear(2, 1)
        >>> layer(mytorch.ones(1, 2)).sum().backward()
        >>> layer.zero_grad()
        >>> layer.weight.grad is None
        True
        """
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    # Printing.

    def extra_repr(self) -> str:
        """Returns what `repr` shows of this module itself: its arguments.

        >>> nn.Linear(2, 3).extra_repr()
        'in_features=2, out_features=3, bias=True'
        """
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {indented(repr(child))}" for name, child in self._modules.items()]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({extra})"
        body = "".join(f"\n  {line}" for line in (*lines, *children))
        return f"{self._get_name()}({body}{body and chr(10)})"


def indented(text: str) -> str:
    """Returns the text with all lines but the first indented by two columns."""
    return text.replace("\n", "\n  ")


def _wrong_type(value: object, what: str, name: str, expected: str) -> TypeError:
    instead = hint(value, Module) if expected == "Module" else ""
    return TypeError(
        f"cannot assign {type(value).__name__!r} as {what} {name!r} ({expected} or None expected)"
        f"{instead and ': '}{instead}"
    )


def check_module(value: object) -> None:
    """Raises TypeError if the value is no module."""
    if not isinstance(value, Module):
        raise TypeError(hint(value, Module) or f"{type(value).__name__} is not a Module subclass")
