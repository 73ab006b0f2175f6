"""Plots the losses of a training run."""

from __future__ import annotations

import json
from pathlib import Path

from .atomic import atomic_write


def draw_loss_curve(metrics: str | Path, picture: str | Path, title: str = "") -> None:
    """Plots the losses of a metrics.jsonl over the iterations and saves the plot as a PNG.

    Args:
        metrics: file with one JSON object per line: "iteration", and "loss" (of a training batch) or
            "val_loss"; other keys are ignored.
        picture: path of the PNG.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `metrics` contains no losses.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plotting the losses requires matplotlib: pip install matplotlib") from error
    lines = [json.loads(line) for line in Path(metrics).read_text(encoding="utf-8").splitlines()]
    # The last value of an iteration is used: the loss of the whole split follows an estimate.
    train, val = ({m["iteration"]: m[key] for m in lines if key in m} for key in ("loss", "val_loss"))
    if not train and not val:
        raise ValueError(f"{metrics} contains no losses")
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(*_points(train), color="#9db8d9", linewidth=1, label="train, one batch")
    axes.plot(*_points(val), color="#c0392b", marker="o", markersize=4, label="validation")
    if val:
        last = max(val)
        style = {"xytext": (0, 8), "textcoords": "offset points", "ha": "right", "color": "#c0392b"}
        axes.annotate(f"{val[last]:.3f}", (last, val[last]), **style)
    axes.set(xlabel="iteration", ylabel="cross entropy (nats per token)", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic_write(picture) as path:
        figure.savefig(path, format="png")


def _points(losses: dict[int, float]) -> tuple[list[int], list[float]]:
    return sorted(losses), [losses[iteration] for iteration in sorted(losses)]
