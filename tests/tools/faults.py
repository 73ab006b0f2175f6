"""The faults that can be planted in a file of Python, and the blocks of statements that they lie in."""

import ast
import random
import re

# What belongs to an area (a path's beginning under mytorch/; the names before and after core/ had a folder),
# and its mutants, as a share of `--count`.
BEFORE_CORE = r"(_array|tensor|size|printing|widened|device|dtypes|ops/op|backends/(device|dtypes))\.py|" + (
    r"autograd/(engine|walk|captured|sole|pending|view|hook|grad_mode)\.py"
)
AREAS = {
    "core": (r"core/|" + BEFORE_CORE, 0.20),
    "ops": (r"ops/", 0.18),
    "nn": (r"nn/(?!fused_ops/(numba|triton)/)", 0.18),
    "optim": (r"optim/", 0.14),
    "accelerate": (r"accelerate/", 0.10),
    "distributed": (r"distributed/", 0.10),
    "data": (r"utils/data/", 0.10),
    "autograd": (r"autograd/", 0.10),
    "amp": (r"amp/", 0.10),
    "stream": (r"(stream|profiler)/", 0.10),
    "compiler": (r"compiler/", 0.20),
    "models": (r"models/", 0.10),
    "tokenizers": (r"tokenizers/", 0.10),
    "cli": (r"cli/", 0.10),
}

SWAPS = {
    ast.Add: ast.Sub, ast.Mult: ast.Div, ast.And: ast.Or, ast.Lt: ast.LtE, ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn,
}
SWAPS |= {b: a for a, b in SWAPS.items()}


class Faults:
    """All faults that can be planted in a file, and its blocks: what runs as a whole once its beginning runs.

    Attributes:
        sites: (block, line, description, function that plants the fault into the tree), in the file's order.
        blocks: {name: statements or lambda}.
    """

    def __init__(self, tree: ast.Module):
        self.sites, self.blocks, self.block = [], {}, None
        self.visit(tree)

    def visit(self, node, replace=None):
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or is_warning(node):
            return
        if self.block and replace:
            self.plant(node, replace)
        outside = self.block
        if isinstance(node, ast.Lambda):
            self.block = f"{node.lineno}:{node.col_offset}"
            self.blocks[self.block] = node
        elif isinstance(node, ast.FunctionDef):
            self.block = str(node.body[0].lineno)  # of the defaults, too
        elif isinstance(node, ast.ClassDef):
            self.block = None
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "pattern"):
                continue
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self.statements(value, self.block and not isinstance(node, ast.ClassDef | ast.Module))
            elif isinstance(value, list):
                for i, one in enumerate(value):
                    if isinstance(one, ast.AST):
                        self.visit(one, lambda new, value=value, i=i: value.__setitem__(i, new))
            elif isinstance(value, ast.AST):
                self.visit(value, lambda new, field=field: setattr(node, field, new))
        self.block = outside

    def statements(self, body, is_block):
        outside = self.block
        if is_block:
            self.block = str(body[0].lineno)
            self.blocks[self.block] = body
        for i, statement in enumerate(body):
            self.visit(statement, lambda new, i=i: body.__setitem__(i, new))
        self.block = outside

    def plant(self, node, replace):
        def add(new, what=node):
            def change():
                replace(ast.copy_location(new, node))

            self.add(node, f"{brief(what)} → {brief(new)}", change)

        def swapped(holder, field, old):
            if swap := SWAPS.get(type(old)):
                before = brief(node)
                setattr(holder, field, swap())
                after = brief(node)
                setattr(holder, field, old)
                self.add(node, f"{before} → {after}", lambda: setattr(holder, field, swap()))

        match node:
            case ast.BinOp(left=left, right=right, op=op) if not (is_text(left) or is_text(right)):
                swapped(node, "op", op)
            case ast.Compare(ops=[op]):
                before, new = brief(node), SWAPS.get(type(op))
                if new:
                    self.add(node, f"{before} → {new.__name__}", lambda: node.ops.__setitem__(0, new()))
            case ast.BoolOp(op=op):
                swapped(node, "op", op)
            case ast.Constant(value=bool(value)):
                add(ast.Constant(not value))
            case ast.Constant(value=int(value)):
                add(ast.Constant(value + 1))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                add(operand)
            case ast.IfExp(orelse=orelse):
                add(orelse)
            case ast.If(test=test) if "TYPE_CHECKING" not in ast.unparse(test):
                change = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
                self.add(node, f"if {brief(test)} → negated", lambda: setattr(node, "test", change))
            case ast.AugAssign(op=op):
                swapped(node, "op", op)
                add(ast.Pass())
            case ast.Expr(value=ast.Call()):
                add(ast.Pass())
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                add(ast.Pass())

    def add(self, node, what, change):
        self.sites.append((self.block, node.lineno, what, change))


def is_text(node):
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def is_warning(node):
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    return ast.unparse(node.value.func).split(".")[-1] in ("warn", "warning", "info", "debug", "print")


def brief(node):
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "…"


def planned(tree, count, seed):
    """The mutants: for each area its share, drawn among all faults of its files, at most one a line."""
    draw, mutants = random.Random(seed), []
    for area, (pattern, share) in AREAS.items():
        places = []
        for path in tree.files:
            if re.match(f"mytorch/({pattern})", path) and not (area == "ops" and path.endswith("ops/op.py")):
                sites = Faults(tree.parse(path)).sites
                places += [(path, n, block, line, what) for n, (block, line, what, _) in enumerate(sites)]
        draw.shuffle(places)
        one_a_line = {(path, line): (path, n, block, line, what) for path, n, block, line, what in places}
        for place in list(one_a_line.values())[: round(count * share)]:
            fields = ("area", "path", "n", "block", "line", "what")
            mutants.append(dict(zip(fields, (area, *place), strict=True)))
    draw.shuffle(mutants)
    return mutants
