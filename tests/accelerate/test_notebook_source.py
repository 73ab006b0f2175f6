"""Functions of a notebook's cells, and of a script, as the files that other processes import."""

import linecache
import sys
from types import ModuleType

import pytest

import mytorch
from mytorch.accelerate import call_function, notebook_launcher
from mytorch.accelerate.notebook_source import source_of

CELLS = [
    """
import functools
import numpy as np
from math import sqrt
from mytorch import nn
from mytorch.nn import functional as F
WIDTH, weights, unused = 3, {"a": [1.5, None]}, object()
bias = nn.Parameter(np.ones(3, np.float32))
""",
    """
def twice(f):
    @functools.wraps(f)
    def call(*args): return 2 * f(*args)
    return call

class Base(nn.Module):
    def name(self): return "base"

class Point:  # has no method, by whose code its source could be found
    x = 1

@functools.total_ordering
class Net(Base):
    size = WIDTH
    def forward(self, x: Point) -> Point: return F.relu(x) + bias
    def __lt__(self, other): return True
""",
    """
@twice
def root(x, by=WIDTH):
    unused = [lambda: sqrt(x)]  # a local name of a global variable
    return unused[0]() / by

renamed = root

def even(n): return n == 0 or odd(n - 1)
def odd(n): return n > 0 and even(n - 1)

def everything():
    return renamed(9), Net()(bias), weights, even(4)

def needs_it(): return unused
def needs_a_lambda(): return small(1)
small = lambda x: x
def needs_point(): return Point(1)
def gone(): return 1
""",
]


@pytest.fixture
def notebook(monkeypatch):
    """The module of a notebook in which these cells were run."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    for number, cell in enumerate(CELLS):
        name = f"<cell {number}>"
        monkeypatch.setitem(linecache.cache, name, (len(cell), None, cell.splitlines(True), name))
        exec(compile(cell, name, "exec"), vars(module))
    return module


def test_the_file_has_what_the_function_uses(notebook, tmp_path):
    source, values = source_of("everything")
    file = tmp_path / "notebook.py"
    file.write_text(source)
    assert set(values) == {"WIDTH", "weights", "bias"}
    module = call_function._module("__main__", str(file), values)
    y = module.everything()
    assert y[0] == 2.0 and y[1].tolist() == [2.0, 2.0, 2.0] and y[2] == {"a": [1.5, None]} and y[3]
    assert "unused" not in vars(module) and "needs_it" not in source
    assert source.index("class Base") < source.index("class Net") < source.index("def everything")


def test_a_module_comes_from_its_file_if_it_has_no_name_there(tmp_path, monkeypatch):
    """What is missing within it is an error of its own."""
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine" / "part.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "script.py"
    file.write_text("def double(): return 2 * factor")
    for name in ("elsewhere", "elsewhere.inner", "package_of_mine.elsewhere"):
        assert call_function._module(name, str(file), {"factor": 3}).double() == 6
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        call_function._module("package_of_mine.part", str(file), {})


REFUSED = {
    "needs_it": r"__main__.needs_it: unused can't be sent to them \(.*object.*\): make it in the function",
    "needs_a_lambda": "small has no source: put it into a file",
    "needs_point": "Point has no source",
}


@pytest.mark.parametrize(("name", "message"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_sent_is_an_error(notebook, name, message):
    with pytest.raises(ValueError, match=message):
        notebook_launcher(getattr(notebook, name), num_processes=2)


def test_a_function_that_has_another_name_now(notebook):
    gone = notebook.gone
    del notebook.gone
    with pytest.raises(ValueError, match="there is no gone"):
        notebook_launcher(gone, num_processes=2)


def test_an_argument_that_cannot_be_sent(notebook):
    with pytest.raises(TypeError, match="can't save"):
        notebook_launcher(notebook.even, (mytorch.nn.ReLU(),), num_processes=2)
