"""What an error says of a class or a function that is assigned where a module is expected."""

from __future__ import annotations

import inspect
from collections.abc import Iterator


def hint(value: object, module: type) -> str:
    """Returns what to write instead of a class without its parentheses, or of a function; "" for the rest.

    Args:
        module: the class `Module`.
    """
    if isinstance(value, type) and issubclass(value, module):
        return f"{value.__name__} is a class, not a module; the parentheses are missing: {_made_by(value)}"
    if isinstance(value, type) or not callable(value):
        return ""
    name = getattr(value, "__name__", type(value).__name__)
    layers = {cls.__name__.lower(): cls for cls in _subclasses(module) if _is_layer(cls)}
    short = name.replace("_", "")
    found = layers.get(short) or layers.get(f"{short}loss")
    instead = f"write {_made_by(found)}" if found else "call it in a module's forward()"
    return f"{name} is a function, not a module; {instead}"


def _subclasses(cls: type) -> Iterator[type]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _is_layer(cls: type) -> bool:
    return cls.__module__.startswith(f"{__package__}.layers.")


def _made_by(cls: type) -> str:
    """Returns the call that makes a module of this class: `nn.ReLU()`, or `nn.Linear(…)` if it takes more."""
    required = [
        p for p in inspect.signature(cls).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    own = cls.__module__.startswith("mytorch.nn.")
    return f"{'nn.' * own}{cls.__name__}({'…' * bool(required)})"
