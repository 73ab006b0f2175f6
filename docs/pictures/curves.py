"""The pictures of measured figures: the loss of a training run, and the times of benchmarks."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from canvas import BLACK, BLUE, GRAY, LIGHT, LIGHT_GRAY, RED, WHITE, Canvas

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def draw_loss(metrics: Path) -> Canvas:
    """Returns the loss curve of a training run, from its metrics.jsonl."""
    rows = [json.loads(row) for row in metrics.read_text().splitlines()]
    train = [(row["iteration"], row["loss"]) for row in rows if "loss" in row]
    val = [(row["iteration"], row["val_loss"]) for row in rows if "val_loss" in row]
    last = next((row for row in rows if row.get("whole_split")), None)
    if last is None:
        raise SystemExit(f"{metrics}: the loss over the whole validation split is missing")
    canvas = Canvas(400)
    canvas.text(26, 32, "A GPT learns Tiny Shakespeare, character by character", 13, bold=True)
    axes = canvas.figure.add_axes((0.085, 0.14, 0.885, 0.715), facecolor=WHITE)
    axes.plot(*zip(*train, strict=True), color="#8fb0d9", linewidth=1, label="training, one batch")
    axes.plot(*zip(*val, strict=True), color=RED, marker="o", markersize=4, clip_on=False, label="validation")
    axes.annotate(
        f"{last['val_loss']:.3f} over the whole validation split", (last["iteration"], last["val_loss"]),
        xytext=(-4, 34), textcoords="offset points", ha="right", color=RED, size=10.5, weight="bold",
        arrowprops={"arrowstyle": "-", "color": RED, "linewidth": 1},
    )
    axes.set_xlim(0, last["iteration"] * 1.015)
    axes.set_xlabel("iteration", color=GRAY)
    axes.set_ylabel("cross entropy, nats a character", color=GRAY)
    axes.tick_params(colors=GRAY, labelsize=9.5)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(color=LIGHT_GRAY, linewidth=0.6, alpha=0.7)
    axes.spines[:].set_color(LIGHT_GRAY)
    axes.legend(frameon=False, labelcolor=BLACK, loc="upper right")
    return canvas


CONFIGS = {  # of benchmarks.gpt_step
    "nano": "4 layers, 128 wide", "small": "6 layers, 384 wide", "gpt2": "GPT-2, 124 M parameters",
}
MACHINES = {"amd": "AMD EPYC (Zen 5)", "intel": "Intel Xeon"}
LEFT, WIDTH, TOP = 300, 340, 84  # where bars begin, and how long PyTorch's would be


def draw_benchmarks() -> Canvas:
    """Returns the times of a training step beside PyTorch's, which are 1."""
    canvas = Canvas(TOP + 92 * len(CONFIGS) + 40)
    canvas.text(26, 32, "A training step of a GPT, as a share of PyTorch eager's time", 13, bold=True)
    canvas.text(26, 58, "two cores, medians of three runs, each beside PyTorch in the same run", 9.5, GRAY)
    for i, (config, description) in enumerate(CONFIGS.items()):
        y = TOP + 92 * i
        canvas.text(26, y + 27, config, 11, code=True, bold=True)
        canvas.text(26, y + 49, description, 9, GRAY)
        for j, (machine, name) in enumerate(MACHINES.items()):
            _draw_bar(canvas, y + 38 * j, name, *_times(config, machine))
    bottom = TOP + 92 * len(CONFIGS)
    canvas.line((LEFT + WIDTH, TOP - 6), (LEFT + WIDTH, bottom - 14), color=GRAY, linewidth=1.2)
    canvas.text(LEFT + WIDTH, bottom + 4, "PyTorch 2.13", 9.5, GRAY, ha="center")
    canvas.text(LEFT, bottom + 4, "0", 9.5, GRAY, ha="center")
    return canvas


def _draw_bar(canvas: Canvas, y: float, name: str, torch: float, ours: float) -> None:
    ratio = ours / torch
    canvas.text(LEFT - 12, y + 15, name, 8.8, GRAY, ha="right")
    canvas.box(LEFT, y + 3, WIDTH * ratio, 24, LIGHT[BLUE], BLUE, radius=3)
    canvas.text(LEFT + 10, y + 15, f"{ratio:.2f}", 10.5, BLUE, bold=True)
    canvas.text(LEFT + WIDTH + 12, y + 15, f"{ours:,.0f} of {torch:,.0f} ms", 8.8, GRAY)


def _times(config: str, machine: str) -> list[float]:
    """Returns the medians of PyTorch's times and of ours, in ms."""
    runs = json.loads((RESULTS / f"gpt-step-{config}-{machine}.json").read_text())["runs"]
    rows = [{row["label"]: row["ms"] for row in run["rows"]} for run in runs]
    return [statistics.median(row[label] for row in rows) for label in ("PyTorch eager", "mytorch")]
