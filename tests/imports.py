"""The imports of a file of the package: statements, also within functions, and names in strings.

Strings are those of `import_module`, of `__import__`, and of the tables of `aliases.lazily`, which imports
names at their first use.
"""

import ast
import functools
import importlib
import pathlib

PACKAGE = pathlib.Path(__file__).parent.parent / "mytorch"
FILES = sorted(PACKAGE.rglob("*.py"))
ROOT = "__init__"  # of the package


def name_of(path: pathlib.Path) -> str:
    """Returns the path of a file within the package, without .py."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


@functools.cache
def nodes(path: pathlib.Path, runtime: bool = False) -> list[ast.AST]:
    """Returns the nodes of the syntax tree; with `runtime` without what only type checkers read."""
    found, todo = [], [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        found.append(node)
        is_skipped = runtime and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        todo += node.orelse if is_skipped else ast.iter_child_nodes(node)
    return found


@functools.cache
def imported(path: pathlib.Path, runtime: bool = False) -> frozenset[str]:
    """Returns the modules of the package that a file imports from, as paths without .py; not itself."""
    found = set()
    for node in nodes(path, runtime):
        if isinstance(node, ast.ImportFrom):
            base = _base(path, node)
            found |= {resolve([*base, alias.name]) or resolve(base) for alias in node.names if base is not None}
        elif isinstance(node, ast.Import):
            found |= {resolve(_parts(alias.name)) for alias in node.names if _is_ours(alias.name)}
        elif isinstance(node, ast.Call):
            found |= {resolve(_parts(name)) for name in names_in_strings(path, node) if _is_ours(name)}
    return frozenset(found - {name_of(path)})


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == PACKAGE.name


def _parts(name: str) -> list[str]:
    return name.split(".")[1:]


def _base(path: pathlib.Path, node: ast.ImportFrom) -> list[str] | None:
    """Returns the parts of the module after `from`; None outside of the package."""
    if not node.level:
        return _parts(node.module) if _is_ours(node.module) else None
    folder = path.relative_to(PACKAGE).parent.parts
    return [*folder[: len(folder) - (node.level - 1)], *(node.module.split(".") if node.module else ())]


def resolve(parts: list[str]) -> str | None:
    """Returns the module of these parts, as a path without .py; None if there is none."""
    place = PACKAGE.joinpath(*parts)
    if parts and place.with_suffix(".py").exists():
        return "/".join(parts)
    return "/".join([*parts, ROOT]) if (place / "__init__.py").exists() else None


def names_in_strings(path: pathlib.Path, call: ast.Call) -> list[str]:
    """Returns the modules that a call imports by name; of a name with an unknown end, its package."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if function in ("import_module", "__import__"):
        name = _text(path, call.args[0])
        if name.startswith("."):
            name = importlib.util.resolve_name(name, _package(path))
        return [name] if name else []
    if function.lstrip("_") == "lazily":
        here = _module(path)
        space = vars(importlib.import_module(here))
        tables = [eval(ast.unparse(table), space) for table in call.args[1:]]
        return [
            f"{PACKAGE.name}.{where}" if where else f"{here}.{name}"
            for table in tables
            for name, where in table.items()
        ]
    return []


def _module(path: pathlib.Path) -> str:
    return ".".join([PACKAGE.name, *name_of(path).split("/")]).removesuffix(f".{ROOT}")


def _package(path: pathlib.Path) -> str:
    return ".".join([PACKAGE.name, *path.relative_to(PACKAGE).parent.parts])


def _text(path: pathlib.Path, node: ast.expr) -> str:
    """Returns the text of a string up to its first unknown part, as far as that names a package."""
    known = {"__name__": _module(path), "__package__": _package(path)}
    text = ""
    for part in node.values if isinstance(node, ast.JoinedStr) else [node]:
        inner = part.value if isinstance(part, ast.FormattedValue) else part
        if isinstance(inner, ast.Constant):
            text += inner.value
        elif isinstance(inner, ast.Name) and inner.id in known:
            text += known[inner.id]
        else:
            return text.rpartition(".")[0]
    return text
