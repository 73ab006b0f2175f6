"""Trackers: where a run's losses and settings are written to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..core.tensor import Tensor


class Tracker:
    """Base of the trackers; `tracker` is what does the work."""

    name: str
    tracker: Any = None

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep the settings of the run."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Write numbers, by name."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define log()")

    def finish(self) -> None:
        """Write what is left, at the end of the run."""


class JsonlTracker(Tracker):
    """A line of JSON for each `log`, in <folder>/<run>.jsonl; the settings in <folder>/<run>.json.

    Args:
        step_name: what the step is called.
        start: the step that a run goes on from: what was written after it is dropped; 0 begins a new file.
            None keeps all.
    """

    name = "jsonl"

    def __init__(self, run_name: str, folder: Path, step_name: str = "step", start: int | None = None):
        self._config, path = folder / f"{run_name}.json", folder / f"{run_name}.jsonl"
        self._config.parent.mkdir(parents=True, exist_ok=True)
        self._step_name = step_name
        if start is not None:
            path.write_text("".join(_lines_until(path, step_name, start)), encoding="utf-8")
        self.tracker = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._config.write_text(json.dumps(values, default=str, indent=2) + "\n", encoding="utf-8")

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        line = values if step is None else {self._step_name: step, **values}
        self.tracker.write(json.dumps(line, default=str) + "\n")

    def finish(self) -> None:
        self.tracker.close()


def _lines_until(path: Path, step_name: str, last: int) -> list[str]:
    """The lines up to a step; one that a killed process has left half-written isn't among them."""
    if not last or not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n") and json.loads(line).get(step_name, 0) <= last]


class WandbTracker(Tracker):
    """Weights & Biases; `kwargs` go to `wandb.init`."""

    name = "wandb"

    def __init__(self, run_name: str, folder: Path, **kwargs: Any):
        self._wandb = _imported("wandb", "wandb")
        self.tracker = self._wandb.init(project=run_name, **kwargs)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.tracker.config.update(values, allow_val_change=True)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.tracker.log(values, step=step, **kwargs)

    def finish(self) -> None:
        self.tracker.finish()


class TensorBoardTracker(Tracker):
    """TensorBoard's files, in <folder>/<run>; `kwargs` go to tensorboardX's `SummaryWriter`."""

    name = "tensorboard"

    def __init__(self, run_name: str, folder: Path, **kwargs: Any):
        writer = _imported("tensorboardX", "tensorboardX").SummaryWriter
        self.tracker = writer(str(folder / run_name), **kwargs)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.tracker.add_text("config", json.dumps(values, default=str, indent=2))

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


TRACKERS = {kind.name: kind for kind in (JsonlTracker, WandbTracker, TensorBoardTracker)}


def check_names(names: Any) -> list[Any]:
    """The trackers that were asked for: names, or Tracker objects.

    Raises:
        ValueError: there is no such tracker.
    """
    names = [] if names is None else list(names) if isinstance(names, (list, tuple)) else [names]
    for name in names:
        if not isinstance(name, Tracker) and name not in TRACKERS:
            raise ValueError(f"there is no tracker {name!r}, but {', '.join(TRACKERS)}")
    return names


def numbers(value: Any) -> Any:
    """Nested dicts, lists and tuples with Python numbers in the place of tensors and arrays.

    Those of one element are numbers, whatever their shape; others are nested lists.
    """
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(item) for item in value]
    if isinstance(value, Tensor) or hasattr(value, "tolist"):
        value = value.tolist()
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
    return value


def _imported(module: str, package: str) -> Any:
    try:
        return __import__(module)
    except ImportError as error:
        raise ImportError(f"this tracker needs the package {package}: pip install {package}") from error
