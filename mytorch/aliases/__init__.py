"""PyTorch's second names: modules that only forward, mounted under the paths that its programs import.

A file of this folder is a module elsewhere, `cuda_amp.py` is `mytorch.cuda.amp`, and has no other name. Where
all that a module has is in others, there is no file: `nn.modules.conv` is what `nn.layers.conv` has. None is
loaded by `import mytorch`. Here are also names that are imported at their first use, and what `dir` shows.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

Table = Mapping[str, str | None]
ABOVE: dict[str, Table] = {}  # by module: names in it that are defined in layers above it; `mytorch` fills it

FILES = {  # by the path of the module, below `mytorch`
    "accelerator": "accelerator", "autograd.profiler": "autograd_profiler",
    "cuda.amp": "cuda_amp", "foreach": "foreach", "hub": "hub", "jit": "jit", "nn.attention": "nn_attention",
    "nn.modules": "nn_modules", "nn.modules.utils": "nn_modules_utils", "special": "special",
    "utils.checkpoint": "utils_checkpoint", "utils.flop_counter": "utils_flop_counter",
    **{
        f"backends.{library}": "backends_settings"
        for library in ("cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum")
    },
}

FORWARDS = {  # the modules whose names it has; of a name in several of them, the first counts
    "nn.modules.activation": "nn.layers.activation nn.layers.softmax nn.layers.attention",
    "nn.modules.batchnorm": "nn.layers.batch_norm nn.layers.lazy",
    "nn.modules.channelshuffle": "nn.layers.upsampling",
    "nn.modules.container": "nn.container nn.parameter_container",
    "nn.modules.conv": "nn.layers.conv nn.layers.lazy",
    "nn.modules.distance": "nn.layers.distance",
    "nn.modules.dropout": "nn.layers.dropout",
    "nn.modules.flatten": "nn.layers.linear",
    "nn.modules.fold": "nn.layers.conv",
    "nn.modules.instancenorm": "nn.layers.batch_norm nn.layers.lazy",
    "nn.modules.linear": "nn.layers.linear nn.layers.lazy",
    "nn.modules.loss": "nn.layers.loss nn.layers.margin_loss",
    "nn.modules.module": "nn.module",
    "nn.modules.normalization": "nn.layers.normalization",
    "nn.modules.padding": "nn.layers.padding",
    "nn.modules.pixelshuffle": "nn.layers.upsampling",
    "nn.modules.pooling": "nn.layers.pooling",
    "nn.modules.rnn": "nn.layers.rnn nn.layers.rnn_cell",
    "nn.modules.sparse": "nn.layers.embedding",
    "nn.modules.transformer": "nn.layers.transformer",
    "nn.modules.upsampling": "nn.layers.upsampling",
    "nn.parallel.data_parallel": "nn.parallel",
    "nn.parallel.distributed": "distributed.ddp",
    "overrides": "utils.overrides",
    "stream.compiled": "compiler",
    "stream.programs": "compiler",
    "utils.data.dataloader": "utils.data.loader utils.data.dataset utils.data.sampler utils.data.collate",
    "utils.data.distributed": "utils.data.sampler",
}

_CHILDREN: dict[str, dict[str, None]] = {}  # by package
for _path in (*FILES, *FORWARDS):
    _package, _, _child = _path.rpartition(".")
    _CHILDREN.setdefault(_package, {})[_child] = None

__path__: list[str] = []  # a file has its public name only


class _Finder:
    """Finds the modules of both tables."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        top, _, public = name.partition(".")
        if top != "mytorch":
            return None
        if public in FORWARDS:
            return ModuleSpec(name, _Forward())
        if public in FILES:
            from importlib.util import spec_from_file_location  # which most programs don't need

            file = os.path.join(os.path.dirname(__file__), f"{FILES[public]}.py")
            inside = [] if public in _CHILDREN else None
            return spec_from_file_location(name, file, submodule_search_locations=inside)
        return None


class _Forward:
    """Makes a module with the names of others."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None  # a usual one

    @staticmethod
    def get_code(name: str) -> CodeType:
        """Returns what `python -m` runs: nothing, as in a module that has only definitions."""
        return compile("", name, "exec")

    def exec_module(self, module: ModuleType) -> None:
        names = FORWARDS[module.__name__.removeprefix("mytorch.")].split()
        sources = [*map(importlib.import_module, [f"mytorch.{name}" for name in names])]
        module.__doc__ = f"PyTorch's name for {', '.join(source.__name__ for source in sources)}."
        for source in reversed(sources):
            vars(module).update({key: x for key, x in vars(source).items() if not key.startswith("__")})


sys.meta_path.insert(0, _Finder)  # before the finder of an editable install, which may have another checkout


def lazily(names: dict[str, Any], *tables: Table) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and the `__dir__` of a module that imports names at their first use.

    Those of the tables, those that lie above the module, and its modules that are found here.

    Args:
        names: the module's `globals()`.
        tables: where a name is defined, below `mytorch`; None for a module in this one.
    """
    here = names["__name__"]
    tables = (*tables, _CHILDREN.get(here.partition(".")[2], {}))

    def __getattr__(name: str):
        for table in (*tables, ABOVE.get(here, {})):
            if name in table:
                where = table[name]
                module = importlib.import_module(f"mytorch.{where}" if where else f"{here}.{name}")
                if "__dir__" not in vars(module):  # it is new
                    show_own_names()
                return getattr(module, name) if where else module
        raise AttributeError(f"module {here!r} has no attribute {name!r}")

    return __getattr__, _dir_of(names, *tables)


def show_own_names() -> None:
    """Makes `dir` of the modules imported so far show their own public names, without `os`, `np`, `Any`.

    Completion, and Python's "Did you mean", take names from there.
    """
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "mytorch":
            vars(module).setdefault("__dir__", _dir_of(vars(module)))


def _dir_of(names: dict[str, Any], *tables: Table) -> Callable[[], list[str]]:
    def __dir__() -> list[str]:
        public = names.get("__all__", ())
        own = [name for name, x in names.items() if name in public or _is_shown(name, x)]
        return sorted({*own, *itertools.chain(*tables, ABOVE.get(names["__name__"], ()))})

    return __dir__


def _is_shown(name: str, x: object) -> bool:
    """Returns whether it is public, no module outside of the package, and not of Python's library."""
    is_module = isinstance(x, ModuleType)
    home = x.__name__ if is_module else getattr(x, "__module__", None)
    top = home.partition(".")[0] if isinstance(home, str) else ""
    foreign = top != "mytorch" if is_module else top in sys.stdlib_module_names
    return not foreign and (not name.startswith("_") or name.startswith("__"))
