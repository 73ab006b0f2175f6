"""The part of the Accelerator that writes down how a run goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import process
from .trackers import TRACKERS, Tracker, check_names, numbers


class Tracking:
    """init_trackers, log, end_training; only the main process writes."""

    def __init__(self, log_with: Any, log_wandb: bool, project_dir: Any) -> None:
        names = check_names(log_with)
        self._log_with = [*names, "wandb"] if log_wandb and "wandb" not in names else names
        self.project_dir = None if project_dir is None else Path(project_dir)
        self.trackers: list[Tracker] = []

    def init_trackers(
        self, project_name: str, config: dict | None = None, init_kwargs: dict[str, dict] | None = None
    ) -> None:
        """Start the trackers that the Accelerator was made with, anew if they are running.

        Args:
            project_name: of the run.
            config: its settings.
            init_kwargs: {name of a tracker: its own options}.
        """
        self._finish_trackers()
        if process.rank() != 0:
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
        """A tracker by name; `unwrap` gives what is behind it, such as wandb's run."""
        for tracker in self.trackers:
            if tracker.name == name:
                return tracker.tracker if unwrap else tracker
        if process.rank() != 0:
            return Tracker()
        raise ValueError(
            f"there is no tracker {name!r}; init_trackers() started {[t.name for t in self.trackers]}"
        )

    def log(self, values: dict, step: int | None = None, log_kwargs: dict[str, dict] | None = None) -> None:
        """Write numbers by name; tensors of one element are numbers, too, and larger ones lists."""
        for tracker in self.trackers:
            tracker.log(numbers(values), step=step, **(log_kwargs or {}).get(tracker.name, {}))

    def _finish_trackers(self) -> None:
        for tracker in self.trackers:
            tracker.finish()
        self.trackers = []
