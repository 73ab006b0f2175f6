"""Kinds of objects that functions use: the user's own, and those that consist of their attributes."""

from __future__ import annotations

import types
from abc import ABC
from typing import Generic

from ...core.tensor import Tensor
from ...nn.module import Module
from ..graph_breaks.opaque import HOLDERS, is_foreign, is_mytorchs


def is_users(x: types.FunctionType | types.ModuleType) -> bool:
    name = x.__globals__.get("__name__") if isinstance(x, types.FunctionType) else x.__name__
    return not is_foreign(name)


def is_own(kind: type) -> bool:
    """Whether no methods but the user's know of attributes of a class, those of a module excepted."""
    known = {object, ABC, Generic, *Module.__mro__}
    return all([x in known or not is_foreign(x.__module__) for x in kind.__mro__])


def is_followed(x: object) -> bool:
    """Whether it is an object that consists of its attributes: one of a user's class, of the package's, or of
    some of Python's."""
    if not hasattr(x, "__dict__") or isinstance(x, (type, types.ModuleType, types.FunctionType)):
        return False
    kind = type(x)
    is_function = "__wrapped__" in x.__dict__  # or something that stands for one
    is_ours = is_mytorchs(kind.__module__) and not isinstance(x, Tensor) and not is_function
    return is_ours or isinstance(x, HOLDERS) or not is_foreign(kind.__module__)


def methods_of(x: object) -> list[str]:
    """Returns the names of methods that were set on an object itself."""
    return [name for name in x.__dict__ if callable(getattr(type(x), name, None))]


def slots_of(x: object) -> list[str]:
    """Returns the names of the attributes for which a user's class, or a base of it, has slots."""
    bases = [base for base in type(x).__mro__ if not is_foreign(base.__module__)]
    slots = [vars(base).get("__slots__", ()) for base in bases]
    names = [name for found in slots for name in ((found,) if isinstance(found, str) else found)]
    return [name for name in names if not name.startswith("__")]
