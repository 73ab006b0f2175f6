"""Drawing of SVG figures with matplotlib: boxes, circles, text, code, lines and arrows."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

FOLDER = Path(__file__).resolve().parents[2] / "src"
WIDTH = 800  # pixels; coordinates are in pixels

BACKGROUND, WHITE, BLACK, GRAY, LIGHT_GRAY = "#f6f7f9", "#ffffff", "#1f2a37", "#5b6876", "#c9d1da"
BLUE, GREEN, AMBER, RED = "#2563a8", "#1f7a4d", "#b45f06", "#b3261e"
LIGHT = {BLUE: "#e3edf8", GREEN: "#dff2e7", AMBER: "#fcebd3", LIGHT_GRAY: "#e9edf1"}

POINT = 100 / 72  # in pixels

matplotlib.use("Agg")
matplotlib.rcParams.update({
    "svg.fonttype": "path",  # independent of the installed fonts
    "svg.hashsalt": "mytorch",  # deterministic ids
    "font.family": "DejaVu Sans",
})


class Canvas:
    """A canvas with the y axis downwards and an opaque background, for light and dark pages.

    Attributes:
        figure: the matplotlib figure, for plots.
        words: what the picture says, for those who can't see it, and for the test that it is up to date.
    """

    def __init__(self, height: float):
        self.words: list[str] = []
        self.figure = Figure(figsize=(WIDTH / 100, height / 100), dpi=100)
        self.figure.patch.set_alpha(0)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.axes.axis("off")
        self.box(1, 1, WIDTH - 2, height - 2, BACKGROUND, radius=10)

    def box(
        self, x, y, width, height, fill=WHITE, edge=LIGHT_GRAY, *, radius=6, linestyle="-", linewidth=1.2
    ) -> None:
        self.axes.add_patch(FancyBboxPatch(
            (x + radius, y + radius), width - 2 * radius, height - 2 * radius,
            boxstyle=f"round,pad={radius},rounding_size={radius}",
            facecolor=fill, edgecolor=edge, linewidth=linewidth, linestyle=linestyle,
        ))

    def circle(self, x, y, radius, fill=WHITE, edge=LIGHT_GRAY) -> None:
        self.axes.add_patch(Circle((x, y), radius, facecolor=fill, edgecolor=edge, linewidth=1.2))

    def text(
        self, x, y, string, size=10, color=BLACK, *, ha="left", bold=False, code=False, vertical=False
    ) -> None:
        """Draws one line of text, with the middle of its capital letters at `y`."""
        self.words.append(string)
        self.axes.text(
            x, y if vertical else y + 0.36 * size * POINT, string, size=size, color=color, parse_math=False,
            ha=ha, va="center" if vertical else "baseline", rotation=270 if vertical else 0,
            weight="bold" if bold else "normal", family="DejaVu Sans Mono" if code else "DejaVu Sans",
        )

    def code(self, x, y, lines: Sequence[Sequence[tuple[str, str]]], size: float = 9.8) -> None:
        """Draws lines of code, each a list of (string, color)."""
        char_width = 0.6021 * size * POINT  # of DejaVu Sans Mono
        for i, line in enumerate(lines):
            column = 0
            for string, color in line:
                self.text(x + column * char_width, y + 20 * i, string, size, color, code=True)
                column += len(string)

    def arrow(self, start, end, color=GRAY, *, linewidth=1.4, bend=0.0) -> None:
        """Draws an arrow; one that bends is an arc, of this height by its length."""
        self.axes.add_patch(FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=11, shrinkA=0, shrinkB=0,
            color=color, linewidth=linewidth, connectionstyle=f"arc3,rad={bend}",
        ))

    def line(self, *points, color=LIGHT_GRAY, linewidth=1.4) -> None:
        self.axes.plot(*zip(*points, strict=True), color=color, linewidth=linewidth, solid_capstyle="butt")

    def description(self) -> str:
        return " | ".join(escape(" ".join(word.split())) for word in self.words)

    def save(self, path: Path) -> None:
        """Saves the figure as an SVG file."""
        content = io.StringIO()
        self.figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
        start, tag, rest = re.split(r"(<svg[^>]*>)", content.getvalue(), maxsplit=1)
        svg = f"{start}{tag}\n <desc>{self.description()}</desc>{rest}"
        path.write_text(_compact(svg), encoding="utf-8")


def _compact(svg: str) -> str:
    """Returns the SVG with coordinates rounded to two decimals and without trailing spaces."""
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path.group()), svg)
    return "".join(row.rstrip() + "\n" for row in svg.splitlines())
