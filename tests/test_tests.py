"""Each test can fail: it asserts something, and not of lists that may be empty."""

import ast
import functools
import itertools
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "tests").rglob("*.py"))}
ASSERTING = {"raises", "warns", "fail", "gradcheck", "gradgradcheck"}  # pytest's and ours


@functools.cache
def functions(path):
    """The functions of a file by name, with those of classes and within functions."""
    return {node.name: node for node in ast.walk(FILES[path]) if isinstance(node, ast.FunctionDef)}


@functools.cache
def imported(path):
    """What a file imports from other files of the tests: by its name here (file, name there or None)."""
    found = {}
    for node in ast.walk(FILES[path]):
        if isinstance(node, ast.ImportFrom):
            folder = path.parents[node.level - 1] if node.level else ROOT
            file = folder.joinpath(*(node.module or "").split("."))
            for alias in node.names:
                here = alias.asname or alias.name
                if (module := file / f"{alias.name}.py") in FILES:
                    found[here] = module, None
                elif (module := file.with_suffix(".py")) in FILES:
                    found[here] = module, alias.name
    return found


def asserts(node):
    """Whether a statement or call makes a test fail by itself."""
    if isinstance(node, ast.Raise):
        return node.exc is not None and ast.unparse(node.exc).startswith("AssertionError(")
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Assert)
    called = ast.unparse(node.func).rpartition(".")[2]
    checks = any(k.arg == "check" and ast.unparse(k.value) == "True" for k in node.keywords)  # a process
    return checks or called in ASSERTING or called.startswith("assert_")


def named_functions(path, node):
    """Yields the functions of the tests that a node names, as (file, name): calls and `partial`s."""
    owner, _, name = ast.unparse(node).rpartition(".")
    if owner in imported(path):
        yield imported(path)[owner][0], name
    elif not owner and name in imported(path):
        yield imported(path)[name]
    elif name in functions(path) and (owner in ("", "self") or name.startswith(("check", "compare"))):
        yield path, name


def asserting_functions():
    """The functions that assert or name one that does, as (file, name)."""
    users, found = {}, []
    for path in FILES:
        for name, function in functions(path).items():
            for node in itertools.chain(*map(ast.walk, function.body)):
                if asserts(node):
                    found.append((path, name))
                elif isinstance(node, ast.Name | ast.Attribute):
                    for used in named_functions(path, node):
                        users.setdefault(used, set()).add((path, name))
    known = set()
    while found:
        if (function := found.pop()) not in known:
            known.add(function)
            found += users.get(function, ())
    return known


def test_each_test_asserts_something():
    asserting = asserting_functions()
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path in FILES
        for name, node in functions(path).items()
        if name.startswith("test_") and (path, name) not in asserting
    ]
    assert silent == []


def test_no_assertion_holds_because_there_is_nothing_to_look_at():
    """`assert all(…)` holds for an empty list: `every` of `tests.every` doesn't."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in FILES.items()
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Assert)
        for node in ast.walk(statement.test)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "all"
    ]
    assert found == []
