"""The sheet that the pictures are drawn on: colours, boxes, lines of text, arrows, and saving as SVG."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

FOLDER = Path(__file__).resolve().parent
WIDTH = 800  # one unit of a drawing is one pixel

PAPER, WHITE, INK, SOFT, LINE = "#f6f7f9", "#ffffff", "#1f2a37", "#5b6876", "#c9d1da"
BLUE, GREEN, AMBER, RED = "#2563a8", "#1f7a4d", "#b45f06", "#b3261e"
PALE = {BLUE: "#e3edf8", GREEN: "#dff2e7", AMBER: "#fcebd3", LINE: "#e9edf1"}

POINT = 100 / 72  # in pixels

matplotlib.use("Agg")
matplotlib.rcParams.update({
    "svg.fonttype": "path",  # the same letters for everyone
    "svg.hashsalt": "mytorch",  # the same file on every run
    "font.family": "DejaVu Sans",
})  # fmt: skip


class Canvas:
    """A sheet, y pointing down, with a background of its own: for pages in light and in dark.

    Attributes:
        figure: matplotlib's, for plots on the sheet.
    """

    def __init__(self, height: float):
        self.figure = Figure(figsize=(WIDTH / 100, height / 100), dpi=100)
        self.figure.patch.set_alpha(0)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.axes.axis("off")
        self.box(1, 1, WIDTH - 2, height - 2, PAPER, radius=10)

    def box(self, x, y, width, height, fill=WHITE, edge=LINE, *, radius=6, style="-", thick=1.2) -> None:
        self.axes.add_patch(FancyBboxPatch(
            (x + radius, y + radius), width - 2 * radius, height - 2 * radius,
            boxstyle=f"round,pad={radius},rounding_size={radius}",
            facecolor=fill, edgecolor=edge, linewidth=thick, linestyle=style,
        ))  # fmt: skip

    def dot(self, x, y, radius, fill=WHITE, edge=LINE) -> None:
        self.axes.add_patch(Circle((x, y), radius, facecolor=fill, edgecolor=edge, linewidth=1.2))

    def text(self, x, y, words, size=10, color=INK, *, ha="left", bold=False, code=False, down=False) -> None:
        """One line with the middle of its capitals at `y`: neighbours stand on one line whatever they say."""
        self.axes.text(
            x, y if down else y + 0.36 * size * POINT, words, size=size, color=color, parse_math=False,
            ha=ha, va="center" if down else "baseline", rotation=270 if down else 0,
            weight="bold" if bold else "normal", family="DejaVu Sans Mono" if code else "DejaVu Sans",
        )  # fmt: skip

    def code(self, x, y, rows: Sequence[Sequence[tuple[str, str]]], size: float = 9.8) -> None:
        """Lines of coloured pieces of code, one below the other."""
        letter = 0.6021 * size * POINT  # the width of every letter of DejaVu Sans Mono
        for i, row in enumerate(rows):
            column = 0
            for piece, color in row:
                self.text(x + column * letter, y + 20 * i, piece, size, color, code=True)
                column += len(piece)

    def arrow(self, start, end, color=SOFT, *, thick=1.4) -> None:
        self.axes.add_patch(FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=11, shrinkA=0, shrinkB=0,
            color=color, linewidth=thick,
        ))  # fmt: skip

    def line(self, *points, color=LINE, thick=1.4) -> None:
        self.axes.plot(*zip(*points, strict=True), color=color, linewidth=thick, solid_capstyle="butt")

    def save(self, name: str) -> None:
        """Write src/<name>.svg."""
        partial = FOLDER / f".{name}.svg"
        self.figure.savefig(partial, format="svg", metadata={"Date": None, "Creator": None})
        partial.write_text(_compact(partial.read_text()))
        os.replace(partial, FOLDER / f"{name}.svg")
        print(FOLDER / f"{name}.svg")


def _compact(svg: str) -> str:
    """Coordinates with two decimals, and no spaces at the ends of lines."""
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path.group()), svg)
    return "".join(row.rstrip() + "\n" for row in svg.splitlines())
