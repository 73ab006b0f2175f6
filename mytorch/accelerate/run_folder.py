"""The folder of a training run: checkpoints, the model's configuration and tokenizer, metrics.jsonl.

`sample_text` shows what the model writes so far, decoded by that tokenizer.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from ..models.language_model import LanguageModel
from ..tokenizers import load_tokenizer
from ..utils import atomic_write
from ..utils.writing import finite_json_text
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
        partial.write_text(finite_json_text(config, indent=2) + "\n")
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


def sample_text(model: LanguageModel, folder: str | os.PathLike, count: int, seed: int = 0) -> str:
    """Returns `count` tokens of a model as text, after a line break; "" without a tokenizer in the folder.

    The random numbers are the sample's own. A model that has become NaN has no text, but an error.
    """
    tokenizer = _tokenizer_of(Path(folder)) if count else None
    if tokenizer is None:
        return ""
    try:
        prompt = tokenizer.encode("\n")
    except ValueError:  # a text without line breaks
        prompt = [0]
    was_training = model.training
    try:
        (tokens,) = model.eval().generate([prompt], count, 0.8, top_k=200, seed=seed)
    except RuntimeError as error:
        return f"({error})"
    finally:
        model.train(was_training)
    known = [i for i in tokens[len(prompt) :] if i < tokenizer.vocab_size]  # GPT-2's is rounded up
    return tokenizer.decode_bytes(known).decode(errors="replace")


@functools.cache
def _tokenizer_of(folder: Path) -> Any:
    try:
        return load_tokenizer(folder)
    except (ImportError, OSError, ValueError) as error:
        print(f"no samples of text: {error}", file=sys.stderr)
        return None
