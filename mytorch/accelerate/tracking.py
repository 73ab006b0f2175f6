"""Trackers, which write losses and settings of a run; and the part of the Accelerator that calls them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.tensor import Tensor
from ..utils.atomic import atomic_write
from ..utils.reading import check_regular, read_json_lines
from ..utils.writing import json_text
from . import world


class Tracker:
    """Base of the trackers; `tracker` is the wrapped object: a file, a run, a writer."""

    name: str
    package: str | None = None  # that must be installed
    tracker: Any = None  # of another library

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Stores the settings of the run."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Writes values by name."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define log()")

    def finish(self) -> None:
        """Flushes and closes, at the end of the run."""


class JsonlTracker(Tracker):
    """Writes a line of JSON for each `log` into <folder>/<run>.jsonl; the settings into <folder>/<run>.json.

    A number that isn't finite is null, with the word beside it: {"loss": null, "loss_nonfinite": "NaN"}.

    Args:
        step_name: the key of the step.
        start: the step from which a run resumes: later lines of the file are removed; 0 starts a new file.
            None keeps all lines.

    Raises:
        OSError: the file is a FIFO, a socket or a device, or can't be written.
        ValueError: a line of the file is damaged; the message names it.
    """

    name = "jsonl"

    def __init__(self, run_name: str, folder: Path, step_name: str = "step", start: int | None = None):
        self._config, path = folder / f"{run_name}.json", folder / f"{run_name}.jsonl"
        self._config.parent.mkdir(parents=True, exist_ok=True)
        self._step_name = step_name
        if path.exists():
            check_regular(path, "write")
        if start is not None:
            lines = _lines_until(path, step_name, start)
            with atomic_write(path) as partial:
                partial.write_bytes(b"".join(lines))
        self.tracker = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        with atomic_write(self._config) as partial:
            partial.write_text(json_text(values, default=str, indent=2) + "\n", encoding="utf-8")

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        line = values if step is None else {self._step_name: step, **values}
        self.tracker.write(json_text(line, default=str) + "\n")

    def finish(self) -> None:
        self.tracker.close()


def _lines_until(path: Path, step_name: str, last: int) -> list[bytes]:
    """Returns the lines up to a step, without one that a killed process left half-written."""
    if not last or not path.exists():
        return []
    lines = []
    for line, content in read_json_lines(path):
        step = content.get(step_name, 0)
        if not isinstance(step, (int, float)):
            raise ValueError(f"{path} is damaged: expected a number as {step_name}, got {step!r}")
        if step <= last:
            lines.append(line)
    return lines


class WandbTracker(Tracker):
    """Logs to Weights & Biases; `kwargs` are those of `wandb.init`."""

    name = package = "wandb"

    def __init__(self, run_name: str, folder: Path, **kwargs: Any):
        self.tracker = importlib.import_module(self.package).init(project=run_name, **kwargs)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.tracker.config.update(values, allow_val_change=True)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.tracker.log(values, step=step, **kwargs)

    def finish(self) -> None:
        self.tracker.finish()


class TensorBoardTracker(Tracker):
    """Writes TensorBoard's files into <folder>/<run>; `kwargs` go to tensorboardX's `SummaryWriter`."""

    name, package = "tensorboard", "tensorboardX"

    def __init__(self, run_name: str, folder: Path, **kwargs: Any):
        writer = importlib.import_module(self.package).SummaryWriter
        self.tracker = writer(str(folder / run_name), **kwargs)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.tracker.add_text("config", json_text(values, default=str, indent=2))

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        for name, value in values.items():
            if isinstance(value, str):
                self.tracker.add_text(name, value, step, **kwargs)
            elif isinstance(value, dict):
                self.tracker.add_scalars(name, value, step, **kwargs)
            elif isinstance(value, (int, float)):
                self.tracker.add_scalar(name, value, step, **kwargs)
            else:
                raise TypeError(
                    f"tensorboard takes numbers, strings and dicts of numbers, got {value!r} for {name!r}"
                )
        self.tracker.flush()

    def finish(self) -> None:
        self.tracker.close()


PROJECT_NAME = "mytorch"  # of runs that weren't given a name
LogWith = str | Tracker | Sequence[str | Tracker] | None
TRACKERS = {kind.name: kind for kind in (JsonlTracker, WandbTracker, TensorBoardTracker)}


def check_names(names: LogWith) -> list[str | Tracker]:
    """Returns the list of trackers to start: names or Tracker objects.

    Raises:
        ValueError: a name is unknown.
    """
    names = [] if names is None else list(names) if isinstance(names, (list, tuple)) else [names]
    for name in names:
        if not isinstance(name, Tracker) and name not in TRACKERS:
            raise ValueError(f"unknown tracker {name!r}; the trackers are {', '.join(TRACKERS)}")
    return names


def scalars(value: object) -> Any:
    """Returns nested dicts, lists and tuples with tensors and arrays replaced by Python numbers.

    A tensor of one element becomes a number, whatever its shape; others become nested lists.
    """
    if isinstance(value, dict):
        return {key: scalars(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [scalars(item) for item in value]
    if isinstance(value, Tensor) or hasattr(value, "tolist"):
        value = value.tolist()
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
    return value


def _check_installed(names: list[str | Tracker]) -> None:
    for name in names:
        package = TRACKERS[name].package if isinstance(name, str) else None
        if package is not None and not _is_installed(package):
            raise ImportError(f"log_with={name!r} needs the package {package}: pip install {package}")


def _is_installed(package: str) -> bool:
    if package in sys.modules:
        return sys.modules[package] is not None
    return importlib.util.find_spec(package) is not None


class Tracking:
    """init_trackers, get_tracker, log; only the main process writes."""

    def __init__(self, log_with: LogWith, log_wandb: bool, project_dir: str | os.PathLike | None) -> None:
        names = check_names(log_with)
        self._log_with = [*names, "wandb"] if log_wandb and "wandb" not in names else names
        self.project_dir = None if project_dir is None else Path(project_dir)
        self.trackers: list[Tracker] = []
        self._has_trackers = False  # whether init_trackers() was called

    def check_trackers(self) -> None:
        """Raises ImportError, on all processes, if the main one lacks a tracker's package."""
        if any(isinstance(name, str) and TRACKERS[name].package for name in self._log_with):
            world.on_main(_check_installed, self._log_with)

    def init_trackers(
        self, project_name: str, config: dict | None = None, init_kwargs: dict[str, dict] | None = None
    ) -> None:
        """Starts the trackers of `log_with`; running ones are closed and started again.

        Args:
            project_name: name of the run.
            config: settings of the run.
            init_kwargs: options of each tracker, by its name.
        """
        self._finish_trackers()
        self._has_trackers = True
        if world.rank() != 0:
            return
        for name in self._log_with:
            tracker = name
            if not isinstance(name, Tracker):
                options = (init_kwargs or {}).get(name, {})
                tracker = TRACKERS[name](project_name, self.project_dir or Path("."), **options)
            self.trackers.append(tracker)
            if config:
                tracker.store_init_configuration(config)

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """Returns a tracker by name; with `unwrap` its `tracker`, such as wandb's run."""
        for tracker in self.trackers:
            if tracker.name == name:
                return tracker.tracker if unwrap else tracker
        if world.rank() != 0:
            return Tracker()
        raise ValueError(
            f"unknown tracker {name!r}; init_trackers() started {[t.name for t in self.trackers]}"
        )

    def log(self, values: dict, step: int | None = None, log_kwargs: dict[str, dict] | None = None) -> None:
        """Writes values by name; tensors of one element are written as numbers, larger ones as lists.

        The first call starts the trackers of `log_with`, unless `init_trackers()` did: as PROJECT_NAME.
        """
        if not self._has_trackers:
            self.init_trackers(PROJECT_NAME)
        for tracker in self.trackers:
            tracker.log(scalars(values), step=step, **(log_kwargs or {}).get(tracker.name, {}))

    def _finish_trackers(self) -> None:
        for tracker in self.trackers:
            tracker.finish()
        self.trackers = []
