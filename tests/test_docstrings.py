"""Every public name has a docstring, most have an example, and every example gives what it shows."""

import ast
import doctest
import inspect
import types
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim

PACKAGE = Path(__file__).parent.parent / "mytorch"
NAMES = {"mytorch": mytorch, "nn": nn, "F": nn.functional, "optim": optim, "np": np}
SHARE = 0.9  # of the public functions and classes that have an example
KINDS = (ast.Module, ast.ClassDef, ast.FunctionDef)


def examples(path: Path) -> list[doctest.DocTest]:
    """The examples in the docstrings of a file, also of functions that a decorator has wrapped."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, KINDS) and ">>>" in (text := ast.get_docstring(node) or ""):
            name = f"{path.relative_to(PACKAGE)}: {getattr(node, 'name', 'the file')}"
            parser = doctest.DocTestParser()
            found.append(parser.get_doctest(text, dict(NAMES), name, str(path), node.body[0].lineno - 1))
    return found


def test_examples_of_generated_docstrings():
    """Those of `zeros`, `ones_like`, … stand in no file."""
    in_files = {example.docstring for path in WITH_EXAMPLES for example in examples(path)}
    docs = {value.__doc__ for value in public(mytorch).values() if ">>>" in (value.__doc__ or "")}
    made = [doc for doc in docs if inspect.cleandoc(doc) not in in_files]
    parser = doctest.DocTestParser()
    assert made and run(parser.get_doctest(doc, dict(NAMES), doc, None, 0) for doc in made) == ""


def run(tests) -> str:
    """What doctest prints: "" if every example gives what it shows."""
    printed: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in tests:
        runner.run(test, out=printed.append)
    return "".join(printed)


WITH_EXAMPLES = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
@pytest.mark.filterwarnings("ignore")
def test_examples_give_what_they_show(path):
    printed = run(examples(path))
    assert printed == "", printed


def public(place) -> dict[str, object]:
    """The public names of a module or class; what a module defines or collects, but no modules."""
    names = getattr(place, "__all__", dir(place))
    found = {name: getattr(place, name) for name in names if not name.startswith("_")}
    return {name: value for name, value in found.items() if not isinstance(value, types.ModuleType)}


PLACES = {
    "mytorch": mytorch, "nn": nn, "nn.functional": nn.functional, "optim": optim,
    "optim.lr_scheduler": optim.lr_scheduler, "Module": nn.Module, "Tensor": mytorch.Tensor,
    "Array": mytorch.Array,
}


@pytest.mark.parametrize("place", PLACES)
def test_every_public_name_has_a_docstring(place):
    missing = [name for name, value in public(PLACES[place]).items() if not documented(value)]
    assert not missing


def documented(value: object) -> bool:
    """Whether it has a docstring; that of a slot stands in `__slots__`. ml_dtypes' bfloat16 can have none."""
    if value is mytorch.bfloat16:
        return True
    return bool(inspect.getdoc(value) if inspect.ismemberdescriptor(value) else value.__doc__)


def test_most_functions_and_classes_have_an_example():
    everything = {}
    for place in list(PLACES)[:6]:  # those of Tensor and Array are the functions of mytorch
        for name, value in public(PLACES[place]).items():
            if callable(value) and not name.endswith("_"):
                everything[place, name] = ">>>" in (value.__doc__ or "")
    without = [f"{place}.{name}" for (place, name), has in everything.items() if not has]
    assert len(without) < (1 - SHARE) * len(everything), without
