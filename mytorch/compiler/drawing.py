"""Draws programs as graphs: what is computed of what, from the top down."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ..autograd.diagram import AMBER, BLACK, BLUE, GRAY, GREEN, LIGHT, MOST_CHARS, RED, Box, Diagram
from ..autograd.frames import Frames
from ..autograd.pages import FOLDING
from ..autograd.picture import Picture
from ..utils.nested import leaves, text
from .program.instruction import Instruction, Value
from .program.program import Program

_COLOURS = {  # of what a box stands for: fill and edge
    "input": (LIGHT[BLUE], BLUE), "state": (LIGHT[GRAY], GRAY), "constant": (LIGHT[GRAY], GRAY),
    "loop": (LIGHT[GREEN], GREEN), "kernel": (LIGHT[AMBER], AMBER), "call": ("#ffffff", GRAY),
    "module": ("#ffffff", BLACK), "host": (LIGHT[RED], RED), "return": (LIGHT[BLUE], BLUE),
}


def draw(program: Program, path: str | os.PathLike | None = None) -> Picture:
    """Returns a drawing of a program; Jupyter shows it, and `save` writes it.

    A box is an instruction, an arrow an array that it takes. Views are drawn as what they are views of. In
    the HTML page instructions are in the frames of their modules, which a click closes and opens.

    Args:
        path: also write it there, as .svg, .html, or .png (with matplotlib).

    Raises:
        ValueError: another suffix.

    >>> program = mytorch.capture(lambda x: x * 2 + 1, mytorch.ones(3))
    >>> program.draw().svg().count("<rect")  # the background, the input, multiply, add and return
    5
    """
    has_frames = path is not None and os.fspath(path).lower().endswith(".html")
    picture = Picture(FOLDING, Diagram(_boxes(program, has_frames), _COLOURS), title=program.name)
    if path is not None:
        picture.save(path)
    return picture


Program.draw = draw
_Item = Instruction | tuple[str, object]  # or "input", "state" or "constant", and it; or "return", and what


def _boxes(program: Program, has_frames: bool) -> list[Box]:
    """Returns the boxes in the order of the program, within frames of modules; what isn't used has none."""
    arrows = _arrows(program)
    used = {source for sources in arrows.values() for source in sources}
    items = [x for x in arrows if isinstance(x, Instruction) or x in used or x[0] == "return"]
    paths = _paths(items) if has_frames else dict.fromkeys(items, ())
    kernels = {i.outputs[-1]: i.args[0] for i in program.instructions if i.name == "kernel"}
    frames = Frames(paths, lambda item: _box(item, kernels), _title)
    for item in items:
        for source in arrows[item]:
            frames.connect(source, item)
    return frames.boxes


def _arrows(program: Program) -> dict[_Item, list[_Item]]:
    """Returns what is drawn, and for each the items from which it has arrows: those that made an array that
    it takes, or wrote to it last."""
    kinds = {"input": program.inputs, "state": program.state, "constant": program.constants}
    given = {value: (kind, value) for kind, values in kinds.items() for value in values}
    bases, arrows = program.bases(), {item: [] for item in given.values()}
    latest: dict[Value, _Item] = {**given}  # by base
    for i in program.instructions:
        if not i.outputs or not all([y.of for y in i.outputs]):  # it makes more than views
            arrows[i] = list(dict.fromkeys([latest[bases[x]] for x in i.inputs() if bases[x] in latest]))
            latest |= {bases.get(x, x): i for x in (*i.outputs, *i.written)}
    results = [latest[bases[x]] for x in program.results() if bases[x] in latest]
    return arrows | {("return", text(program.outputs)): list(dict.fromkeys(results))}


def _paths(items: Sequence[_Item]) -> dict[_Item, tuple[str, ...]]:
    """Returns the modules of each instruction, outermost first."""
    paths, path = {}, ()
    for item in items:  # what has no module belongs to that before it
        if isinstance(item, Instruction):
            path = tuple(item.origin.split(".")) if item.origin else path
        paths[item] = path if isinstance(item, Instruction) else ()
    return paths


def _title(path: tuple[str, ...], items: Sequence[_Item]) -> list[str]:
    return [path[-1][:MOST_CHARS], f"{len(items)} instruction{'s' * (len(items) > 1)}"]


def _box(item: _Item, kernels: dict[Value, str]) -> Box:
    if isinstance(item, Instruction):
        kind, lines = item.name.partition(".")[0], [*_lines(item, kernels)]
    else:
        kind, x = item
        lines = [kind, x.described() if isinstance(x, Value) else x]
    return Box(kind if kind in _COLOURS else "call", [line[:MOST_CHARS] for line in lines])


def _lines(i: Instruction, kernels: dict[Value, str]) -> Iterator[str]:
    """Yields what is said of an instruction: its name, what isn't arrays, its results, and what it writes."""
    if i.name == "loop":
        head, *steps = str(i).split("\n")
        yield from [head.rpartition(" = ")[2].rstrip(":"), *[line.strip() for line in steps]]
        return
    if i.name.startswith("kernel"):
        yield i.args[0] if i.name == "kernel" else f"{kernels.get(i.args[0], i.name)}.vjp"
    else:
        yield i.name
        rest = [text(x) for x in i.args if not any([isinstance(leaf, Value) for leaf in leaves(x)])]
        rest += [f"{name}={text(x)}" for name, x in i.kwargs.items() if x is not None]
        yield from [", ".join(rest)] if rest else []
    yield from [value.described() for value in i.outputs if value.dtype.kind != "O"]
    yield from [f"writes {', '.join(map(repr, i.written))}"] if i.written else []
