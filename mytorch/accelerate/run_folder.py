"""The folder of a training run: checkpoints, the model's configuration and tokenizer, metrics.jsonl."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from ..utils import atomic_write
from .tracking import JsonlTracker


def make_run_folder(
    folder: str | os.PathLike, config: dict[str, Any], tokenizer: str | os.PathLike, is_new: bool
) -> None:
    """Makes the folder of a run, with config.json and, if the tokenizer's file exists, tokenizer.json.

    Args:
        is_new: renames the checkpoints of an earlier run in the folder to checkpoints.old.
    """
    folder, tokenizer = Path(folder), Path(tokenizer)
    folder.mkdir(parents=True, exist_ok=True)
    if is_new:
        set_checkpoints_aside(folder)
    with atomic_write(folder / "config.json") as partial:
        partial.write_text(json.dumps(config, indent=2) + "\n")
    if tokenizer.exists():
        with atomic_write(folder / "tokenizer.json") as partial:
            shutil.copyfile(tokenizer, partial)


def set_checkpoints_aside(folder: str | os.PathLike) -> None:
    """Renames the checkpoints of an earlier run in the folder to checkpoints.old."""
    checkpoints, old = Path(folder, "checkpoints"), Path(folder, "checkpoints.old")
    if checkpoints.exists():
        shutil.rmtree(old, ignore_errors=True)
        checkpoints.rename(old)


def open_metrics(folder: str | os.PathLike, iteration: int) -> JsonlTracker:
    """Returns the tracker that continues the run's metrics.jsonl after this iteration.

    Raises:
        SystemExit: it can't be read, or is damaged.
    """
    try:
        return JsonlTracker("metrics", folder, "iteration", start=iteration)
    except (OSError, ValueError) as error:
        raise SystemExit(f"can't resume from {folder}: {error}") from None
