"""What compiles programs in PyTorch, as identities: `compile`, `jit.script`, … return what they get.

mytorch has no compiler of programs: a function runs as it was written, with the kernels that layers choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from .nn.module import Module

F = TypeVar("F")


def script(obj: F, *args: Any, **kwargs: Any) -> F:
    """Returns the function or module itself."""
    return obj


def trace(func: F, example_inputs: Any = None, *args: Any, **kwargs: Any) -> F:
    """Returns the function or module itself; it is not called with the examples."""
    return func


def freeze(mod: F, *args: Any, **kwargs: Any) -> F:
    """Returns the module itself."""
    return mod


export = unused = script_method = interface = optimize_for_inference = script


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Returns the function itself: `@jit.ignore` and `@jit.ignore()`."""
    return drop if callable(drop) else lambda function: function


def compile(
    model: Callable | None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str | Callable = "inductor", mode: str | None = None, options: dict | None = None,
    disable: bool = False,
) -> Any:  # fmt: skip
    """Returns the function or module itself; without one, a decorator that does."""
    return (lambda function: function) if model is None else model


def is_scripting() -> bool:
    return False


is_tracing = is_scripting


def annotate(the_type: Any, the_value: F) -> F:
    """Returns the value."""
    return the_value


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises: there are no compiled programs.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "mytorch has no TorchScript: save a state_dict with mytorch.save, and build the module again"
    )


save = load = _refuse
ScriptModule = Module
