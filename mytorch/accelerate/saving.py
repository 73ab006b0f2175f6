"""The part of the Accelerator that saves and loads the state of a training run."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

from ..amp.grad_scaler import GradScaler
from ..amp.mixed_precision import MixedPrecisionOptimizer
from ..backends.address import address_of
from ..backends.device import CPU, device_of, is_raw, move
from ..core.array import Array
from ..core.tensor import Tensor, raw_of
from . import checkpoint, world
from .checkpoint_parts import kind_of
from .gradient_state import GradientState
from .random_state import random_states, set_random_states
from .stateful import StateDict, Stateful

T = TypeVar("T")


class Saving:
    """save_state, load_state, register_for_checkpointing: everything prepared or registered, exactly."""

    gradient_state: GradientState
    mixed_precision: str
    project_dir: Path | None
    scaler: GradScaler | None
    _models: list
    _optimizers: list
    _schedulers: list
    _loaders: list

    def __init__(self) -> None:
        self._custom: list[Stateful] = []
        self._writer: threading.Thread | None = None
        self._write_error: BaseException | None = None

    def register_for_checkpointing(self, *objects: Stateful) -> None:
        """Adds objects with `state_dict()` and `load_state_dict()` to the checkpoints.

        Raises:
            ValueError: an object lacks these methods.
        """
        for obj in objects:
            if not (hasattr(obj, "state_dict") and hasattr(obj, "load_state_dict")):
                raise ValueError(
                    f"register_for_checkpointing(): {type(obj).__name__} has no state_dict() and "
                    "load_state_dict()"
                )
            self._custom.append(obj)

    def save_state(
        self, output_dir: str | PathLike | None = None, *, keep_last: int | None = None,
        asynchronous: bool = False,
    ) -> str:
        """Saves models, optimizers, schedules, loaders, the scaler, random states and registered objects.

        In the body of a loop over a loader, a run that resumes continues this loop; after it, also after a
        `break`, it begins the next epoch (see `DataLoader.state_dict`).

        The folder is written atomically (see `checkpoint`). All processes call this; the main one
        writes.

        Args:
            output_dir: the checkpoint's folder; with `keep_last`, a folder of checkpoints checkpoint_0,
                checkpoint_1, … None is such a folder, <project_dir>/checkpoints.
            keep_last: how many good ones of them to keep; all if None.
            asynchronous: copy the state, and write it in a thread; `wait_for_checkpoint` waits for it.

        Returns:
            The checkpoint's folder.

        Raises:
            OSError: writing failed; `wait_for_checkpoint` raises that of an asynchronous save.
            ValueError: `keep_last` isn't positive; neither `output_dir` nor `project_dir` is given.
        """
        if keep_last is not None and (not isinstance(keep_last, int) or keep_last < 1):
            raise ValueError(f"keep_last must be an int of at least 1, got {keep_last!r}")
        if not self.gradient_state.sync_gradients:
            warnings.warn(
                "save_state() while gradients accumulate: those of the unfinished window are not saved",
                stacklevel=2,
            )
        folder = self._folder("save_state", output_dir)
        is_numbered = output_dir is None or keep_last is not None
        self.wait_for_checkpoint()
        files = self._collect()
        if is_numbered:
            folder = world.on_main(checkpoint.next_numbered, folder)
        write = partial(_write, folder, replace=not is_numbered, keep_last=keep_last)
        if not asynchronous:
            world.on_main(write, files)
        elif world.rank() == 0:
            self._writer = threading.Thread(target=self._write_later, args=(write, copied(files)))
            self._writer.start()
        return str(folder)

    def _folder(self, caller: str, folder: str | PathLike | None) -> Path:
        if folder is None and self.project_dir is None:
            raise ValueError(f"{caller}(): expected a folder, or an Accelerator with a project_dir")
        return self.project_dir / "checkpoints" if folder is None else Path(folder)

    def _write_later(self, write: Callable[[dict], None], files: StateDict) -> None:
        try:
            write(files)
        except BaseException as error:
            self._write_error = error
            warnings.warn(f"an asynchronous checkpoint was not written: {error!r}", stacklevel=2)

    def wait_for_checkpoint(self) -> None:
        """Waits until the last asynchronous checkpoint is written; raises its error."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        error, self._write_error = self._write_error, None
        if error is not None:
            raise error

    def _collect(self) -> StateDict:
        """Returns the content of each file, by name."""
        files: StateDict = {}
        for i, model in enumerate(self._models):
            files[_numbered("model", i, "safetensors")] = self.unwrap_model(model).state_dict()
        masters = []
        for i, wrapped in enumerate(self._optimizers):
            optimizer = wrapped.optimizer
            if isinstance(optimizer, MixedPrecisionOptimizer):
                masters.append(dict(enumerate(optimizer.masters())))
            inner = getattr(optimizer, "optimizer", optimizer)
            consolidate = getattr(inner, "consolidate_state_dict", None)
            if consolidate is not None:
                consolidate(0)  # then only the main process has it
            if consolidate is None or world.rank() == 0:
                files[_numbered("optimizer", i, "bin")] = optimizer.state_dict()
        if self.mixed_precision != "no":
            scaler = None if self.scaler is None else self.scaler.state_dict()
            files["mp_config.bin"] = {
                "precision": self.mixed_precision, "scaler": scaler, "float32_weights": masters,
            }
        for kind, objects in (("scheduler", self._schedulers), ("custom_checkpoint", self._custom)):
            for i, obj in enumerate(objects):
                files[_numbered(kind, i, "bin")] = obj.state_dict()
        states = world.all_gather_object(
            {"random": random_states(), "loaders": [loader.state_dict() for loader in self._loaders]}
        )
        files["sampler.bin"] = [rank["loaders"] for rank in states]
        files["random_states.bin"] = [rank["random"] for rank in states]
        files["accelerator.bin"] = {
            "step": self.gradient_state.step,
            "num_processes": world.world_size(),
            "classes": self._classes(),
        }
        return files

    def _classes(self) -> dict[str, list[str]]:
        """Returns the class names of optimizers and schedules, which their states lack."""
        optimizers = [getattr(w.optimizer, "optimizer", w.optimizer) for w in self._optimizers]
        optimizers = [getattr(optimizer, "optim", optimizer) for optimizer in optimizers]  # ZeRO's
        return {
            "optimizer": [type(optimizer).__name__ for optimizer in optimizers],
            "scheduler": [type(prepared.scheduler).__name__ for prepared in self._schedulers],
        }

    def load_state(self, input_dir: str | PathLike | None = None, *, last_good: bool = False) -> str | None:
        """Restores a checkpoint: the same objects must have been prepared, in the same order.

        All processes call this. A script that may be restarted begins with
        `load_state(folder, last_good=True)`.

        Args:
            input_dir: the checkpoint's folder, or the folder of checkpoint_0, checkpoint_1, …, the last of
                which is loaded; None is <project_dir>/checkpoints.
            last_good: if that one is damaged, warn, and load the last one that isn't; without any
                checkpoint, do nothing.

        Returns:
            The checkpoint's folder; None without one.

        Raises:
            CheckpointError: no checkpoint, or a file is missing, truncated, altered or of wrong content; the
                message names it and the last good checkpoint. With `last_good`: all are damaged.
            ValueError, RuntimeError: it is of other objects; neither `input_dir` nor `project_dir` is given.
                Some objects may be loaded then, others not.
        """
        parent = self._folder("load_state", input_dir)
        self.wait_for_checkpoint()
        if last_good:
            found = world.on_main(checkpoint.candidates, parent)
            folder = checkpoint.last_good(parent, found, self._load_or_problem)
            return None if folder is None else str(folder)
        folder = world.on_main(checkpoint.newest, parent)  # the same one on all processes
        if folder is None:
            raise checkpoint.CheckpointError(f"no checkpoint found in {parent}")
        self._load(folder)
        return str(folder)

    def _load_or_problem(self, folder: Path) -> str:
        """Loads a checkpoint; returns why a process can't, "" if all have loaded it."""
        problem = world.on_main(checkpoint.find_problem, folder)
        if problem:
            return problem
        try:
            self._load(folder)
        except (ValueError, RuntimeError) as error:
            problem = shorten(str(error), 500)  # that of a model lists all parameters
        return next(filter(None, world.all_gather_object(problem)), "")

    def _load(self, folder: Path) -> None:
        files = checkpoint.read(folder)
        self._check_fits(folder, files)
        parts = {  # the files of a kind, and the functions that load them
            ("model", "safetensors"): [self.unwrap_model(model).load_state_dict for model in self._models],
            ("optimizer", "bin"): [wrapped.optimizer.load_state_dict for wrapped in self._optimizers],
            ("mp_config", "bin"): [self._load_mixed_precision] if self.mixed_precision != "no" else [],
            ("scheduler", "bin"): [scheduler.load_state_dict for scheduler in self._schedulers],
            ("custom_checkpoint", "bin"): [obj.load_state_dict for obj in self._custom],
            ("sampler", "bin"): [self._load_loaders],
            ("random_states", "bin"): [_load_random_states],
        }
        for (kind, suffix), functions in parts.items():
            for i, function in enumerate(functions):
                name = _numbered(kind, i, suffix)
                with _naming(folder / name):
                    function(files[name])
        self.gradient_state.step = files["accelerator.bin"]["step"]

    def _load_loaders(self, ranks: list[list[StateDict]]) -> None:
        mine = ranks[min(world.rank(), len(ranks) - 1)]
        for loader, state in zip(self._loaders, mine, strict=True):
            loader.load_state_dict(state)

    def _load_mixed_precision(self, state: StateDict) -> None:
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        halves = [w.optimizer for w in self._optimizers if isinstance(w.optimizer, MixedPrecisionOptimizer)]
        for optimizer, values in zip(halves, state["float32_weights"], strict=True):
            optimizer.load_masters(list(values.values()))

    def _check_fits(self, folder: Path, files: StateDict) -> None:
        saved_in = files["mp_config.bin"].get("precision", "fp16") if "mp_config.bin" in files else "no"
        if saved_in != self.mixed_precision:
            mode = "without mixed precision" if saved_in == "no" else f"with mixed precision {saved_in!r}"
            raise ValueError(
                f"load_state(): {folder} was saved {mode}, this run has {self.mixed_precision!r}"
            )
        wanted = {
            "model": len(self._models), "optimizer": len(self._optimizers),
            "scheduler": len(self._schedulers), "custom_checkpoint": len(self._custom),
            "mp_config": int(self.mixed_precision != "no"),
            **{kind_of(name): 1 for name in checkpoint.IN_ALL},
        }
        saved = Counter(map(kind_of, files))
        for kind in {**wanted, **saved}:
            if saved[kind] != wanted.get(kind, 0):
                raise ValueError(
                    f"load_state(): {folder} holds {saved[kind]} of kind {kind}, this run has "
                    f"{wanted.get(kind, 0)}"
                )
        run = files["accelerator.bin"]
        for kind, ours in self._classes().items():
            if run["classes"][kind] != ours:
                raise ValueError(
                    f"load_state(): {folder} is of {kind} {', '.join(run['classes'][kind])}, this run has "
                    f"{', '.join(ours)}"
                )
        if run["num_processes"] != world.world_size() and world.rank() == 0:
            warnings.warn(
                f"{folder} was saved by {run['num_processes']} processes, and is loaded by "
                f"{world.world_size()}: random numbers will differ from those of an uninterrupted run",
                stacklevel=4,
            )
        loaders = len(files["sampler.bin"][0])
        if loaders != len(self._loaders):
            raise ValueError(
                f"load_state(): {folder / 'sampler.bin'} holds {loaders} loaders, this run has "
                f"{len(self._loaders)}"
            )


def _write(folder: Path, files: StateDict, replace: bool, keep_last: int | None) -> None:
    checkpoint.write(folder, files, replace)
    if keep_last is not None:
        checkpoint.clean(folder.parent, keep_last, written=folder)


def _load_random_states(ranks: list[StateDict]) -> None:
    if world.rank() < len(ranks):
        set_random_states(ranks[world.rank()])


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Adds the file to the errors of what loads its content, which is damaged or of another object."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(f"can't load {path}: {error}") from error
    except ValueError as error:
        raise checkpoint.CheckpointError(f"can't load {path}: {error}") from error
    except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise checkpoint.CheckpointError(f"can't load {path}: {error!r}") from error


def _numbered(kind: str, i: int, suffix: str) -> str:
    return f"{kind}.{suffix}" if i == 0 else f"{kind}_{i}.{suffix}"


def copied(value: T) -> T:
    """Returns nested containers with copies of all arrays, on the CPU; shared memory stays shared."""
    seen: dict[tuple, Tensor] = {}

    def copy(x: Any):
        if isinstance(x, dict):
            return {key: copy(item) for key, item in x.items()}
        if isinstance(x, (list, tuple)):
            return type(x)(copy(item) for item in x)
        if isinstance(x, (Tensor, Array)) or is_raw(x):
            raw = x if is_raw(x) else raw_of(x) if isinstance(x, Tensor) else x._array
            host = raw.copy() if device_of(raw) is CPU else move(raw, CPU)
            if is_raw(x):
                return host
            if isinstance(x, Array):
                return Array(host)
            address = address_of(raw)
            memory = (address, raw.shape, raw.strides, raw.dtype)  # as `serialization` identifies tensors
            return seen.setdefault(memory, Tensor(host)) if raw.size else Tensor(host)
        return x

    return copy(value)
