"""Local variables of a function, by its syntax tree: what statements read and assign.

`Flow.live` goes backwards and finds what is read later (liveness); `Flow.assigned` goes forwards and finds
what has a value whatever happened before (definite assignment). Both err on the safe side. `Scope` has the
values of variables that aren't local.
"""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from ..guards.allowed import why_opaque
from ..guards.modules import is_mytorchs
from ..guards.places import MISSING, content
from .syntax import cells_of

Names = frozenset[str]
NONE: Names = frozenset()
_SCOPES = (ast.Lambda, ast.FunctionDef)
_CONSUMERS = ("all", "any", "dict", "list", "max", "min", "set", "sorted", "sum", "tuple")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def read(node: ast.AST | None) -> Names:
    """Returns the variables that a node reads, also within lambdas and functions that are defined in it."""
    if node is None:
        return NONE
    if isinstance(node, ast.Name):
        return frozenset([node.id]) if isinstance(node.ctx, ast.Load) else NONE
    if isinstance(node, _SCOPES):
        return _read_by_function(node)
    if isinstance(node, _COMPREHENSIONS):
        own = _all_stored(generator.target for generator in node.generators)
        return read(node.generators[0].iter) | (_all_read(ast.iter_child_nodes(node)) - own)
    found = _all_read(ast.iter_child_nodes(node))
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        found |= {node.target.id}
    return found


def _read_by_function(node: ast.Lambda | ast.FunctionDef) -> Names:
    arguments = node.args
    own = {a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)}
    body = node.body if isinstance(node.body, list) else [node.body]
    outside = [*arguments.defaults, *arguments.kw_defaults, *getattr(node, "decorator_list", ())]
    return _all_read(outside) | (_all_read(body) - own - _all_stored(body))


def _all_read(nodes: Iterable[ast.AST | None]) -> Names:
    return NONE.union(*map(read, nodes))


def stored(node: ast.AST) -> Names:
    """Returns the variables that a node may assign."""
    if isinstance(node, ast.FunctionDef):
        return frozenset([node.name])
    if isinstance(node, ast.Lambda):
        return NONE
    if isinstance(node, _COMPREHENSIONS):  # its own variables are no others'
        return frozenset([n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)])
    if isinstance(node, ast.Name):
        return NONE if isinstance(node.ctx, ast.Load) else frozenset([node.id])
    named = [node.name] if isinstance(node, ast.ExceptHandler) and node.name else []
    return _all_stored(ast.iter_child_nodes(node)).union(named)


def _all_stored(nodes: Iterable[ast.AST]) -> Names:
    return NONE.union(*map(stored, nodes))


def _surely_stored(node: ast.stmt) -> Names:
    """Returns the variables that a simple statement assigns if it ends without an error."""
    if isinstance(node, ast.FunctionDef):
        return frozenset([node.name])
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return NONE
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return _all_stored(filter(None, targets))


def read_later(body: list[ast.stmt]) -> Iterator[str]:
    """Yields the variables that lambdas, generators and nested functions read, perhaps later."""
    nodes = [node for statement in body for node in ast.walk(statement)]
    consumed = {id(x) for node in nodes if _consumes(node) for x in node.args}
    for node in nodes:
        if isinstance(node, _SCOPES) or (isinstance(node, ast.GeneratorExp) and id(node) not in consumed):
            yield from read(node)


def _consumes(node: ast.AST) -> bool:
    """Returns whether a node is a call of a function that takes all items of a generator at once."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CONSUMERS


@dataclass(frozen=True)
class Exits:
    """What is live where control goes if it leaves a block before its end.

    Attributes:
        broken, continued: after `break` and `continue`.
        raised: after an exception, in handlers and `finally` blocks around; also after a `return`.
    """

    broken: Names = NONE
    continued: Names = NONE
    raised: Names = NONE


class Flow:
    """Liveness and definite assignment in the body of a function.

    Args:
        locals: the function's variables.
        suppresses: whether a `with` statement may end without the exception that its block raised.
    """

    def __init__(self, locals: Names, suppresses: Callable[[ast.With], bool]):
        self._locals, self._suppresses = locals, suppresses

    # Backwards.

    def live(self, statement: ast.stmt, after: Names, exits: Exits) -> Names:
        """Returns what is live before a statement, if `after` is live after it."""
        find = getattr(self, f"_live_{type(statement).__name__.lower()}", None)
        if find is not None:
            found = find(statement, after, exits)
        elif isinstance(statement, (ast.Return, ast.Raise)):
            found = read(statement)
        else:
            found = (after - _surely_stored(statement)) | read(statement)
        return (found & self._locals) | exits.raised

    def live_block(self, body: list[ast.stmt], after: Names, exits: Exits) -> Names:
        """Returns what is live before a block."""
        for statement in reversed(body):
            after = self.live(statement, after, exits)
        return after

    def _live_break(self, statement: ast.Break, after: Names, exits: Exits) -> Names:
        return exits.broken

    def _live_continue(self, statement: ast.Continue, after: Names, exits: Exits) -> Names:
        return exits.continued

    def _live_if(self, statement: ast.If, after: Names, exits: Exits) -> Names:
        branches = [self.live_block(body, after, exits) for body in (statement.body, statement.orelse)]
        return read(statement.test).union(*branches)

    def _live_while(self, statement: ast.While, after: Names, exits: Exits) -> Names:
        return self.live_in_loop(statement, after, exits)

    def _live_for(self, statement: ast.For, after: Names, exits: Exits) -> Names:
        return read(statement.iter) | self.live_in_loop(statement, after, exits)

    def live_in_loop(self, loop: ast.For | ast.While, after: Names, exits: Exits) -> Names:
        """Returns what is live at the head of a loop, to which each iteration comes back."""
        ended = self.live_block(loop.orelse, after, exits)
        if isinstance(loop, ast.While):
            ended, targets = ended | read(loop.test), NONE
        else:
            ended, targets = ended | read(loop.target), stored(loop.target)
        head, before = ended, None
        while head != before:
            before = head
            inner = replace(exits, broken=after, continued=head)
            head = ended | (self.live_block(loop.body, head, inner) - targets)
        return head & self._locals

    def _live_with(self, statement: ast.With, after: Names, exits: Exits) -> Names:
        body = self.live_block(statement.body, after, self.exits_of_with(statement, after, exits))
        targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
        return (body - _all_stored(targets)) | _all_read(statement.items)

    def exits_of_with(self, statement: ast.With, after: Names, exits: Exits) -> Exits:
        """Returns the exits of the block of a `with` statement."""
        return replace(exits, raised=exits.raised | after) if self._suppresses(statement) else exits

    def _live_try(self, statement: ast.Try, after: Names, exits: Exits) -> Names:
        ended, inner, guarded = self.exits_of_try(statement, after, exits)
        ended = self.live_block(statement.orelse, ended, inner)
        return self.live_block(statement.body, ended, guarded)

    def exits_of_try(self, statement: ast.Try, after: Names, exits: Exits) -> tuple[Names, Exits, Exits]:
        """Returns what is live before `finally`, and the exits of handlers and of the block of a `try`."""
        ended, inner = after, exits
        if statement.finalbody:  # it is run on the way out, too
            out = after | exits.broken | exits.continued | exits.raised
            ended = self.live_block(statement.finalbody, out, exits)
            inner = Exits(exits.broken | ended, exits.continued | ended, exits.raised | ended)
        raised = inner.raised
        for handler in statement.handlers:
            named = {handler.name} if handler.name else set()
            raised |= (self.live_block(handler.body, ended, inner) - named) | read(handler.type)
        return ended, inner, replace(inner, raised=raised & self._locals)

    # Forwards.

    def assigned(self, statement: ast.stmt, before: Names) -> Names:
        """Returns what has a value after a statement, all variables if its end isn't reached."""
        find = getattr(self, f"_assigned_{type(statement).__name__.lower()}", None)
        if find is not None:
            return find(statement, before)
        if isinstance(statement, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
            return self._locals
        if isinstance(statement, (ast.For, ast.While)):  # there may be no iteration
            return before
        return before | _surely_stored(statement)

    def assigned_block(self, body: list[ast.stmt], before: Names) -> Names:
        """Returns what has a value after a block."""
        for statement in body:
            before = self.assigned(statement, before)
        return before

    def _assigned_if(self, statement: ast.If, before: Names) -> Names:
        return self.assigned_block(statement.body, before) & self.assigned_block(statement.orelse, before)

    def _assigned_with(self, statement: ast.With, before: Names) -> Names:
        before |= _all_stored(statement.items)
        return before if self._suppresses(statement) else self.assigned_block(statement.body, before)

    def _assigned_try(self, statement: ast.Try, before: Names) -> Names:
        after = self.assigned_block([*statement.body, *statement.orelse], before)
        for handler in statement.handlers:
            after &= self.assigned_block(handler.body, before)
        named = {handler.name for handler in statement.handlers}  # these are deleted
        return self.assigned_block(statement.finalbody, after) - named


class Scope:
    """The variables of a function that aren't local, by their names.

    Args:
        locals: the names of the local variables.
    """

    def __init__(self, function: types.FunctionType, locals: Names):
        self._locals, self._cells, self._globals = locals, cells_of(function), function.__globals__

    def loads_opaque(self, node: ast.AST) -> bool:
        """Returns whether a node is known to load something that a program can't hold."""
        found = self._value(node) if isinstance(node, (ast.Name, ast.Attribute)) else MISSING
        is_module = isinstance(found, types.ModuleType)  # of which a function may only compute
        return not is_module and found is not MISSING and why_opaque(found) is not None

    def suppresses(self, statement: ast.With) -> bool:
        """Returns whether a `with` statement may suppress exceptions: those of the package don't."""
        made = [item.context_expr for item in statement.items]
        found = [self._value(x.func if isinstance(x, ast.Call) else x) for x in made]
        return not all(map(_raises, found))

    def _value(self, node: ast.expr) -> object:
        """Returns what a dotted name that isn't local refers to now, if it is in a module or a closure."""
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            if isinstance(owner, types.ModuleType):
                return getattr(owner, node.attr, MISSING)
            return owner if type(owner).__module__.startswith("mytorch.") else MISSING
        if not isinstance(node, ast.Name) or node.id in self._locals:
            return MISSING
        if node.id in self._cells:
            return content(self._cells[node.id])
        return self._globals.get(node.id, getattr(builtins, node.id, MISSING))


def _raises(manager: object) -> bool:
    """Returns whether a context manager, or what makes it, is known to raise the exceptions of its block."""
    kind = manager if isinstance(manager, (type, types.FunctionType)) else type(manager)
    is_known = manager is open or kind.__name__ == "nullcontext" or is_mytorchs(kind.__module__)
    return is_known and manager is not MISSING
