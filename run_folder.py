"""
The folder of a training run, which train_gpt2.py and finetune_gpt2.py write:

    checkpoints/                 the last states; checkpoints.old/ those of an earlier run
    config.json, tokenizer.json  of the model
    metrics.jsonl                losses, gradient norm, … by iteration
    loss.png                     the curves of these
"""

from __future__ import annotations

import functools
import math
import os
import shutil
import sys
from argparse import Namespace
from numbers import Real
from pathlib import Path
from typing import Any

from mytorch.accelerate import Accelerator
from mytorch.accelerate.tracking import JsonlTracker
from mytorch.models.language_model import LanguageModel
from mytorch.tokenizers import load_tokenizer
from mytorch.utils import atomic_write
from mytorch.utils.reading import read_json_lines
from mytorch.utils.writing import finite_json_text

LARGEST = 1e100  # that a picture shows: matplotlib computes distances between values


class Run:
    """The progress of a run; saved with each checkpoint."""

    def __init__(self, config: dict[str, Any], args: Namespace):
        self.iteration, self.best_val_loss = 0, math.inf
        self.config = config
        self.arguments = {k: v for k, v in vars(args).items() if not k.startswith("resume")}

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["config"] != self.config:
            raise ValueError(f"it is of another model: {state['config']}, not {self.config}")
        iteration, best = state["iteration"], state["best_val_loss"]
        if not isinstance(iteration, int) or iteration < 0 or not isinstance(best, float):
            raise ValueError(f"its iteration is {iteration!r} and its best loss {best!r}")
        self.iteration, self.best_val_loss = iteration, best


def resume(accelerator: Accelerator, run: Run, folder: str | os.PathLike, is_wanted: bool) -> bool:
    """Loads the last checkpoint if that is wanted; a run restarted by the launcher loads the last good one,
    if any. Returns whether the run is continued.

    Raises:
        SystemExit: no checkpoint, one that is damaged, or one of another model.
    """
    is_restarted = os.environ.get("MYTORCH_RESTART_COUNT", "0") != "0"
    if not (is_wanted or is_restarted):
        return False
    try:
        accelerator.load_state(Path(folder) / "checkpoints", last_good=is_restarted)
    except RuntimeError:  # its message lists all parameters
        raise SystemExit(f"the checkpoint in {folder} is of another model, not {run.config}") from None
    except ValueError as error:
        raise SystemExit(f"can't resume from {folder}: {error}") from None
    return True


def make_run_folder(
    folder: str | os.PathLike, config: dict[str, Any], tokenizer: str | os.PathLike, is_new: bool
) -> None:
    """Makes the folder of a run, with config.json and, if the tokenizer's file exists, tokenizer.json.

    Args:
        is_new: renames the checkpoints of an earlier run in the folder to checkpoints.old.

    Raises:
        SystemExit: the folder can't be made.
    """
    folder, tokenizer = make_folder(folder), Path(tokenizer)
    if is_new:
        set_checkpoints_aside(folder)
    with atomic_write(folder / "config.json") as partial:
        partial.write_text(finite_json_text(config, indent=2) + "\n")
    if tokenizer.exists():
        with atomic_write(folder / "tokenizer.json") as partial:
            shutil.copyfile(tokenizer, partial)


def make_folder(folder: str | os.PathLike) -> Path:
    """Makes a folder for results, if it doesn't exist, and returns its path.

    Raises:
        SystemExit: it can't be made.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"can't make the folder {folder}: {error}") from None
    return folder


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


def save_loss_curve(folder: Path) -> None:
    """Draws the curves of a run into its loss.png and prints the path, or that matplotlib is missing."""
    try:
        draw_loss_curve(folder / "metrics.jsonl", folder / "loss.png", folder.name)
        print(f"loss curve: {folder / 'loss.png'}")
    except ImportError as error:
        print(error)


def draw_loss_curve(metrics: str | Path, picture: str | Path, title: str = "") -> None:
    """Plots the losses of a metrics.jsonl over the iterations and saves the plot as a PNG.

    Below them is the norm of the gradients before clipping, where it was logged: it shows in which step a
    loss jumped, and whether clipping acts in all steps or in few.

    Args:
        metrics: file with one JSON object per line: "iteration", and "loss" (of a training batch),
            "val_loss" or "grad_norm"; other keys are ignored.
        picture: path of the PNG.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `metrics` is damaged, or contains no losses.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plotting the losses requires matplotlib: pip install matplotlib") from error
    lines = [content for _, content in read_json_lines(metrics)]
    # The last value of an iteration is used: the loss of the whole split follows an estimate.
    train, val, norms = (_values(metrics, lines, key) for key in ("loss", "val_loss", "grad_norm"))
    if not train and not val:
        raise ValueError(f"{metrics} contains no losses")
    figure = Figure(figsize=(8, 6 if norms else 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes, *below = figure.subplots(2, sharex=True, height_ratios=(3, 1)) if norms else [figure.add_subplot()]
    axes.plot(*_points(train), color="#9db8d9", linewidth=1, label="train, one batch")
    axes.plot(*_points(val), color="#c0392b", marker="o", markersize=4, label="validation")
    if val:
        last = max(val)
        style = {"xytext": (0, 8), "textcoords": "offset points", "ha": "right", "color": "#c0392b"}
        axes.annotate(f"{val[last]:.3f}", (last, val[last]), **style)
    axes.set(ylabel="cross entropy (nats per token)", title=title)
    axes.legend()
    for lower in below:
        lower.plot(*_points(norms), color="#5b8c5a", linewidth=1)
        lower.set(ylabel="gradient norm", ylim=(0, None))
    for each in (axes, *below):
        each.grid(alpha=0.3)
    figure.axes[-1].set_xlabel("iteration")
    with atomic_write(picture) as path:
        figure.savefig(path, format="png")


def _values(metrics: str | Path, lines: list[dict], key: str) -> dict[int, float]:
    found = [m for m in lines if key in m]
    for m in found:
        if not isinstance(m[key], Real) or not isinstance(m.get("iteration"), Real):
            raise ValueError(f"{metrics} is damaged: expected numbers as iteration and {key}, got {m}")
        if any([LARGEST < abs(m[name]) < math.inf for name in ("iteration", key)]):
            raise ValueError(f"{metrics} is damaged: no picture can show {m}")
    return {m["iteration"]: m[key] for m in found}


def _points(values: dict[int, float]) -> tuple[list[int], list[float]]:
    return sorted(values), [values[iteration] for iteration in sorted(values)]
