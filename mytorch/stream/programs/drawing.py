"""Draws programs as graphs, as SVG or HTML: what is computed of what, from the top down."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from ...utils.atomic import atomic_write
from .program import Instruction, Program, Value, leaves, text

_CHAR, _LINE, _PAD = 7.23, 17, 9  # pixels: a character of 12 px, a line, around the text of a box
_GAP_X, _GAP_Y, _MARGIN = 22, 34, 20
_MOST_CHARS = 64
_COLOURS = {  # of what a box stands for: fill and edge
    "input": ("#e3edf8", "#2563a8"), "state": ("#e9edf1", "#8794a1"), "constant": ("#e9edf1", "#8794a1"),
    "loop": ("#dff2e7", "#1f7a4d"), "kernel": ("#fcebd3", "#b45f06"), "call": ("#ffffff", "#8794a1"),
    "module": ("#ffffff", "#1f2a37"), "host": ("#fde5e3", "#b3261e"), "return": ("#e3edf8", "#2563a8"),
}  # fmt: skip
_STYLE = """text { font: 12px ui-monospace, 'DejaVu Sans Mono', monospace; fill: #1f2a37; white-space: pre }
.head { font-weight: bold } path { fill: none; stroke: #8794a1; stroke-width: 1.2 }"""
_TIP = """<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<polygon points="0,0 8,4 0,8" fill="#8794a1"/></marker>"""
_PAGE = """<!DOCTYPE html>
<meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 14px system-ui, sans-serif; margin: 16px }} div {{ display: none }} {style}</style>
{title}, by levels of modules: {buttons}
{drawings}"""


def draw(program: Program, path: str | os.PathLike) -> None:
    """Draws a program to a file whose suffix is .svg or .html: a box for each instruction, an arrow for each
    array that it takes. Views are drawn as what they are views of. The page has a drawing for each level of
    modules, to choose from, in which what modules do is one box each.

    Raises:
        ValueError: another suffix.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".svg", ".html"):
        raise ValueError(f"a program is drawn as .svg or .html, got {path}")
    with atomic_write(path) as file:
        file.write_text(svg(program) if suffix == ".svg" else _page(program), encoding="utf-8")


def _page(program: Program) -> str:
    most = max([i.origin.count(".") + 1 for i in program.instructions if i.origin], default=0)
    levels = {**{f"{level}": level for level in range(1, most + 1)}, "all": None}
    return _PAGE.format(
        title=escape(program.name),
        style=" ".join([f"#b{k}:checked ~ #d{k} {{ display: block }}" for k in levels]),
        buttons=" ".join([f'<input type="radio" name="level" id="b{k}" checked> {k}' for k in levels]),
        drawings="\n".join([f'<div id="d{k}">{svg(program, level)}</div>' for k, level in levels.items()]),
    )


def svg(program: Program, level: int | None = None) -> str:
    """Returns the drawing as SVG.

    Args:
        level: instructions one after another whose modules have the same first names, as "transformer.h" at
            level 2, are one box, and the state isn't shown; None for all instructions.
    """
    rows = _rows(_boxes(program, level))
    _place(rows)
    boxes = [box for row in rows for box in row]
    left = min([box.x for box in boxes]) - _MARGIN
    width = max([box.x + box.width for box in boxes]) - left + _MARGIN
    height = max([box.y + box.height for box in rows[-1]]) + _MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="{left:.0f} 0 {width:.0f} {height:.0f}">',
        f"<style>{_STYLE}</style>", _TIP, f'<rect x="{left:.0f}" {size} rx="10" fill="#f6f7f9"/>',
        *[_arrow(source, box) for box in boxes for source in box.sources],
        *[_drawn(box) for box in boxes if box.lines], "</svg>\n",
    ])  # fmt: skip


@dataclass(eq=False)
class _Box:
    """A rectangle with lines of text, and arrows from its sources to its users; without lines, a place where
    an arrow passes a row."""

    kind: str
    lines: list[str]
    sources: list[_Box] = field(default_factory=list)
    users: list[_Box] = field(default_factory=list)
    row: int = 0
    x: float = 0.0
    y: float = 0.0
    height: float = 0.0

    @property
    def width(self) -> float:
        return max(map(len, self.lines), default=0) * _CHAR + 2 * _PAD

    @property
    def centre(self) -> float:
        return self.x + self.width / 2


def _boxes(program: Program, level: int | None) -> list[_Box]:
    """Returns the boxes in the order of the program; what isn't used has none."""
    boxes = []
    kinds = {"input": program.inputs, "state": program.state, "constant": program.constants}
    for kind, given in kinds.items() if level is None else [("input", program.inputs)]:
        boxes += [(_Box(kind, [kind, value.described()]), [], [value]) for value in given]
    kernels = {i.outputs[-1]: i.args[0] for i in program.instructions if i.name == "kernel"}
    for path, group in _groups(program, level):
        kind, lines = "module", [path, f"{len(group)} instructions"]
        if len(group) == 1:
            kind, lines = group[0].name.partition(".")[0], _lines(group[0], kernels)
        box = _Box(kind if kind in _COLOURS else "call", [line[:_MOST_CHARS] for line in lines])
        taken = [value for i in group for value in i.inputs()]
        boxes.append((box, taken, [value for i in group for value in (*i.outputs, *i.written)]))
    returned = _Box("return", ["return", text(program.outputs)[:_MOST_CHARS]])
    boxes.append((returned, program.results(), []))
    bases = program.bases()
    latest: dict[Value, _Box] = {}  # by base: the box that made it, or wrote to it last
    for box, taken, made in boxes:
        given = [bases[value] for value in taken]
        box.sources = list(dict.fromkeys([latest[base] for base in given if base in latest]))
        latest |= {bases.get(value, value): box for value in made}
    used = {source for box, _, _ in boxes for source in box.sources}
    return [box for box, _, _ in boxes if box in used or box.kind not in ("input", "state", "constant")]


def _groups(program: Program, level: int | None) -> Iterator[tuple[str, list[Instruction]]]:
    """Yields the instructions that are a box each, and the path of their module; views have none."""
    shown = [i for i in program.instructions if i.outputs == () or not all(y.of for y in i.outputs)]
    if level is None:
        yield from [("", [i]) for i in shown]
        return
    path, paths = "", {}
    for i in shown:  # what has no module belongs to that before it
        path = ".".join(i.origin.split(".")[:level]) or path
        paths[i] = path
    yield from [(path, list(group)) for path, group in itertools.groupby(shown, paths.__getitem__)]


def _lines(i: Instruction, kernels: dict[Value, str]) -> list[str]:
    results = [value.described() for value in i.outputs if value.dtype.kind != "O"]
    if i.name == "loop":
        head, *steps = str(i).split("\n")
        return [head.rpartition(" = ")[2].rstrip(":"), *[line.strip() for line in steps]]
    if i.name == "kernel":
        return [i.args[0], *results]
    if i.name == "kernel.vjp":
        return [f"{kernels.get(i.args[0], i.name)}.vjp", *results]
    rest = [text(x) for x in i.args if not any([isinstance(leaf, Value) for leaf in leaves(x)])]
    rest += [f"{name}={text(x)}" for name, x in i.kwargs.items() if x is not None]
    writes = [f"writes {', '.join(map(repr, i.written))}"] if i.written else []
    return [i.name, *([", ".join(rest)] if rest else []), *results, *writes]


def _rows(boxes: Sequence[_Box]) -> list[list[_Box]]:
    """Returns the boxes by row, each below its sources; what is given is above its first user. Arrows pass
    the rows between as boxes without text."""
    for box in boxes:
        box.row = 1 + max([source.row for source in box.sources], default=0)
    for box in boxes:
        if not box.sources:
            box.row = min([user.row for user in boxes if box in user.sources], default=1) - 1
    rows: list[list[_Box]] = [[] for _ in range(1 + max([box.row for box in boxes]))]
    passing: dict[tuple[_Box, int], _Box] = {}
    for box in boxes:
        rows[box.row].append(box)
        for k, source in enumerate(box.sources):
            above = source
            for row in range(source.row + 1, box.row):
                if (source, row) not in passing:
                    passing[source, row] = _Box("", [], [above], row=row)
                    rows[row].append(passing[source, row])
                    above.users.append(passing[source, row])
                above = passing[source, row]
            box.sources[k] = above
            above.users.append(box)
    return [row for row in rows if row]


def _place(rows: Sequence[list[_Box]]) -> None:
    """Places boxes near what they are connected with: several times down and up the rows."""
    y = float(_MARGIN)
    for row in rows:
        most = max([len(box.lines) for box in row])
        for box in row:
            box.y, box.height = y, (len(box.lines) or most) * _LINE + 2 * _PAD - 4
        y += most * _LINE + 2 * _PAD - 4 + _GAP_Y
        _spread(row, [0.0] * len(row))
    for turn in range(12):
        for row in rows if turn % 2 == 0 else reversed(rows):
            near = [(box.sources if turn % 2 == 0 else box.users) or [box] for box in row]
            centres = [sum([x.centre for x in boxes]) / len(boxes) for boxes in near]
            wanted = dict(zip(row, centres, strict=True))
            row.sort(key=wanted.__getitem__)
            _spread(row, [wanted[box] for box in row])


def _spread(row: Sequence[_Box], centres: Sequence[float]) -> None:
    """Moves the boxes of a row to these centres, or as near as they fit beside each other."""
    end, off = -float("inf"), 0.0
    for box, centre in zip(row, centres, strict=True):
        box.x = max(centre - box.width / 2, end)
        end = box.x + box.width + _GAP_X
        off += box.centre - centre
    for box in row:
        box.x -= off / len(row)


def _arrow(source: _Box, box: _Box) -> str:
    x1, y1, x2, y2 = source.centre, source.y + source.height, box.centre, box.y
    middle = f"{(y1 + y2) / 2:.1f}"
    end = ' marker-end="url(#tip)"' if box.lines else ""
    curve = f"M{x1:.1f},{y1:.1f} C{x1:.1f},{middle} {x2:.1f},{middle} {x2:.1f},{y2:.1f}"
    curve += "" if box.lines else f" V{y2 + box.height:.1f}"
    return f'<path d="{curve}"{end}/>'


def _drawn(box: _Box) -> str:
    fill, edge = _COLOURS[box.kind]
    size = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    lines = [f'<rect {size} rx="6" fill="{fill}" stroke="{edge}"/>']
    for k, line in enumerate(box.lines):
        place = f'x="{box.x + _PAD:.1f}" y="{box.y + _PAD + _LINE * k + 9:.1f}"'
        head = ' class="head"' if k == 0 else ""
        lines.append(f"<text {place}{head}>{escape(line)}</text>")
    return "\n".join(lines)
