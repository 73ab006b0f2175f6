"""The imports of the package's files: statements, also within functions, and names in strings.

Strings are those of `import_module`, of `__import__`, and of the tables of `aliases.lazily`, which imports
names at their first use.
"""

import ast
import functools
import importlib
import pathlib
from collections.abc import Iterator

PACKAGE = pathlib.Path(__file__).parent.parent / "mytorch"
FILES = sorted(PACKAGE.rglob("*.py"))
ROOT = "__init__"  # the file of the public names


def name_of(path: pathlib.Path) -> str:
    """Returns the path of a file within the package, without .py."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


@functools.cache
def imported(path: pathlib.Path, runtime: bool = False) -> frozenset[str]:
    """Returns the files of the package that a file imports; see `names_in`."""
    return frozenset({file_of(name) for name in names_of(path, runtime)} - {None, name_of(path)})


@functools.cache
def names_of(path: pathlib.Path, runtime: bool = False) -> list[str]:
    """Returns the names that a file imports; see `names_in`."""
    return list(names_in(name_of(path), path.read_text(), runtime))


@functools.cache
def file_of(name: str) -> str | None:
    """Returns the file of a module, or of the module that has this name; None outside of the package."""
    top, *parts = name.split(".")
    if top != PACKAGE.name:
        return None
    place = PACKAGE.joinpath(*parts)
    if parts and place.with_suffix(".py").exists():
        return "/".join(parts)
    if (place / "__init__.py").exists():
        return "/".join([*parts, ROOT])
    return file_of(".".join([top, *parts[:-1]]))


def names_in(here: str, text: str, runtime: bool = False) -> Iterator[str]:
    """Yields the absolute names that a file imports: modules, or names in modules.

    Args:
        here: the file.
        text: its content.
        runtime: without what only type checkers read, and without strings whose end isn't known. Else such a
            string counts as far as it is a name.
    """
    module = ".".join([PACKAGE.name, *here.split("/")])
    package, module = module.rpartition(".")[0], module.removesuffix(f".{ROOT}")
    for node in _nodes(_tree(text), runtime):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            function = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if function in ("import_module", "__import__"):
                name = _text(node.args[0], {"__name__": module, "__package__": package}, runtime)
                yield importlib.util.resolve_name(name, package)
            elif function.lstrip("_") == "lazily":
                yield from _names_in_tables(node.args[1:], module)


@functools.cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _nodes(tree: ast.AST, runtime: bool) -> Iterator[ast.AST]:
    todo = [tree]
    for node in todo:
        yield node
        is_skipped = runtime and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        todo += node.orelse if is_skipped else ast.iter_child_nodes(node)


def _text(node: ast.expr, known: dict[str, str], whole: bool) -> str:
    """Returns the text of a string; of one whose end isn't known the names before, or with `whole` ""."""
    text = ""
    for part in node.values if isinstance(node, ast.JoinedStr) else [node]:
        inner = part.value if isinstance(part, ast.FormattedValue) else part
        if isinstance(inner, ast.Constant):
            text += inner.value
        elif isinstance(inner, ast.Name) and inner.id in known:
            text += known[inner.id]
        else:
            return "" if whole else text.rpartition(".")[0]
    return text


def _names_in_tables(tables: list[ast.expr], module: str) -> Iterator[str]:
    for table in tables:
        values = vars(importlib.import_module(module))
        for name, where in eval(ast.unparse(table), values).items():
            yield f"{PACKAGE.name}.{where}" if where else f"{module}.{name}"
