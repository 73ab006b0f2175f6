"""Draws graphs as SVG: boxes of text in rows, each below what it is made of, and arrows between them.

A box may be a *frame*, with boxes inside. An arrow never crosses the edge of a frame: it ends there, and
another begins at a *port* inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHAR, LINE, PAD = 7.23, 17, 9  # pixels: a character of 12 px, a line, around the text of a box
GAP_X, GAP_Y, MARGIN = 22, 34, 20
MOST_CHARS = 64
BLUE, GREEN, AMBER, RED, GRAY, BLACK = "#2563a8", "#1f7a4d", "#b45f06", "#b3261e", "#8794a1", "#1f2a37"
BACKGROUND = "#f6f7f9"
LIGHT = {BLUE: "#e3edf8", GREEN: "#dff2e7", AMBER: "#fcebd3", RED: "#fde5e3", GRAY: "#e9edf1"}
_STYLE = f"""text {{ font: 12px ui-monospace, 'DejaVu Sans Mono', monospace; fill: {BLACK} }}
text {{ white-space: pre }}
.head {{ font-weight: bold }} path {{ fill: none; stroke: {GRAY}; stroke-width: 1.2 }}"""
_TIP = f"""<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
orient="auto-start-reverse"><polygon points="0,0 8,4 0,8" fill="{GRAY}"/></marker>"""


@dataclass(eq=False)
class Box:
    """A rectangle with lines of text, and arrows from its sources to its users; without lines, a place where
    an arrow passes a row.

    kind: its colours, and its class in the SVG; "in" and "out" for the ports of a frame.
    inside: the boxes of a frame, below its lines.
    number: in the drawing.
    room: the height of its row.
    """

    kind: str
    lines: list[str]
    sources: list[Box] = field(default_factory=list)
    users: list[Box] = field(default_factory=list)
    inside: list[Box] = field(default_factory=list)
    row: int = 0
    number: int = 0
    x: float = 0.0
    y: float = 0.0
    height: float = 0.0
    width: float = 0.0
    room: float = 0.0

    @property
    def centre(self) -> float:
        return self.x + self.width / 2

    @property
    def text_width(self) -> float:
        return max(map(len, self.lines), default=0) * CHAR + 2 * PAD

    @property
    def text_height(self) -> float:
        return len(self.lines) * LINE + 2 * PAD - 4

    def port(self, kind: str) -> float:
        """Returns where arrows reach ("in") or leave ("out") the box."""
        return next((box.centre for box in self.inside if box.kind == kind), self.centre)

    def move(self, dx: float, dy: float) -> None:
        """Moves the box with all that is inside."""
        self.x, self.y = self.x + dx, self.y + dy
        for box in self.inside:
            box.move(dx, dy)


def arranged(boxes: Sequence[Box]) -> tuple[list[Box], float, float]:
    """Places boxes from (0, 0) on; returns them by rows, with places where arrows pass, and width and height.

    What is inside of frames is placed first.
    """
    for box in boxes:
        box.width = box.text_width
        box.height = box.text_height if box.lines else 0.0
        if box.inside:
            box.inside, width, height = arranged(box.inside)
            box.width = max(box.width + 2 * CHAR, width + 2 * PAD)  # a page marks the first line
            for inner in box.inside:
                inner.move((box.width - width) / 2, box.text_height)
            box.height = box.text_height + height + PAD
    rows = _rows(boxes)
    _place(rows)
    placed = [box for row in rows for box in row]
    left = min([box.x for box in placed])
    for box in placed:
        box.move(-left, 0)
    return placed, max([box.x + box.width for box in placed]), max([box.y + box.height for box in placed])


class Diagram:
    """A drawing of boxes.

    Args:
        colours: by kind of box: fill and edge.
    """

    def __init__(self, boxes: Sequence[Box], colours: Mapping[str, tuple[str, str]]):
        self.boxes, width, height = arranged(boxes)
        self.colours, self.width, self.height = colours, width + 2 * MARGIN, height + 2 * MARGIN
        for box in self.boxes:
            box.move(MARGIN, MARGIN)
        for number, box in enumerate(everything(self.boxes)):
            box.number = number

    def svg(self) -> str:
        """Returns the drawing as SVG."""
        size = f'width="{self.width:.0f}" height="{self.height:.0f}"'
        view = f'viewBox="0 0 {self.width:.0f} {self.height:.0f}"'
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view}>', f"<style>{_STYLE}</style>", _TIP,
            f'<rect {size} rx="10" fill="{BACKGROUND}"/>', *_drawn(self.boxes, self.colours), "</svg>\n",
        ])

    def save_png(self, path: str | os.PathLike) -> None:
        """Draws with matplotlib.

        Raises:
            ImportError: matplotlib is not installed.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("a drawing as PNG needs matplotlib: pip install matplotlib") from error
        dpi = 100 * min(1, 65_000 / max(self.width, self.height))  # matplotlib's limit is 2**16 pixels
        figure = Figure(figsize=(self.width / 100, self.height / 100), dpi=dpi, facecolor=BACKGROUND)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, self.width), ylim=(self.height, 0))
        axes.axis("off")
        for depth, box in enumerate(everything(self.boxes)):
            _paint(axes, box, self.colours.get(box.kind), depth)
        FigureCanvasAgg(figure).print_png(path)


def everything(boxes: Sequence[Box]) -> Iterator[Box]:
    """Yields boxes, each before those inside it."""
    for box in boxes:
        yield box
        yield from everything(box.inside)


def _rows(boxes: Sequence[Box]) -> list[list[Box]]:
    """Returns the boxes by row, each below its sources; what is given is above its first user. Arrows pass
    the rows between as boxes without text."""
    for box in boxes:
        box.row = 1 + max([source.row for source in box.sources], default=0)
    for box in boxes:
        if not box.sources:
            box.row = min([user.row for user in boxes if box in user.sources], default=1) - 1
    rows: list[list[Box]] = [[] for _ in range(1 + max([box.row for box in boxes]))]
    passing: dict[tuple[Box, int], Box] = {}
    for box in boxes:
        rows[box.row].append(box)
        for k, source in enumerate(box.sources):
            above = source
            for row in range(source.row + 1, box.row):
                if (source, row) not in passing:
                    passing[source, row] = Box("", [], [above], row=row, width=2 * PAD)
                    rows[row].append(passing[source, row])
                    above.users.append(passing[source, row])
                above = passing[source, row]
            box.sources[k] = above
            above.users.append(box)
    return [row for row in rows if row]


def _place(rows: Sequence[list[Box]]) -> None:
    """Places boxes near what they are connected with: several times down and up the rows."""
    y = 0.0
    for row in rows:
        most = max([box.height for box in row])
        for box in row:
            box.move(0, y)
            box.height, box.room = box.height or most, most
        y += most + GAP_Y
        _spread(row, [0.0] * len(row))
    for turn in range(12):
        for row in rows if turn % 2 == 0 else reversed(rows):
            near = [(box.sources if turn % 2 == 0 else box.users) or [box] for box in row]
            centres = [sum([x.centre for x in boxes]) / len(boxes) for boxes in near]
            wanted = dict(zip(row, centres, strict=True))
            row.sort(key=wanted.__getitem__)
            _spread(row, [wanted[box] for box in row])


def _spread(row: Sequence[Box], centres: Sequence[float]) -> None:
    """Moves the boxes of a row to these centres, or as near as they fit beside each other."""
    end, off, places = -float("inf"), 0.0, []
    for box, centre in zip(row, centres, strict=True):
        places.append(max(centre - box.width / 2, end))
        end = places[-1] + box.width + GAP_X
        off += places[-1] + box.width / 2 - centre
    for box, x in zip(row, places, strict=True):
        box.move(x - off / len(row) - box.x, 0)


def _drawn(placed: Sequence[Box], colours: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for box in placed:
        for source in box.sources:
            ends = f'data-from="{source.number}" data-to="{box.number}"'
            tip = ' marker-end="url(#tip)"' if box.lines else ""
            steps = _curve(source, box)
            path = " ".join([letter + " ".join(map(_point, points)) for letter, points in steps])
            yield f'<path d="{path}" {ends}{tip}/>'
    for box in placed:
        places = box.row, box.x, box.y, box.width, box.height, box.port("in"), box.port("out"), box.text_width
        at = " ".join([f"{place:.1f}" for place in places])
        facts = f'data-box="{box.number}" data-at="{at}"'
        if not box.lines:
            yield f'<g class="pass {box.kind}" {facts}/>'
            continue
        fill, edge = colours[box.kind]
        size = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
        yield f'<g class="box {box.kind}" {facts}><rect {size} rx="6" fill="{fill}" stroke="{edge}"/>'
        for k, line in enumerate(box.lines):
            place = f'x="{box.x + PAD:.1f}" y="{box.y + PAD + LINE * k + 9:.1f}"'
            head = ' class="head"' if k == 0 else ""
            yield f"<text {place}{head}>{escape(line)}</text>"
        if box.inside:
            yield from ['<g class="inside">', *_drawn(box.inside, colours), "</g>"]
        yield "</g>"


def _point(point: tuple[float, float]) -> str:
    x, y = point
    return f"{x:.1f},{y:.1f}"


def _curve(source: Box, box: Box) -> list[tuple[str, list[tuple[float, float]]]]:
    """Returns an arrow as the commands of a path: M, L and C with their points."""
    x1, y1, x2, y2 = source.port("out"), source.y + source.room, box.port("in"), box.y
    top = source.y - PAD if source.kind == "in" else source.y + source.height
    start = [("M", [(x1, top)]), *([("L", [(x1, y1)])] if top < y1 else [])]
    end = [] if box.lines else [("L", [(x2, y2 + box.height + (PAD if box.kind == "out" else 0))])]
    middle = (y1 + y2) / 2
    return [*start, ("C", [(x1, middle), (x2, middle), (x2, y2)]), *end]


def _paint(axes: Axes, box: Box, colours: tuple[str, str] | None, depth: int) -> None:
    """Paints a box and the arrows that reach it onto the axes of a figure of 100 dots an inch."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
    from matplotlib.path import Path

    codes = {"M": [Path.MOVETO], "L": [Path.LINETO], "C": [Path.CURVE4] * 3}
    for source in box.sources:
        points, steps = [], []
        for letter, given in _curve(source, box):
            points, steps = points + given, steps + codes[letter]
        style = "-|>,head_length=4,head_width=2" if box.lines else "-"
        path = Path(points, steps)
        axes.add_patch(FancyArrowPatch(path=path, arrowstyle=style, color=GRAY, lw=0.9, zorder=depth + 0.5))
    if colours is None:
        return
    fill, edge = colours
    axes.add_patch(FancyBboxPatch(
        (box.x + 6, box.y + 6), box.width - 12, box.height - 12, "round,pad=6", fc=fill, ec=edge, lw=0.8,
        zorder=depth,
    ))
    for k, line in enumerate(box.lines):
        axes.text(
            box.x + PAD, box.y + PAD + LINE * k + 9, line, size=12 * 0.72, family="DejaVu Sans Mono",
            color=BLACK, weight="normal" if k else "bold", parse_math=False, zorder=depth + 0.6,
        )
