"""The house style, where it can be measured: ruff finds nothing, and files and functions stay short."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.signatures import rewritten

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "mytorch").rglob("*.py"))
FOLDERS = (".ci", "benchmarks", "docs", "examples", "mytorch", "notebooks", "prepare_data", "tests")
EVERYWHERE = [*ROOT.glob("*.py"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 400, 60


def test_ruff_finds_nothing():
    command = [sys.executable, "-m", "ruff", "check", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_signatures_have_one_form():
    """And nothing is said to a formatter, which isn't run."""
    found = []
    for path in EVERYWHERE:
        _, changed = rewritten(text(path))
        pragmas = [i for i, line in enumerate(text(path).splitlines(), 1) if re.search(r"# fmt: \w", line)]
        found += [f"{name(path)}:{line}" for line in (*changed, *pragmas)]
    assert not found, f"python -m tests.tools.signatures rewrites signatures: {found}"


FORMS = {  # as written: as they are then, or None for the same
    "def f(\n    a,\n    b=1,\n):\n    pass\n": "def f(a, b=1):\n    pass\n",
    "def f(\n    a, b,\n    c=1,\n):\n    pass\n": "def f(a, b, c=1):\n    pass\n",
    "def f(\n    a, b\n):\n    pass\n": "def f(a, b):\n    pass\n",
    "def f(\n    a,  # why\n    b,\n    c,\n    d,\n):\n    pass\n": None,
    "def f(a, b):\n    pass\n": None,
    f"def {'f' * 100}(\n    a: dict[str, int],\n    b=(1, 2),\n    *,\n    c,\n) -> int:\n    pass\n":
        f"def {'f' * 100}(\n    a: dict[str, int], b=(1, 2), *, c\n) -> int:\n    pass\n",
    f"def f(\n    {'a' * 50},\n    {'b' * 50},\n    {'c' * 50},\n    d,\n):\n    pass\n":
        f"def f(\n    {'a' * 50}, {'b' * 50},\n    {'c' * 50}, d,\n):\n    pass\n",
}


@pytest.mark.parametrize("written", FORMS)
def test_the_form_of_signatures(written):
    assert rewritten(written)[0] == (FORMS[written] or written)


def test_files_are_short():
    """Without the examples of the docstrings, which are there to be looked up."""
    lengths = {name(path): len(text(path).splitlines()) - lines_of_examples(path) for path in FILES}
    assert_short(lengths, LINES_OF_A_FILE)


def lines_of_examples(path):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text(path))) if isinstance(node, documented))
    docstrings = (ast.get_docstring(node) or "" for node in nodes)
    return sum(len(doc[doc.index(">>>") :].splitlines()) + 1 for doc in docstrings if ">>>" in doc)


def test_functions_are_short():
    lengths = {
        f"{name(path)}:{node.lineno} {node.name}": length(node)
        for path in FILES
        for node in ast.walk(ast.parse(text(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert_short(lengths, LINES_OF_A_FUNCTION)


def length(function):
    """Its lines without the docstring's."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    return function.end_lineno - function.lineno + 1 - documented * (first.end_lineno - first.lineno + 1)


def assert_short(lengths, limit):
    assert lengths
    too_long = {what: lines for what, lines in lengths.items() if lines > limit}
    assert not too_long, f"longer than {limit} lines: {too_long}"


def name(path):
    return path.relative_to(ROOT).as_posix()


def text(path):
    return path.read_text(encoding="utf-8")


def test_a_source_has_a_link():
    """Where a docstring or a comment names a paper: `Source: …`, and a link in the next lines."""
    missing = []
    for path in sorted((ROOT / "mytorch").rglob("*.py")):
        lines = path.read_text().splitlines()
        for i, line in enumerate(lines):
            if re.search(r"\bSource:", line) and not any("https://" in near for near in lines[i : i + 4]):
                missing.append(f"{path.relative_to(ROOT)}:{i + 1}: {line.strip()}")
    assert not missing, "\n".join(missing)
