"""The stubs know what the package attaches: they are up to date and complete, and mypy finds no error."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mytorch
from tests.every import every

ROOT = Path(__file__).resolve().parent.parent


def test_the_stubs_are_up_to_date():
    check = [sys.executable, "docs/make_stubs.py", "--check"]
    assert subprocess.run(check, cwd=ROOT).returncode == 0, "run python docs/make_stubs.py"


def names(stub: str, class_name: str = "") -> set[str]:
    """The names that a stub, or a class in it, defines."""
    body = ast.parse((ROOT / "mytorch" / stub).read_text(encoding="utf-8")).body
    if class_name:
        body = next(node for node in body if getattr(node, "name", "") == class_name).body
    found = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    found |= {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    return found | {alias.asname for node in imports for alias in node.names if alias.asname}


def visible(value: object) -> set[str]:
    """The names that `dir` shows, without modules from elsewhere."""
    theirs = {name for name, module in sys.modules.items() if not name.startswith("mytorch")}
    return {name for name in dir(value) if not name.startswith("_") and name not in theirs}


def test_every_name_is_in_a_stub():
    imported_later = {"models", "tokenizers", "chat", "cli"}
    there = visible(mytorch) - imported_later | {"accelerate", "distributed", "bfloat16"}
    assert there <= names("__init__.pyi")
    assert visible(mytorch.Tensor) - {"grad_slot"} <= names("core/tensor.pyi", "Tensor")
    assert visible(mytorch.Array) <= names("core/array.pyi", "Array")
    assert set(mytorch.nn.functional.__all__) <= names("nn/functional/__init__.pyi")
    assert visible(mytorch.compiler.Program) <= names("compiler/program/program.pyi", "Program")


WRONG = """\
import mytorch
x = mytorch.exp(mytorch.ones(2))
x.summ()
mytorch.exponential(x)
x.softmax(dimension=0)
reveal_type(x > 0)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What mypy says of a program and of a wrong one: strictly, but for a layer's result, which is Any.

    The stubs of `aliases` are a package of their own: mypy finds it where packages are installed.
    """
    pytest.importorskip("mypy")
    wrong = tmp_path_factory.mktemp("mypy") / "wrong.py"
    wrong.write_text(WRONG)
    options = ["--strict", "--no-warn-return-any", "--follow-imports=silent", f"--cache-dir={os.devnull}"]
    command = [sys.executable, "-m", "mypy", *options, str(ROOT / "tests/typed_program.py"), str(wrong)]
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_mypy_accepts_a_program(checked):
    assert "checked 2 source files" in checked and "typed_program.py" not in checked, checked


def test_mypy_finds_mistakes(checked):
    assert every(f"wrong.py:{line}: error" in checked for line in (3, 4, 5)), checked
    assert 'Revealed type is "mytorch.core.tensor.Tensor"' in checked, checked
