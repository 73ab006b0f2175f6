"""The state of a module, its parameters and persistent buffers by dotted name: saving and loading."""

from __future__ import annotations

import re
import warnings
from collections import namedtuple
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..autograd import no_grad
from ..backends.device import is_raw
from ..core.array import Array
from ..core.tensor import Size, Tensor
from ..ops.inplace import write
from .parameter import replace_data
from .uninitialized import is_lazy

if TYPE_CHECKING:
    from .module import Module


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The missing and the unexpected names of a state_dict."""

    __slots__ = ()

    def __repr__(self) -> str:
        return (
            super().__repr__()
            if self.missing_keys or self.unexpected_keys
            else "<All keys matched successfully>"
        )


def entries(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yields the state's tensors by name, in order; a tied one with each of its names."""
    for path, owner in module.named_modules(remove_duplicate=False):
        path = f"{path}." if path else ""
        for name, tensor in (*owner._parameters.items(), *owner._buffers.items()):
            if tensor is not None and name not in owner._non_persistent_buffers_set:
                yield path + name, tensor


def load(module: Module, state: Mapping[str, object], strict: bool, assign: bool) -> IncompatibleKeys:
    """Loads `state` into the tensors of the module; checks everything before changing any."""
    if not isinstance(state, Mapping):
        raise TypeError(f"expected state_dict to be dict-like, got {type(state).__name__}")
    current = dict(entries(module))
    state = _renamed(state, current)
    missing = [name for name in current if name not in state]
    unexpected = [name for name in state if name not in current]
    errors = []
    if strict and unexpected:
        errors.append(f"Unexpected key(s) in state_dict: {_quoted(unexpected)}.")
    if strict and missing:
        errors.append(f"Missing key(s) in state_dict: {_quoted(missing)}.")
    values = {}
    for name, tensor in current.items():
        if name in state:
            if is_lazy(state[name]):
                if not is_lazy(tensor):
                    errors.append(f"{name}: it is uninitialized in the checkpoint, call that module first.")
                continue
            value = values[name] = _read(name, state[name], errors)
            if value is not None and not is_lazy(tensor) and value.shape != tensor.data.shape:
                errors.append(
                    f"size mismatch for {name}: copying a param with shape {Size(value.shape)} from "
                    f"checkpoint, the shape in current model is {tensor.shape}."
                )
            elif value is not None and not assign and value.is_meta is not tensor.is_meta:
                _check_meta(name, value, errors)
    if errors:
        raise RuntimeError(
            "\n\t".join([f"Error(s) in loading state_dict for {type(module).__name__}:", *errors])
        )
    with no_grad():
        for name, value in values.items():
            _put(current[name], value, assign)
    return IncompatibleKeys(missing, unexpected)


def _check_meta(name: str, value: Array, errors: list[str]) -> None:
    """Says what happens where either the value or the tensor that gets it has no data."""
    if value.is_meta:
        errors.append(f"{name}: Cannot copy out of meta tensor; no data! (assign=True replaces the tensor.)")
        return
    warnings.warn(
        f"for {name}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current "
        "model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state "
        "dictionary to their corresponding key in the module instead of copying them in place?)",
        stacklevel=4,
    )


def _renamed(state: Mapping[str, object], current: dict[str, Tensor]) -> Mapping[str, object]:
    """Gives g and v of an old weight norm, `weight_g` and `weight_v`, the names they have as originals."""
    for name in current:
        found = name not in state and re.fullmatch(r"(.*)parametrizations\.(\w+)\.original([01])", name)
        old = found and f"{found[1]}{found[2]}_{'gv'[int(found[3])]}"
        if old and old in state:
            state = {(name if key == old else key): value for key, value in state.items()}
    return state


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _read(name: str, value: object, errors: list[str]) -> Array | None:
    """Returns the value as an Array: of a Tensor, an Array, a NumPy or CuPy array, or another library's
    tensor."""
    if isinstance(value, Tensor):
        return value.data
    if isinstance(value, Array) or is_raw(value):
        return Array(value)
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        for step in ("detach", "cpu"):
            value = getattr(value, step, lambda value=value: value)()
        try:
            return Array(np.asarray(value))
        except (TypeError, ValueError, RuntimeError) as error:
            errors.append(f"{name}: can't be read as an array: {error}")
            return None
    errors.append(
        f"{name}: expected a Tensor or an array from checkpoint but received {type(value).__name__}."
    )
    return None


def _put(tensor: Tensor, value: Array, assign: bool) -> None:
    if is_lazy(tensor):
        tensor.materialize(value.shape)
    if assign:
        replace_data(tensor, value)
    else:
        write(tensor, value.to(tensor.device))
