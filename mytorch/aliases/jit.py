"""PyTorch's TorchScript, as identities: `jit.script` and `jit.trace` return what they get; see `compile`."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from mytorch.nn.module import Module

F = TypeVar("F")


def script(obj: F, *args: object, **kwargs: object) -> F:
    """Returns the function or module itself."""
    return obj


def trace(func: F, example_inputs: object = None, *args: object, **kwargs: object) -> F:
    """Returns the function or module itself; it is not called with the examples."""
    return func


def freeze(mod: F, *args: object, **kwargs: object) -> F:
    """Returns the module itself."""
    return mod


export = unused = script_method = interface = optimize_for_inference = script


def ignore(drop: object = False, **kwargs: object) -> Any:
    """Returns the function itself: `@jit.ignore` and `@jit.ignore()`."""
    return drop if callable(drop) else lambda function: function


def is_scripting() -> bool:
    return False


is_tracing = is_scripting


def annotate(the_type: object, the_value: F) -> F:
    """Returns the value."""
    return the_value


def _refuse(*args: object, **kwargs: object) -> NoReturn:
    """Raises: there are no compiled programs.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "mytorch has no TorchScript: save a state_dict with mytorch.save, and build the module again"
    )


save = load = _refuse
ScriptModule = Module
