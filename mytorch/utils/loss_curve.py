"""Plots the losses of a training run."""

from __future__ import annotations

from numbers import Real
from pathlib import Path

from .atomic import atomic_write
from .reading import read_json_lines


def draw_loss_curve(metrics: str | Path, picture: str | Path, title: str = "") -> None:
    """Plots the losses of a metrics.jsonl over the iterations and saves the plot as a PNG.

    Args:
        metrics: file with one JSON object per line: "iteration", and "loss" (of a training batch) or
            "val_loss"; other keys are ignored.
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
    train, val = (_losses(metrics, lines, key) for key in ("loss", "val_loss"))
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


def _losses(metrics: str | Path, lines: list[dict], key: str) -> dict[int, float]:
    found = [m for m in lines if key in m]
    for m in found:
        if not isinstance(m[key], Real) or not isinstance(m.get("iteration"), Real):
            raise ValueError(f"{metrics} is damaged: expected numbers as iteration and {key}, got {m}")
    return {m["iteration"]: m[key] for m in found}


def _points(losses: dict[int, float]) -> tuple[list[int], list[float]]:
    return sorted(losses), [losses[iteration] for iteration in sorted(losses)]
