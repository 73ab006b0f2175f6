"""The part of the Accelerator that saves and loads the state of a training run."""

from __future__ import annotations

import random
import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..backends.device import is_raw
from ..core.array import Array
from ..core.tensor import Tensor
from ..random import default_generator, rng_states
from . import checkpoint, process
from .mixed_precision import MixedPrecisionOptimizer
from .scaler import GradScaler
from .state import GradientState


class Saving:
    """save_state and load_state: everything that was prepared or registered, exactly."""

    gradient_state: GradientState
    mixed_precision: str
    project_dir: Path | None
    scaler: GradScaler | None
    _models: list
    _optimizers: list
    _schedulers: list
    _loaders: list

    def __init__(self) -> None:
        self._custom: list[Any] = []
        self._writer: threading.Thread | None = None
        self._write_error: BaseException | None = None

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Save these, too: anything with `state_dict()` and `load_state_dict()`.

        Raises:
            ValueError: one has none.
        """
        for obj in objects:
            if not (hasattr(obj, "state_dict") and hasattr(obj, "load_state_dict")):
                raise ValueError(
                    f"register_for_checkpointing(): {type(obj).__name__} has no state_dict() and "
                    "load_state_dict()"
                )
            self._custom.append(obj)

    def save_state(
        self, output_dir: Any = None, *, keep_last: int | None = None, asynchronous: bool = False
    ) -> str:
        """Save models, optimizers, schedules, loaders, the scaler, random states and what was registered.

        The folder is there whole or not at all (see `checkpoint`). All processes call this; the main one
        writes.

        Args:
            output_dir: the checkpoint's folder; with `keep_last`, a folder of checkpoints checkpoint_0,
                checkpoint_1, … None is such a folder, <project_dir>/checkpoints.
            keep_last: how many of them stay; all if None.
            asynchronous: take a copy, and write it while training goes on; `wait_for_checkpoint` waits.

        Returns:
            The checkpoint's folder.

        Raises:
            OSError: writing failed; of an asynchronous one, when it is waited for.
            ValueError: `keep_last` isn't positive; neither `output_dir` nor the Accelerator's `project_dir`.
        """
        if keep_last is not None and (not isinstance(keep_last, int) or keep_last < 1):
            raise ValueError(f"keep_last must be an int of at least 1, got {keep_last!r}")
        if not self.gradient_state.sync_gradients:
            warnings.warn(
                "save_state() while gradients add up: those of the unfinished window are not saved",
                stacklevel=2,
            )
        folder = self._folder("save_state", output_dir)
        is_numbered = output_dir is None or keep_last is not None
        self.wait_for_checkpoint()
        files = self._collect()
        if is_numbered:
            folder = process.on_main(checkpoint.next_numbered, folder)
        write = partial(_write, folder, replace=not is_numbered, keep_last=keep_last)
        if not asynchronous:
            process.on_main(write, files)
        elif process.rank() == 0:
            self._writer = threading.Thread(target=self._write_later, args=(write, _copied(files)))
            self._writer.start()
        return str(folder)

    def _folder(self, where: str, given: Any) -> Path:
        if given is None and self.project_dir is None:
            raise ValueError(f"{where}(): name a folder, or give the Accelerator a project_dir")
        return self.project_dir / "checkpoints" if given is None else Path(given)

    def _write_later(self, write: Callable[[dict], None], files: dict[str, Any]) -> None:
        try:
            write(files)
        except BaseException as error:
            self._write_error = error
            warnings.warn(f"an asynchronous checkpoint was not written: {error!r}", stacklevel=2)

    def wait_for_checkpoint(self) -> None:
        """Return when the last asynchronous checkpoint is on the disk; raise what went wrong with it."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        error, self._write_error = self._write_error, None
        if error is not None:
            raise error

    def _collect(self) -> dict[str, Any]:
        """What each file is to hold."""
        files: dict[str, Any] = {}
        for i, model in enumerate(self._models):
            files[_numbered("model", i, "safetensors")] = self.unwrap_model(model).state_dict()
        masters = []
        for i, wrapped in enumerate(self._optimizers):
            optimizer = wrapped.optimizer
            if isinstance(optimizer, MixedPrecisionOptimizer):
                masters.append(dict(enumerate(optimizer.masters())))
            inner = getattr(optimizer, "optimizer", optimizer)
            whole = getattr(inner, "consolidate_state_dict", None)
            if whole is not None:
                whole(0)  # then only the main process has it
            if whole is None or process.rank() == 0:
                files[_numbered("optimizer", i, "bin")] = optimizer.state_dict()
        if self.mixed_precision != "no":
            scaler = None if self.scaler is None else self.scaler.state_dict()
            files["mp_config.bin"] = {
                "precision": self.mixed_precision, "scaler": scaler, "float32_weights": masters,
            }  # fmt: skip
        for kind, objects in (("scheduler", self._schedulers), ("custom_checkpoint", self._custom)):
            for i, obj in enumerate(objects):
                files[_numbered(kind, i, "bin")] = obj.state_dict()
        everybodys = process.all_gather_object(
            {"random": random_states(), "loaders": [loader.state_dict() for loader in self._loaders]}
        )
        files["sampler.bin"] = [rank["loaders"] for rank in everybodys]
        files["random_states.bin"] = [rank["random"] for rank in everybodys]
        files["accelerator.bin"] = {
            "step": self.gradient_state.step,
            "num_processes": process.world_size(),
            "classes": self._classes(),
        }
        return files

    def _classes(self) -> dict[str, list[str]]:
        """Of optimizers and schedules, whose states say nothing of what they are for."""
        optimizers = [getattr(w.optimizer, "optimizer", w.optimizer) for w in self._optimizers]
        optimizers = [getattr(optimizer, "optim", optimizer) for optimizer in optimizers]  # what ZeRO shards
        return {
            "optimizer": [type(optimizer).__name__ for optimizer in optimizers],
            "scheduler": [type(prepared.scheduler).__name__ for prepared in self._schedulers],
        }

    def load_state(self, input_dir: Any = None, *, last_good: bool = False) -> str | None:
        """Go on from a checkpoint: the same objects must have been prepared, in the same order.

        All processes call this. A script that may be started again begins with
        `load_state(folder, last_good=True)`.

        Args:
            input_dir: the checkpoint's folder, or the folder of checkpoint_0, checkpoint_1, …, of which the
                last is taken; None is <project_dir>/checkpoints.
            last_good: if that one is damaged, warn, and take the last one that is whole; if there is none,
                do nothing.

        Returns:
            The checkpoint's folder; None if there is none.

        Raises:
            CheckpointError: there is none, or a file of it is missing, truncated or altered; it says which,
                and which other checkpoint is good. With `last_good`: all are damaged.
            ValueError, RuntimeError: it is of other objects; there is neither `input_dir` nor `project_dir`.
        """
        given = self._folder("load_state", input_dir)
        self.wait_for_checkpoint()
        find = checkpoint.last_good if last_good else checkpoint.newest
        folder = process.on_main(find, given)  # all processes go on from the same one
        if folder is None:
            if last_good:
                return None
            raise checkpoint.CheckpointError(f"there is no checkpoint in {given}")
        files = checkpoint.read(folder)
        self._check_fits(folder, files)
        for i, model in enumerate(self._models):
            self.unwrap_model(model).load_state_dict(files[_numbered("model", i, "safetensors")])
        for i, wrapped in enumerate(self._optimizers):
            wrapped.optimizer.load_state_dict(files[_numbered("optimizer", i, "bin")])
        if self.mixed_precision != "no":
            self._load_mixed_precision(files["mp_config.bin"])
        for kind, objects in (("scheduler", self._schedulers), ("custom_checkpoint", self._custom)):
            for i, obj in enumerate(objects):
                obj.load_state_dict(files[_numbered(kind, i, "bin")])
        ranks = files["sampler.bin"]
        mine = ranks[min(process.rank(), len(ranks) - 1)]
        for loader, state in zip(self._loaders, mine, strict=True):
            loader.load_state_dict(state)
        if process.rank() < len(files["random_states.bin"]):
            set_random_states(files["random_states.bin"][process.rank()])
        self.gradient_state.step = files["accelerator.bin"]["step"]
        return str(folder)

    def _load_mixed_precision(self, state: dict[str, Any]) -> None:
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        halves = [w.optimizer for w in self._optimizers if isinstance(w.optimizer, MixedPrecisionOptimizer)]
        for optimizer, values in zip(halves, state["float32_weights"], strict=True):
            optimizer.load_masters(list(values.values()))

    def _check_fits(self, folder: Path, files: dict[str, Any]) -> None:
        saved_in = files["mp_config.bin"].get("precision", "fp16") if "mp_config.bin" in files else "no"
        if saved_in != self.mixed_precision:
            there = "without mixed precision" if saved_in == "no" else f"with mixed precision {saved_in!r}"
            raise ValueError(
                f"load_state(): {folder} was saved {there}, this run has {self.mixed_precision!r}"
            )
        wanted = {
            "model": len(self._models), "optimizer": len(self._optimizers),
            "scheduler": len(self._schedulers), "custom_checkpoint": len(self._custom),
            "mp_config": int(self.mixed_precision != "no"), **{_kind(name): 1 for name in checkpoint.IN_ALL},
        }  # fmt: skip
        saved = Counter(map(_kind, files))
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
        if run["num_processes"] != process.world_size() and process.rank() == 0:
            warnings.warn(
                f"{folder} was saved by {run['num_processes']} processes, and is loaded by "
                f"{process.world_size()}: random numbers will be others than without a break",
                stacklevel=3,
            )
        loaders = len(files["sampler.bin"][0])
        if loaders != len(self._loaders):
            raise ValueError(
                f"load_state(): {folder} holds {loaders} loaders, this run has {len(self._loaders)}"
            )


def _write(folder: Path, files: dict[str, Any], replace: bool, keep_last: int | None) -> None:
    checkpoint.write(folder, files, replace)
    if keep_last is not None:
        checkpoint.clean(folder.parent, keep_last)


def random_states() -> dict[str, Any]:
    """Where the random numbers of Python, NumPy and mytorch are."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "mytorch": {str(place): state for place, state in rng_states().items()},
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Go on from `random_states`; devices that aren't there are passed over."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    for place, state in states["mytorch"].items():
        try:
            generator = default_generator(place)
        except RuntimeError:  # a GPU that this machine doesn't have
            continue
        generator.set_state(state)


def _kind(name: str) -> str:
    """model of model_2.safetensors"""
    return re.sub(r"_\d+$", "", name.partition(".")[0])


def _numbered(kind: str, i: int, suffix: str) -> str:
    return f"{kind}.{suffix}" if i == 0 else f"{kind}_{i}.{suffix}"


def _copied(value: Any) -> Any:
    """Nested containers with copies of all arrays, on the CPU; what is one memory stays one."""
    seen: dict[int, Any] = {}

    def copy(x: Any) -> Any:
        if isinstance(x, dict):
            return {key: copy(item) for key, item in x.items()}
        if isinstance(x, (list, tuple)):
            return type(x)(copy(item) for item in x)
        if isinstance(x, (Tensor, Array)) or is_raw(x):
            raw = x if is_raw(x) else x.data._array if isinstance(x, Tensor) else x._array
            host = raw.copy() if isinstance(raw, np.ndarray) else raw.get()
            if is_raw(x):
                return host
            if isinstance(x, Array):
                return Array(host)
            address = raw.ctypes.data if isinstance(raw, np.ndarray) else raw.data.ptr
            memory = (address, raw.shape, raw.strides, raw.dtype)  # as `serialization` knows what is the same
            return seen.setdefault(memory, Tensor(host)) if raw.size else Tensor(host)
        return x

    return copy(value)
