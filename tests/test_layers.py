"""Imports point one way: a module may use the layers above it in this list, never those below."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "mytorch"

# A file belongs to the longest entry that its path begins with.
LAYERS = [
    ("version",),
    ("backends",),
    ("core",),
    ("random", "ops"),
    ("autograd",),
    ("linalg", "methods", "numpy_protocol", "cuda"),
    ("nn/functional",),
    ("special",),
    ("nn/fused_ops", "nn"),
    ("func", "distributions"),
    ("optim",),
    ("serialization", "tokenizers", "utils"),
    ("distributed",),
    ("models",),
    ("accelerate",),
    ("cli",),
    ("__init__",),
]
FILES = sorted(PACKAGE.rglob("*.py"))


def layer(name: str) -> int:
    matches = [
        (len(prefix), i)
        for i, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if name == prefix or name.startswith(prefix + "/")
    ]
    assert matches, f"{name} belongs to no layer: add it to LAYERS"
    return max(matches)[1]


def imported(path: pathlib.Path):
    """The modules of the package that a file imports relatively, as paths without .py."""
    folder = path.relative_to(PACKAGE).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder[: len(folder) - (node.level - 1)]
            base = (*base, *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                yield resolve((*base, alias.name), base)


def resolve(full: tuple, base: tuple) -> str:
    """`from .a import b` names the module a/b if there is one, else the module a."""
    for parts in (full, base):
        if parts and (PACKAGE.joinpath(*parts).with_suffix(".py")).exists():
            return "/".join(parts)
        if parts and PACKAGE.joinpath(*parts, "__init__.py").exists():
            return "/".join((*parts, "__init__"))
    return "__init__"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    here = str(path.relative_to(PACKAGE).with_suffix(""))
    for target in imported(path):
        target = target.removesuffix("/__init__")
        assert layer(target) <= layer(here), f"{here} imports {target}, which lies below it"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_pytorch_is_never_imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        assert not any(n == "torch" or n.startswith("torch.") for n in names), f"{path.name} imports torch"
