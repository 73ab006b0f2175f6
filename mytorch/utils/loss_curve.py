"""Plots the losses of a training run, and the norm of its gradients."""

from __future__ import annotations

from numbers import Real
from pathlib import Path

from .atomic import atomic_write
from .reading import read_json_lines


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
    return {m["iteration"]: m[key] for m in found}


def _points(values: dict[int, float]) -> tuple[list[int], list[float]]:
    return sorted(values), [values[iteration] for iteration in sorted(values)]
