"""The part of the Accelerator that saves and loads the state of a training run."""

from __future__ import annotations

import random
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .._array import Array
from ..device import is_raw
from ..random import default_generator, rng_states
from ..tensor import Tensor
from . import checkpoint, process
from .mixed_precision import MixedPrecisionOptimizer
from .scaler import GradScaler
from .state import GradientState


class Saving:
    """save_state and load_state: everything that was prepared or registered, exactly."""

    gradient_state: GradientState
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

    def save_state(self, output_dir: Any, *, keep_last: int | None = None, asynchronous: bool = False) -> str:
        """Save models, optimizers, schedules, loaders, the scaler, random states and what was registered.

        The folder is there whole or not at all (see `checkpoint`). All processes call this; the main one
        writes.

        Args:
            output_dir: the checkpoint's folder; with `keep_last`, a folder of checkpoints checkpoint_0,
                checkpoint_1, …
            keep_last: how many of them stay.
            asynchronous: take a copy, and write it while training goes on; `wait_for_checkpoint` waits.

        Returns:
            The checkpoint's folder.

        Raises:
            OSError: writing failed; of an asynchronous one, when it is waited for.
            ValueError: `keep_last` isn't positive.
        """
        if keep_last is not None and keep_last < 1:
            raise ValueError(f"keep_last must be at least 1, got {keep_last}")
        if not self.gradient_state.sync_gradients:
            warnings.warn(
                "save_state() while gradients add up: those of the unfinished window are not saved",
                stacklevel=2,
            )
        self.wait_for_checkpoint()
        files, folder = self._collect(), Path(output_dir)
        if keep_last is not None:
            folder = Path(process.broadcast_object(str(checkpoint.next_numbered(folder))))
        if process.rank() == 0:
            if asynchronous:
                self._writer = threading.Thread(target=self._write, args=(folder, _copied(files), keep_last))
                self._writer.start()
            else:
                self._write(folder, files, keep_last)
                self._raise_write_error()
        if not asynchronous:
            process.barrier()
        return str(folder)

    def _write(self, folder: Path, files: dict[str, Any], keep_last: int | None) -> None:
        try:
            checkpoint.write(folder, files)
            if keep_last is not None:
                checkpoint.clean(folder.parent, keep_last)
        except BaseException as error:
            self._write_error = error

    def wait_for_checkpoint(self) -> None:
        """Return when the last asynchronous checkpoint is on the disk; raise what went wrong with it."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        self._raise_write_error()

    def _raise_write_error(self) -> None:
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
        if self.scaler is not None:
            files["mp_config.bin"] = {"scaler": self.scaler.state_dict(), "float32_weights": masters}
        for kind, objects in (("scheduler", self._schedulers), ("custom_checkpoint", self._custom)):
            for i, obj in enumerate(objects):
                files[_numbered(kind, i, "bin")] = obj.state_dict()
        everybodys = process.all_gather_object(
            {"random": random_states(), "loaders": [loader.state_dict() for loader in self._loaders]}
        )
        files["sampler.bin"] = [rank["loaders"] for rank in everybodys]
        files["random_states.bin"] = [rank["random"] for rank in everybodys]
        files["accelerator.bin"] = {"step": self.gradient_state.step, "num_processes": process.world_size()}
        return files

    def load_state(self, input_dir: Any) -> str:
        """Go on from a checkpoint: the same objects must have been prepared, in the same order.

        Args:
            input_dir: the checkpoint's folder, or the folder of checkpoint_0, checkpoint_1, …, of which the
                last is taken.

        Returns:
            The checkpoint's folder.

        Raises:
            CheckpointError: a file of it is missing, truncated or altered; it says which, and which other
                checkpoint is good.
            ValueError, RuntimeError: it is of other objects.
        """
        self.wait_for_checkpoint()
        folder = checkpoint.newest(Path(input_dir))
        files = checkpoint.read(folder)
        self._check_fits(folder, files)
        for i, model in enumerate(self._models):
            self.unwrap_model(model).load_state_dict(files[_numbered("model", i, "safetensors")])
        for i, wrapped in enumerate(self._optimizers):
            wrapped.optimizer.load_state_dict(files[_numbered("optimizer", i, "bin")])
        if self.scaler is not None:
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
        self.scaler.load_state_dict(state["scaler"])
        halves = [w.optimizer for w in self._optimizers if isinstance(w.optimizer, MixedPrecisionOptimizer)]
        for optimizer, values in zip(halves, state["float32_weights"], strict=True):
            optimizer.load_masters(list(values.values()))

    def _check_fits(self, folder: Path, files: dict[str, Any]) -> None:
        kinds = {
            "model": self._models, "optimizer": self._optimizers, "scheduler": self._schedulers,
            "custom_checkpoint": self._custom,
        }  # fmt: skip
        for kind, objects in kinds.items():
            saved = sum(name.split(".")[0].rstrip("0123456789").rstrip("_") == kind for name in files)
            if saved != len(objects):
                raise ValueError(
                    f"load_state(): {folder} holds {saved} of kind {kind}, this run has {len(objects)}"
                )
        if (self.scaler is not None) != ("mp_config.bin" in files):
            there = "with" if "mp_config.bin" in files else "without"
            raise ValueError(f"load_state(): {folder} was saved {there} mixed precision, this run differs")
        loaders = len(files["sampler.bin"][0])
        if loaders != len(self._loaders):
            raise ValueError(
                f"load_state(): {folder} holds {loaders} loaders, this run has {len(self._loaders)}"
            )


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
            address = (raw.ctypes.data if isinstance(raw, np.ndarray) else raw.data.ptr, raw.shape)
            return seen.setdefault(address, Tensor(host)) if raw.size else Tensor(host)
        return x

    return copy(value)
