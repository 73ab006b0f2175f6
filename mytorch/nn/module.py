"""
Module: a tree of parameters, buffers and other modules.

The registration of attributes is in `registered`, saving and loading in `state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..autograd import no_grad
from ..backends import dtypes
from ..core.tensor import RemovableHandle, Tensor, from_raw
from ..ops.cast import read_target
from . import hooks
from .functional.types import DeviceLike, DTypeLike
from .parameter import Parameter, replace_data
from .registered import Registered
from .state import IncompatibleKeys, entries, load


class Module(Registered):
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
    _hooks: hooks.Hooks | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks is None:
            return self.forward(*args, **kwargs)
        return self._hooks.call(self, args, kwargs)

    # The tree.

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yields this module, named `prefix`, and all below it, each once, with dotted names."""
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
        """Yields the parameters with dotted names; a tied one with its first name."""
        return self._named_entries("_parameters", prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields the buffers with dotted names."""
        return self._named_entries("_buffers", prefix, recurse, remove_duplicate)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yields the modules directly below this one, each once."""
        return self._named_entries("_modules", "", False, True)

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yields all parameters, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def children(self) -> Iterator[Module]:
        return (child for _, child in self.named_children())

    def get_submodule(self, target: str) -> Module:
        """Returns the module with this dotted name."""
        module = self
        for name in target.split(".") if target else ():
            module = getattr(module, name, None)
            if not isinstance(module, Module):
                raise AttributeError(
                    f"{type(self).__name__} has no submodule {target!r}: {name!r} is not a Module"
                )
        return module

    def get_parameter(self, target: str) -> Parameter:
        """Returns the parameter with this dotted name."""
        return self._get(target, "_parameters", "parameter")

    def get_buffer(self, target: str) -> Tensor:
        """Returns the buffer with this dotted name."""
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
        """
        destination = {} if destination is None else destination
        for name, tensor in entries(self):
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        return destination

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
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
        """
        return load(self, state_dict, strict, assign)

    def _apply(self, function: Callable[[Tensor], Tensor]) -> Module:
        """Replaces the memory of each parameter, buffer and gradient by that of `function(tensor)`."""
        with no_grad():
            for tensor in (*self.parameters(), *self.buffers()):
                grad = tensor.grad
                replace_data(tensor, function(tensor).data)
                if grad is not None:
                    tensor._grad = function(from_raw(grad._array)).data
        return self

    def to(
        self,
        *args: Any,
        dtype: DTypeLike = None,
        device: DeviceLike = None,
        non_blocking: bool = False,
        memory_format: object = None,
    ) -> Module:
        """Moves parameters and buffers to a device and casts floating-point ones to a dtype, in place.

        Args:
            args: a dtype, a device or a tensor, for its dtype and device.

        Raises:
            TypeError: a dtype that is not floating-point.
        """
        dtype, device = read_target(args, dtype, device)
        if dtype is not None and not dtypes.is_inexact(dtypes.as_dtype(dtype)):
            raise TypeError(f"Module.to only accepts floating-point dtypes, got {dtypes.as_dtype(dtype)}")
        return self._apply(lambda t: t.to(device=device, dtype=dtype if dtypes.is_inexact(t.dtype) else None))

    def float(self) -> Module:
        return self.to(dtypes.float32)

    def double(self) -> Module:
        return self.to(dtypes.float64)

    def half(self) -> Module:
        return self.to(dtypes.float16)

    def bfloat16(self) -> Module:
        return self.to(dtypes.bfloat16)

    def cpu(self) -> Module:
        return self.to(device="cpu")

    def cuda(self, device: int | None = None) -> Module:
        return self.to(device="cuda" if device is None else device)

    def apply(self, function: Callable[[Module], None]) -> Module:
        """Calls `function` with each module of the tree, this one last; for initialization."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def train(self, mode: bool = True) -> Module:
        """Sets training mode or evaluation mode, in the whole tree."""
        if not isinstance(mode, bool):
            raise ValueError(f"training mode is expected to be boolean, got {mode!r}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Module:
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Sets `requires_grad` of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Sets the gradients of all parameters to None or zeros."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    # Hooks.

    def _with_hooks(self) -> hooks.Hooks:
        if self._hooks is None:
            self._hooks = hooks.Hooks()
        return self._hooks

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args)` before `forward`; a result other than None replaces the arguments.

        Args:
            prepend: call it before the existing hooks.
            with_kwargs: call `hook(module, args, kwargs)`; it may return both.
        """
        return hooks.add(self._with_hooks().before, (hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args, result)` after `forward`; a result other than None replaces the result.

        Args:
            prepend: call it before the existing hooks.
            with_kwargs: call `hook(module, args, kwargs, result)`.
        """
        return hooks.add(self._with_hooks().after, (hook, with_kwargs), prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_input, grad_output)` when both gradients are computed.

        They are tuples, for the positional arguments and for the result. A result other than None replaces
        `grad_input`.
        """
        return hooks.add(self._with_hooks().backward, hook, prepend)

    # Printing.

    def extra_repr(self) -> str:
        """Returns what `repr` shows of this module itself: its arguments."""
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
