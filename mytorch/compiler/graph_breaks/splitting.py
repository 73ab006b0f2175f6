"""Splitting: a function with a graph break becomes parts that can be traced, and what is between them.

    def step(x, y):                         def step(x, y):
        loss = F.mse_loss(model(x), y)          loss = part_1(x, y)
        losses.append(loss.item())      →       losses.append(loss.item())
        loss = loss * 2                         return part_2(loss)
        return loss

The statement at which the graph breaks stays as it is, and runs eagerly. Of an `if`, a loop, a `with` or a
`try` only the head does, and its blocks are split. What is between such statements becomes parts: functions
of the variables that they read, which return the variables that are needed later. They are traced on their
own; one that has a graph break is split again, until a statement is left that runs eagerly. The new function
is made of the syntax tree of the old one, and has its lines, globals and closure.
"""

from __future__ import annotations

import ast
import copy
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .callees import CALLEE, Callees
from .syntax import arguments, cells_of, function_of, is_part, keep, plain, tree_of, with_plain
from .variables import NONE, Exits, Flow, Names, Scope, read, read_later, stored
from .watching import frames_of

_UNSPLITTABLE = (
    ast.Global, ast.Nonlocal, ast.Delete, ast.Import, ast.ImportFrom, ast.ClassDef, ast.AsyncFunctionDef,
    ast.AsyncFor, ast.AsyncWith, ast.Await, ast.Yield, ast.YieldFrom, ast.Match,
    getattr(ast, "TryStar", ast.Match),
)
_FRAMES = ("super", "__class__", "locals", "vars", "eval", "exec", "dir")  # names that depend on the function
_TRIVIAL = (
    ast.Assign, ast.Attribute, ast.Constant, ast.Dict, ast.Expr, ast.List, ast.Name, ast.Pass, ast.Return,
    ast.Tuple,
)


@dataclass
class Split:
    """A function that was split.

    Attributes:
        call: does what the function did.
        parts: its compiled parts.
        callees: the functions that it calls which are compiled themselves, with what they became.
        is_in_callee: whether the graph breaks in one of these, which then is split itself.
        file: the file in which the function is.
        line: where its graph breaks; None if that isn't known: then it is cut in halves, to find out.
    """

    call: Callable
    parts: list[Any]
    callees: dict[Callable, Any]
    is_in_callee: bool
    file: str
    line: int | None

    def described(self, place: str, error: BaseException) -> str:
        """Returns what became of a function, as text.

        Args:
            place: at which line of which file the error was raised.
        """
        if self.line is None:
            return f"is cut in halves, as it isn't known which statement breaks the graph: {error}"
        own = f"{Path(self.file).name}:{self.line}"
        return f"has a graph break at {own}: {error if own == place else f'{place}: {error}'}"


def split(function: Callable, error: BaseException, make: Callable[[Callable], Any]) -> Split | None:
    """Returns a function split where its graph breaks; None if that isn't possible.

    Args:
        error: what was raised.
        make: compiles a part.
    """
    found = plain(function)
    tree = None if found is None else tree_of(found)
    if tree is None or _is_unusual(tree):
        return None
    line, file = _line_in(error, found), found.__code__.co_filename
    callees = Callees(error, found, make)
    splitter = _Splitter(found, tree, line, make, callees)
    new = splitter.function()
    called = callees.made, bool(callees.codes)
    if splitter.parts or callees.codes:
        return Split(with_plain(function, new), splitter.parts, *called, file, line)
    return Split(function, [], *called, file, line or tree.body[0].lineno) if is_part(function) else None


def _line_in(error: BaseException, function: types.FunctionType) -> int | None:
    """Returns the line of the function at which an exception left it; None if it was raised elsewhere."""
    frames = [line for code, line in frames_of(error) if code is function.__code__]
    return frames[0] if frames else None


def _is_unusual(tree: ast.FunctionDef) -> bool:
    """Whether a function has variables that can't be followed."""
    counts = Counter([a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)])
    for statement in tree.body:
        for node in ast.walk(statement):
            if isinstance(node, _UNSPLITTABLE) or (isinstance(node, ast.Name) and node.id in _FRAMES):
                return True
            if isinstance(node, (ast.Name, ast.FunctionDef, ast.For, ast.While)):  # in loops more than once
                counts.update(stored(node))
    return any([counts[name] > 1 for name in read_later(tree.body)])


class _Splitter:
    """Makes the new function of a tree."""

    def __init__(
        self, function: types.FunctionType, tree: ast.FunctionDef, line: int | None, make: Callable,
        callees: Callees,
    ):
        self.parts: list[Any] = []
        self._callees = callees
        self._like, self._tree, self._make = function, tree, make
        self._cells = cells_of(function)
        self._part_cells = {CALLEE: types.CellType(callees)}
        self._parameters: Names = frozenset([a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)])
        self._locals = self._parameters.union(*map(stored, tree.body))
        self._scope = Scope(function, self._locals)
        self._flow = Flow(self._locals, self._scope.suppresses)
        self._breaks = {id(s) for s in _statements(tree.body) if self._is_break(s, line)}
        self._cut: ast.stmt | None = None
        if not self._breaks:
            body = tree.body[:-1] if len(tree.body) > 1 and _is_trivial(tree.body[-1]) else tree.body
            self._cut = body[len(body) // 2]
            if len(body) == 1:
                self._breaks = {id(body[0])}

    def function(self) -> types.FunctionType:
        """Returns the new function; its parts are then in `parts`."""
        body = self._block(self._tree.body, self._parameters, NONE, Exits())
        tree = ast.copy_location(_function(self._tree.name, self._tree.args, body), self._tree)
        made = function_of(tree, self._like, {**self._cells, **self._part_cells}, self._like.__name__)
        made.__defaults__, made.__kwdefaults__ = self._like.__defaults__, self._like.__kwdefaults__
        return made

    # Blocks.

    def _block(self, body: list[ast.stmt], known: Names, after: Names, exits: Exits) -> list[ast.stmt]:
        """Returns a block with calls of parts.

        Args:
            known: the variables that have a value before.
            after: the variables that are needed later.
        """
        lives = [after]
        for statement in reversed(body):
            lives.append(self._flow.live(statement, lives[-1], exits))
        made: list[ast.stmt] = []
        for run in self._runs(body):
            del lives[len(lives) - len(run) :]
            if self._joins(run[0]):
                made += self._as_part(run, known, lives[-1], exits)
            else:
                made.append(self._as_eager(run[0], known, lives[-1], exits))
            known = self._flow.assigned_block(run, known)
        return made

    def _runs(self, body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
        """Yields the statements that may become a part together, and each other one alone."""
        run: list[ast.stmt] = []
        for statement in body:
            if run and not (self._joins(statement) and self._joins(run[-1]) and statement is not self._cut):
                yield run
                run = []
            run.append(statement)
            if isinstance(statement, ast.Return):
                break
        if run:
            yield run

    def _joins(self, statement: ast.stmt) -> bool:
        return id(statement) not in self._breaks and not _leaves(statement)

    def _as_eager(self, statement: ast.stmt, known: Names, after: Names, exits: Exits) -> ast.stmt:
        """Returns a statement that runs eagerly, with its blocks split."""
        made = self._callees.in_calls(statement) if self._callees.codes else copy.copy(statement)
        if isinstance(made, ast.If):
            made.body = self._block(made.body, known, after, exits)
            made.orelse = self._block(made.orelse, known, after, exits)
        elif isinstance(made, (ast.For, ast.While)):
            head = self._flow.live_in_loop(made, after, exits)
            inner = replace(exits, broken=after, continued=head)
            targets = stored(made.target) if isinstance(made, ast.For) else NONE
            made.body = self._block(made.body, known | targets, head, inner)
            made.orelse = self._block(made.orelse, known, after, exits)
        elif isinstance(made, ast.With):
            known = known.union(*map(stored, made.items))
            made.body = self._block(made.body, known, after, self._flow.exits_of_with(made, after, exits))
        elif isinstance(made, ast.Try):
            self._split_try(made, known, after, exits)
        return made

    def _split_try(self, made: ast.Try, known: Names, after: Names, exits: Exits) -> None:
        ended, inner, guarded = self._flow.exits_of_try(made, after, exits)
        tried = self._flow.assigned_block(made.body, known)
        handlers = [copy.copy(handler) for handler in made.handlers]
        for handler in handlers:
            named = {handler.name} if handler.name else set()
            handler.body = self._block(handler.body, known | named, ended, inner)
        ended_well = self._flow.live_block(made.orelse, ended, inner)
        made.body = self._block(made.body, known, ended_well, guarded)
        made.orelse, made.handlers = self._block(made.orelse, tried, ended, inner), handlers

    # Parts.

    def _as_part(self, run: list[ast.stmt], known: Names, after: Names, exits: Exits) -> list[ast.stmt]:
        """Returns the call of a run of statements as a part; the statements if they can't be one."""
        assigned = NONE.union(*map(stored, run))
        touched = assigned.union(*map(read, run))
        inputs = sorted(self._flow.live_block(run, after, exits) & touched)
        results = sorted(assigned & after)
        if all(map(_is_trivial, run)) or not known.issuperset(inputs) or assigned & exits.raised:
            return run
        if not self._flow.assigned_block(run, known).issuperset(results):
            return run
        name = self._part(run, inputs, results)
        call = ast.Call(ast.Name(name, ast.Load()), [ast.Name(x, ast.Load()) for x in inputs], [])
        if isinstance(run[-1], ast.Return):
            made: ast.stmt = ast.Return(call)
        elif results:
            made = ast.Assign([_names(results, ast.Store())], call)
        else:
            made = ast.Expr(call)
        return [ast.copy_location(made, run[0])]

    def _part(self, run: list[ast.stmt], inputs: list[str], results: list[str]) -> str:
        """Makes a part; returns the name of the variable that holds it."""
        body = run
        if not isinstance(run[-1], ast.Return):
            value = _names(results, ast.Load()) if results else None
            body = [*run, ast.copy_location(ast.Return(value), run[-1])]
        tree = ast.copy_location(_function(self._tree.name, arguments(inputs), body), run[0])
        first, last = run[0].lineno, run[-1].end_lineno
        lines = f"line {first}" if first == last else f"lines {first}-{last}"
        function = function_of(tree, self._like, self._cells, f"{self._tree.name} {lines}")
        self.parts.append(self._make(keep(function, tree)))
        name = f"part {len(self.parts)}"  # no variable of the function has such a name
        self._part_cells[name] = types.CellType(self.parts[-1])
        return name

    # Which statements stay.

    def _is_break(self, statement: ast.stmt, line: int | None) -> bool:
        if line is not None and statement.lineno <= line <= statement.end_lineno:
            return True
        return any(map(self._scope.loads_opaque, _executed(statement)))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields all statements of a block, but those of functions that are defined in it."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef):
            for node in ast.iter_child_nodes(statement):
                if isinstance(node, ast.stmt):
                    yield from _statements([node])
                elif isinstance(node, ast.ExceptHandler):
                    yield from _statements(node.body)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a tree, but those of functions that are defined in it."""
    if not isinstance(node, (ast.Lambda, ast.FunctionDef)):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _executed(child)


def _leaves(statement: ast.stmt) -> bool:
    """Whether control may leave a statement for elsewhere than the next one, a return at the end excepted."""
    inside = [*_statements([statement])]
    loops = [s for s in inside if isinstance(s, (ast.For, ast.While))]
    own = {id(s) for loop in loops for s in _statements(loop.body)}  # where `break` leads to one of these
    jumps = [s for s in inside if isinstance(s, (ast.Break, ast.Continue)) and id(s) not in own]
    return bool(jumps) or any([isinstance(s, ast.Return) for s in inside[1:]])


def _is_trivial(statement: ast.stmt) -> bool:
    """Whether a statement only moves values."""
    return all([isinstance(x, (*_TRIVIAL, ast.expr_context)) for x in ast.walk(statement)])


def _function(name: str, parameters: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    return ast.FunctionDef(name, parameters, body, [], type_params=[])


def _names(names: list[str], context: ast.expr_context) -> ast.expr:
    found: list[ast.expr] = [ast.Name(name, context) for name in names]
    return found[0] if len(found) == 1 else ast.Tuple(found, context)
