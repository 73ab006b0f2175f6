"""A Program is data; the folders that do something with it attach that as methods."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import mytorch
from mytorch.compiler import Program
from tests.imports import FILES, imported, name_of

METHODS = {  # the folder, or file, of the compiler that attaches each
    "optimized": "pipeline", "draw": "drawing", "save": "files", "freeze": "parts", "stream": "parts",
    "chunked": "parts", "memory": "memory", "source": "running", "strategies": "running", "run": "running",
    "executable": "running", "to": "running",
}


def in_a_new_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_alone_has_all_its_methods():
    names = [name for name in METHODS if name != "run"]
    code = f"from mytorch.compiler import Program\nprint([callable(getattr(Program, x)) for x in {names}])"
    assert "False" not in in_a_new_process(code)


def test_the_package_does_not_load_the_compiler():
    code = "import sys, mytorch\nprint([name for name in sys.modules if name.startswith('mytorch.compiler')])"
    assert in_a_new_process(code).strip() == "[]"


def test_the_compiler_loads_none_of_numpys_tools():
    code = "import sys, mytorch.compiler\nprint({'numpy.f2py', 'numpy.testing'} & sys.modules.keys())"
    assert in_a_new_process(code).strip() == "set()"


@pytest.mark.parametrize("name", METHODS)
def test_methods_belong_to_a_folder_and_are_documented(name):
    method = Program.__call__ if name == "run" else getattr(Program, name)
    assert method.__module__.removeprefix("mytorch.compiler.").partition(".")[0] == METHODS[name]
    assert inspect.getdoc(method) and name in {*dir(Program), "run"}


def test_the_data_imports_nothing_of_what_is_done_with_it():
    files = {name_of(path): {x for x in imported(path) if x.startswith("compiler/")} for path in FILES}
    assert files["compiler/program/program"] == {"compiler/program/instruction"}
    assert files["compiler/program/instruction"] == set()


def test_the_reference_has_the_methods():
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
    try:
        import reference
    finally:
        sys.path.pop(0)
    lines = reference.members("mytorch.compiler.Program", Program, "url")
    assert {f"### Program.{name}" for name in METHODS if name != "run"} <= {*lines}
    assert any("mytorch/compiler/files/saving.py#L" in line for line in lines)


def test_methods_work_on_a_program_that_is_made_of_data():
    program = mytorch.capture(lambda x: (x * 2) + 1, mytorch.ones(3))
    copy = Program(program.inputs, {}, program.constants, program.instructions, program.outputs)
    assert copy.optimized()(mytorch.ones(3)).tolist() == program(mytorch.ones(3)).tolist()
