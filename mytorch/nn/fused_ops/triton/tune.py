"""
Choose a kernel's block sizes by measuring, once for each kind of call on each model of GPU.

    @tuned([{"BLOCK": 1024, "num_warps": 4}, {"BLOCK": 4096, "num_warps": 8}], key=("n",))
    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr): ...

    launch(kernel, lambda meta: (cdiv(n, meta["BLOCK"]),), x, n)

The first call of its kind times all configurations on its own arrays. The choice is kept as JSON in
~/.cache/mytorch/triton, or triton/ in the folder that MYTORCH_CACHE names, by model of GPU, version of Triton
and source of the kernel; the next process reads it. With MYTORCH_TUNE=0 and while a stream is captured it is
the first configuration, which should be good everywhere.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from .sizes import next_power_of_2

if TYPE_CHECKING:
    from .chips import Chip
    from .driver import Clock
    from .launch import GridLike

Config = dict[str, Any]


class Tuned:
    """A kernel whose launch chooses among configurations; made by `@tuned`."""

    def __init__(
        self, kernel: JITFunction, configs: Sequence[Config] | Callable, key: Sequence[str],
        inplace: Sequence[str],
    ):
        self.kernel, self.key, self.inplace, self._configs = kernel, tuple(key), tuple(inplace), configs
        self._chosen: dict[tuple, Config] = {}
        self.places = [i for i, name in enumerate(kernel.arg_names) if name in self.key]
        unknown = {*self.key, *self.inplace} - {*kernel.arg_names}
        if unknown:
            raise ValueError(f"{kernel.__name__} has no argument {', '.join(sorted(unknown))}")

    def candidates(self, pointers: Sequence[object], meta: dict, chip: Chip) -> list[Config]:
        """Returns the configurations for a call, the safest first."""
        if not callable(self._configs):
            return list(self._configs)
        return list(self._configs({**self._named(pointers), **meta}, chip))

    def best(
        self, launch: Callable, grid: GridLike, pointers: Sequence[object], meta: dict, chip: Chip,
        clock: Clock,
    ) -> Config:
        """Returns the fastest configuration for a call: known, or read from disk, or measured now.

        Args:
            launch: `launch(kernel, grid, pointers, meta)`.
            clock: measures a function's time in ms.
        """
        call = self._kind_of_call(pointers, meta)
        if (config := self._chosen.get((chip, call))) is not None:
            return config
        configs = self.candidates(pointers, meta, chip)
        if len(configs) == 1 or os.environ.get("MYTORCH_TUNE") == "0" or not clock.usable():
            return configs[0]
        file = ChoiceFile(self.kernel, clock.name())
        config = file.read().get(call, {}).get("config")
        if config not in configs:  # not measured yet, or its list has changed
            config, ms = self._measure(configs, launch, grid, pointers, meta, clock)
            file.add(call, {"config": config, "ms": ms})
        self._chosen[chip, call] = config
        return config

    def _measure(
        self, configs: list, launch: Callable, grid: GridLike, pointers: Sequence[object], meta: dict,
        clock: Clock,
    ) -> tuple[Config, float]:
        """Returns the fastest configuration and its time in ms; arrays updated in place aren't changed."""
        scratch = [
            type(p)(p.array.copy()) if name in self.inplace and p is not None else p
            for name, p in self._named(pointers).items()
        ]
        times: list[tuple[float, int]] = []
        for i, config in enumerate(configs):
            merged = {**meta, **config}
            call = functools.partial(launch, self.kernel, grid_of(grid, merged), scratch, merged)
            try:
                times.append((clock(call), i))
            except OutOfResources:  # too large for this GPU
                continue
        if not times:
            raise RuntimeError(f"{self.kernel.__name__}: this GPU has too few resources for any of {configs}")
        ms, i = min(times)
        return configs[i], ms

    def _named(self, pointers: Sequence[object]) -> dict[str, object]:
        return dict(zip(self.kernel.arg_names, pointers, strict=False))

    def _kind_of_call(self, pointers: Sequence[object], meta: dict) -> str:
        """Returns what calls with the same configuration share: dtypes, `meta`, the sizes in `key`."""
        parts = []
        for name, value in self._named(pointers).items():
            if hasattr(value, "dtype"):
                parts.append(f"{name}:{value.dtype}")
            elif name in self.key:
                size = next_power_of_2(value) if isinstance(value, int) and value > 0 else value
                parts.append(f"{name}={size}")
        return " ".join([*parts, *(f"{name}={meta[name]}" for name in sorted(meta))])


def tuned(
    configs: Sequence[Config] | Callable[[dict, Any], Sequence[Config]],
    key: Sequence[str] = (),
    inplace: Sequence[str] = (),
) -> Callable[[JITFunction], Tuned]:
    """Decorates a kernel: each launch uses the fastest of some configurations.

    Args:
        configs: dicts of compile-time arguments, `num_warps` and `num_stages`, or a function of the arguments
            by name and the `Chip` that returns them.
        key: the names of the integers that the choice depends on: it is made again when the next power of two
            of one of them changes. It always depends on dtypes and compile-time arguments.
        inplace: the names of the arrays that the kernel both reads and writes, or adds to: a second launch
            would change the result, so copies are used while measuring.
    """
    return lambda kernel: Tuned(kernel, configs, key, inplace)


def grid_of(grid: GridLike, meta: dict) -> tuple[int, ...]:
    """Returns the number of programs, which may depend on the compile-time arguments."""
    return grid(meta) if callable(grid) else grid


class ChoiceFile:
    """The choices for one version of a kernel on one model of GPU: a JSON file, replaced atomically."""

    def __init__(self, kernel: JITFunction, gpu: str):
        about = {
            "kernel": kernel.__name__,
            "gpu": gpu,
            "triton": triton.__version__,
            "source": kernel.cache_key,
        }
        name = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
        self.about, self.path = about, cache_folder() / f"{kernel.__name__}-{name}.json"

    def read(self) -> dict[str, dict]:
        """Returns the choices by kind of call."""
        try:
            choices = json.loads(self.path.read_text())["choices"]
            if not all(isinstance(choice["config"], dict) for choice in choices.values()):
                raise ValueError("a choice without a config")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            warnings.warn(f"{self.path} can't be used and is measured again: {error!r}", stacklevel=2)
            return {}
        return choices

    def add(self, call: str, choice: dict) -> None:
        """Writes the choice for a kind of call."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = json.dumps({**self.about, "choices": {**self.read(), call: choice}}, indent=1)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, delete=False) as file:
                file.write(content)
            os.replace(file.name, self.path)
        except OSError as error:
            warnings.warn(f"the measured configuration can't be saved: {error}", stacklevel=2)


def cache_folder() -> Path:
    """Returns the folder of the choices."""
    root = os.environ.get("MYTORCH_CACHE") or Path.home() / ".cache" / "mytorch"
    return Path(root) / "triton"
