"""Imports point one way: a module may use the layers above it in this list, never those below."""

import ast
import functools
import pathlib

PACKAGE = pathlib.Path(__file__).parent.parent / "mytorch"

# A file belongs to the longest entry that its path begins with.
LAYERS = [
    ("version", "aliases", "diagram", "utils/atomic", "utils/reading", "utils/start", "utils/writing"),
    ("backends",),
    ("core",),
    ("random", "ops"),
    ("autograd",),
    ("array_methods", "fft", "linalg", "methods", "numpy_protocol", "cuda"),
    ("nn/functional",),
    ("special",),
    ("nn/fused_ops", "nn"),
    ("func", "distributions", "jit", "hub", "foreach", "accelerator"),
    ("optim",),
    ("amp", "cuda/amp"),
    ("serialization", "tokenizers", "utils"),
    ("stream", "profiler", "debug", "utils/flop_counter", "autograd/profiler"),
    ("stream/compiled", "compiler"),
    ("distributed", "multiprocessing"),
    ("models",),
    ("accelerate",),
    ("cli", "chat"),
    ("__init__",),
]
FILES = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def imports(path: pathlib.Path) -> list:
    """The import statements of a file."""
    return [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, (ast.Import, ast.ImportFrom))]


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
    """The modules of the package that a file imports from, as paths without .py.

    Files written as a user's program (`import mytorch`, `from mytorch import Tensor, nn`) name the package:
    of these names only modules count.
    """
    folder = path.relative_to(PACKAGE).parent.parts
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == PACKAGE.name:
            base = tuple(node.module.split(".")[1:])
            found = {resolve((*base, alias.name), base) for alias in node.names}
            yield from found - {"__init__"}
        elif isinstance(node, ast.ImportFrom) and node.level:
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


def test_imports_point_one_way():
    wrong = []
    for path in FILES:
        here = str(path.relative_to(PACKAGE).with_suffix(""))
        for target in imported(path):
            if layer(target.removesuffix("/__init__")) > layer(here):
                wrong.append(f"{here} imports {target}, which lies below it")
    assert not wrong, "\n".join(wrong)


def test_pytorch_is_never_imported():
    wrong = []
    for path in FILES:
        for node in imports(path):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            absolute = isinstance(node, ast.Import) or not node.level
            if absolute and any(n.partition(".")[0] == "torch" for n in names):
                wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno} imports torch")
    assert not wrong, "\n".join(wrong)
