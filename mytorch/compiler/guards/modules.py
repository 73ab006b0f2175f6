"""Whose code it is: the user's, which is followed, or constant code of Python, NumPy and the package.

Installed packages count as the user's. Of foreign modules some only compute (they are *pure*); what others do
may depend on anything.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from importlib.machinery import EXTENSION_SUFFIXES

# Modules of Python whose functions and classes only compute.
_PURE = {
    "__future__", "_abc", "_collections", "_collections_abc", "_functools", "_operator", "_py_abc", "_sre",
    "_typing", "_warnings",
    "abc", "cmath", "collections", "contextlib", "copy", "copyreg", "dataclasses", "enum", "functools",
    "itertools", "keyword", "math", "numbers", "operator", "re", "reprlib", "string", "types", "typing",
    "typing_extensions", "warnings",
}
_STATEFUL = (  # modules of NumPy and mytorch that do more, with all that is in them
    "mytorch.cuda.memory", "mytorch.cuda.random", "mytorch.cuda.streams", "mytorch.distributed",
    "numpy.random", "numpy.ctypeslib",
)
_OF_NUMPY = {  # functions of NumPy that read files or settings
    "fromfile", "genfromtxt", "geterr", "geterrcall", "getbufsize", "get_printoptions", "load", "loadtxt",
    "memmap", "save", "savetxt", "savez", "savez_compressed", "set_printoptions", "seterr", "seterrcall",
    "setbufsize", "show_config", "show_runtime",
}
_OF_PACKAGE = {  # and of mytorch: settings that may change, and what sets them
    "autograd.anomaly.is_anomaly_enabled", "autograd.anomaly.set_detect_anomaly",
    "backends.cublas.get_float32_matmul_precision", "backends.cublas.set_float32_matmul_precision",
    "backends.device.set_default_device", "backends.dtypes.set_default_dtype",
    "backends.cuda._Products", "backends.determinism.are_deterministic_algorithms_enabled",
    "backends.determinism.is_deterministic_algorithms_warn_only_enabled",
    "backends.determinism.use_deterministic_algorithms", "backends.threads.get_num_threads",
    "backends.threads.set_num_threads", "core.printing.set_printoptions", "random.Generator.get_state",
    "random.Generator.initial_seed", "random.Generator.seed", "random.Generator.set_state",
    "random.get_rng_state", "random.initial_seed", "random.seed", "random.set_rng_state",
    "serialization.load", "serialization.save", "utils.data.dataset.get_worker_info",
    "cuda.devices.current_device", "cuda.devices.set_device",
}
_SETTINGS = {f"mytorch.{name}" for name in _OF_PACKAGE}
_OF_ENVIRONMENT = {  # the ids of code with which functions read variables of the environment
    id(x.__code__) for x in (os.getenv, *vars(os._Environ).values()) if isinstance(x, types.FunctionType)
}
# Modules whose functions Python calls itself, whenever an object goes, or a module is imported.
_IMPLICIT = ("_weakrefset", "weakref", "importlib", "zipimport", "_frozen_importlib")
_PACKAGE = __name__.partition(".")[0]
_HEAP = 1 << 9  # the flag of a class that isn't built in


def root_of(module: object) -> str:
    """Returns the first part of a module's name; nothing if it has none, but a descriptor."""
    return module.partition(".")[0] if isinstance(module, str) else ""


@functools.cache
def is_foreign(module: str | None) -> bool:
    """Returns whether a module is Python's, NumPy's or the package's; also if a descriptor is its name."""
    if not isinstance(module, str | None):
        return True
    root = root_of(module)
    is_made = root.startswith("namedtuple_")  # where the code of a named tuple is
    return root in ("numpy", "mytorch") or root in sys.stdlib_module_names or is_made


@functools.cache
def is_pure(module: str | None) -> bool:
    """Returns whether a foreign module only computes, apart from the functions that are named here."""
    root = root_of(module)
    if root in ("numpy", "mytorch"):
        return not str(module).startswith(_STATEFUL)
    return root in _PURE or root.startswith("namedtuple_") or module in ("builtins", "collections.abc")


def is_numeric(module: types.ModuleType) -> bool:
    """Returns whether a module only computes with numbers and tensors; functions of `operator` get at other
    objects."""
    return root_of(module.__name__) in ("cmath", "math", "mytorch", "numpy") and is_pure(module.__name__)


def is_mytorchs(module: object) -> bool:
    """Returns whether a module is the package's."""
    return root_of(module) == _PACKAGE


def is_users(x: types.FunctionType | types.ModuleType) -> bool:
    """Returns whether a function or a module is the user's."""
    return not is_foreign(x.__globals__.get("__name__") if isinstance(x, types.FunctionType) else x.__name__)


def is_setting(module: str | None, name: str) -> bool:
    """Returns whether a function of mytorch or NumPy reads or sets what may change."""
    return f"{module}.{name}" in _SETTINGS or (root_of(module) == "numpy" and name in _OF_NUMPY)


def effect_of(code: types.CodeType, module: str | None) -> str | None:
    """Returns the name of a foreign function, given its code and module, that does more than to compute; None
    if it only computes."""
    names = f"{module}.{code.co_name}", f"{module}.Generator.{code.co_name}"
    if is_mytorchs(module):
        return next((name for name in names if name in _SETTINGS or not is_pure(module)), None)
    is_known = is_pure(module) or str(module).startswith(_IMPLICIT) or id(code) in _OF_ENVIRONMENT
    return None if is_known else f"{module}.{getattr(code, 'co_qualname', code.co_name)}"  # from 3.11 on


def is_of_python(kind: type) -> bool:
    """Returns whether a class is that of a user or an installed package, and written in Python."""
    return not is_foreign(kind.__module__) and not is_compiled(kind)


def is_built_in(kind: type) -> bool:
    """Returns whether a class is one of the interpreter's own."""
    return not kind.__flags__ & _HEAP and kind.__module__ == "builtins"


def is_compiled(kind: type) -> bool:
    """Returns whether a class is written in C."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    is_included = file is None and kind.__module__ in sys.builtin_module_names
    return not kind.__flags__ & _HEAP or is_included or (file or "").endswith(tuple(EXTENSION_SUFFIXES))
