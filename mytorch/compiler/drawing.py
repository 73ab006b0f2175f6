"""Draws programs as graphs, as SVG or HTML: what is computed of what, from the top down."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from html import escape
from pathlib import Path

from ..autograd import diagram
from ..autograd.diagram import AMBER, BLACK, BLUE, GRAY, GREEN, LIGHT, MOST_CHARS, RED, Box
from ..utils.atomic import atomic_write
from ..utils.nested import leaves, text
from .program.instruction import Instruction, Value
from .program.program import Program

_COLOURS = {  # of what a box stands for: fill and edge
    "input": (LIGHT[BLUE], BLUE), "state": (LIGHT[GRAY], GRAY), "constant": (LIGHT[GRAY], GRAY),
    "loop": (LIGHT[GREEN], GREEN), "kernel": (LIGHT[AMBER], AMBER), "call": ("#ffffff", GRAY),
    "module": ("#ffffff", BLACK), "host": (LIGHT[RED], RED), "return": (LIGHT[BLUE], BLUE),
}  # fmt: skip
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


Program.draw = draw


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
    return diagram.svg(_boxes(program, level), _COLOURS)


def _boxes(program: Program, level: int | None) -> list[Box]:
    """Returns the boxes in the order of the program; what isn't used has none."""
    boxes = []
    kinds = {"input": program.inputs, "state": program.state, "constant": program.constants}
    for kind, given in kinds.items() if level is None else [("input", program.inputs)]:
        boxes += [(Box(kind, [kind, value.described()]), [], [value]) for value in given]
    kernels = {i.outputs[-1]: i.args[0] for i in program.instructions if i.name == "kernel"}
    for path, group in _groups(program, level):
        kind, lines = "module", [path, f"{len(group)} instructions"]
        if len(group) == 1:
            kind, lines = group[0].name.partition(".")[0], _lines(group[0], kernels)
        box = Box(kind if kind in _COLOURS else "call", [line[:MOST_CHARS] for line in lines])
        taken = [value for i in group for value in i.inputs()]
        boxes.append((box, taken, [value for i in group for value in (*i.outputs, *i.written)]))
    returned = Box("return", ["return", text(program.outputs)[:MOST_CHARS]])
    boxes.append((returned, program.results(), []))
    bases = program.bases()
    latest: dict[Value, Box] = {}  # by base: the box that made it, or wrote to it last
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
