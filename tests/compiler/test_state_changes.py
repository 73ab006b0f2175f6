"""A compiled function sees what has changed of all that it uses, or it runs eagerly there."""

import functools
import importlib
import sys
import threading
import types
import warnings

import pytest

import mytorch
from mytorch import nn
from mytorch.compiler.graph_breaks import watching
from tests.compiler.state_cases import CASES, HERE, VARYING


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "mytorch.compile")
        yield


def outcomes(make, compile):
    """What calls before and after the change return."""
    with pytest.MonkeyPatch.context() as patch:
        function, change = make(patch)
        compiled, x, found = compile(function), mytorch.ones(2), []
        try:
            for k in range(5):
                if k == 2:
                    change()
                try:
                    found.append(compiled(x).tolist())
                except RuntimeError as error:
                    found.append(str(error))
                    if "fullgraph=True): state_cases.py:" in str(error):
                        return None
        finally:
            getattr(HERE, "restore", lambda: None)()
        return found


def eager(function):
    return function


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen(name):
    want = outcomes(CASES[name], eager)
    assert want[1] != want[2] or name == "a constant of math"
    assert outcomes(CASES[name], mytorch.compile) == want
    assert outcomes(CASES[name], lambda f: mytorch.compile(f, fullgraph=True)) in (want, None)


@pytest.mark.parametrize("name", VARYING)
def test_what_may_differ_in_each_call_is_no_program(name):
    with pytest.raises(RuntimeError, match=r"fullgraph=True\): state_cases.py:\d+: a program can't hold"):
        mytorch.compile(VARYING[name], fullgraph=True)(mytorch.ones(2))


COUNTS = []
EVENT, CLOSED = threading.Event(), [1.0]


def refuses_in_finally(x):
    try:
        return x * half(EVENT)
    finally:
        print("the end")


def half(event):
    return 2.0 if event.is_set() else 1.0


def catches(x):
    try:
        y = x * half(EVENT)
    except Exception:
        y = x * 7
    return y


def with_einops(x):
    import einops

    import mytorch.utils.einops  # noqa: F401 - registers the tensors

    y = einops.rearrange(x * 2, "(a b) -> a b", a=1)
    return y + 1


def gets_it(x, event):
    y = x * 2
    y = y * half(event)
    return y - 1


def gets_more(x, *rest, **named):
    y = x * 2
    y = y * half(rest[0][0]) * half(named["event"])
    return y - 1


def gets_an_object(x, holder):
    y = x * 2
    y = y * half(holder.inner.event)
    return y - 1


def has_a_default(x, event=threading.Event()):  # noqa: B008 - that is what is tested
    def inner():
        return half(event)

    y = x * 2
    return y * inner()


class Worker(threading.Thread):
    def step(self, x):
        y = x * 2
        if self.name == "set":
            y = y * 2
        return y - 1


class Gated(nn.Module):
    def forward(self, x, event):
        y = x * 2
        y = y * half(event)
        return y - 1


def of_hook(gate):
    gate.register_forward_pre_hook(lambda module, args: (args[0] * half(args[1]), args[1]))
    return gate


def in_hook_of_gradient(x):
    WEIGHT.grad = None
    (WEIGHT * x).sum().backward()
    return WEIGHT.grad


WEIGHT = mytorch.ones(2, requires_grad=True)
WEIGHT.register_hook(lambda g: g * half(EVENT))
HOLDER = types.SimpleNamespace(inner=types.SimpleNamespace(event=EVENT))
ARGUMENTS = {
    "an argument": lambda: (gets_it, (EVENT,), {}),
    "nested ones": lambda: (gets_more, ([EVENT],), {"event": EVENT}),
    "in an object": lambda: (gets_an_object, (HOLDER,), {}),
    "a default": lambda: (has_a_default, (), {}),
    "of a module": lambda: (Gated(), (EVENT,), {}),
    "of a hook": lambda: (of_hook(Gated()), (EVENT,), {}),
    "of a partial": lambda: (functools.partial(gets_it, event=EVENT), (), {}),
    "in a hook of a gradient": lambda: (in_hook_of_gradient, (), {}),
    "itself": lambda: (Worker().step, (), {}),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_it_gets_may_be_opaque(name):
    function, args, kwargs = ARGUMENTS[name]()
    compiled = mytorch.compile(function)
    worker = getattr(function, "__self__", None)
    for is_set in (False, False, True, True, False):
        for event in (EVENT, has_a_default.__defaults__[0]):
            (event.set if is_set else event.clear)()
        if isinstance(worker, Worker):
            worker.name = "set" if is_set else "clear"
        x = mytorch.ones(2)
        assert compiled(x, *args, **kwargs).tolist() == function(x, *args, **kwargs).tolist()


def counts_and_prints(x):
    COUNTS.append(1)
    y = x * len(COUNTS)
    print("counted")
    return y


def test_it_is_refused_before_anything_happens(capsys):
    """The error ends the capture, whatever the function does with it, and what follows happens once."""
    for function in (catches, refuses_in_finally):
        compiled = mytorch.compile(function)
        for is_set in (False, True, False):
            (EVENT.set if is_set else EVENT.clear)()
            assert compiled(mytorch.ones(2)).tolist() == [1.0 + is_set] * 2
    assert capsys.readouterr().out == "the end\n" * 3
    compiled = mytorch.compile(counts_and_prints)
    assert [compiled(mytorch.ones(1)).item() for _ in range(3)] == [1, 2, 3]
    assert capsys.readouterr().out == "counted\n" * 3


def test_where_it_is_split_is_said():
    compiled = mytorch.compile(catches)
    compiled(mytorch.ones(2))
    said = mytorch.compiler.explain(compiled).splitlines()[1]
    line = catches.__code__.co_firstlineno + 2
    what = "a program can't hold EVENT, which is an Event of threading"
    assert said == f"   has a graph break at test_state_changes.py:{line}: {what}"


@pytest.mark.parametrize("by_lines", [False, True])
def test_where_python_calls_for_lines_alone(by_lines, monkeypatch):
    """As in Python 3.12."""
    monkeypatch.setattr(watching, "_BY_LINES", by_lines)
    compiled = mytorch.compile(catches)
    for is_set in (False, True):
        (EVENT.set if is_set else EVENT.clear)()
        assert compiled(mytorch.ones(2)).tolist() == [1.0 + is_set] * 2


@pytest.mark.parametrize("function", [catches, refuses_in_finally])
def test_where_a_debugger_traces(function):
    before, seen = sys.gettrace(), []
    compiled = mytorch.compile(function)
    try:
        for is_set in (False, True):
            (EVENT.set if is_set else EVENT.clear)()
            want = function(mytorch.ones(2)).tolist()
            sys.settrace(lambda *event: seen.append(event))
            assert compiled(mytorch.ones(2)).tolist() == want
    finally:
        sys.settrace(before)
    assert seen


def test_installed_packages_are_followed():
    pytest.importorskip("einops")
    compiled = mytorch.compile(with_einops)
    for _ in range(2):
        assert compiled(mytorch.ones(2)).tolist() == [[3.0, 3.0]]


PACKAGE = """
import sys

_known = {}


def double(x):
    if type(x) not in _known:
        _known[type(x)] = "numpy" in sys.modules
    return x * (2 if _known[type(x)] else 3)


def always(x):
    return x * (2 if "numpy" in sys.modules else 3)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "package_of_the_tests.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("package_of_the_tests")
    del sys.modules["package_of_the_tests"]


def test_a_package_that_does_more_in_its_first_call(package):
    compiled = mytorch.compile(lambda x: package.double(x) + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [compiled(mytorch.ones(1)).item() for _ in range(3)] == [3, 3, 3]
    assert len(compiled.programs()) == 1
    said = "ran eagerly this once: package_of_the_tests.py:9: a program can't hold sys.modules"
    assert said in mytorch.compiler.explain(compiled)


def test_a_package_that_does_more_in_each_call(package):
    compiled = mytorch.compile(lambda x: package.always(x) + 1)
    compiled(mytorch.ones(1))
    with pytest.warns(UserWarning, match="a program can't hold sys.modules"):
        compiled(mytorch.ones(1))
    assert [compiled(mytorch.ones(1)).item() for _ in range(3)] == [3, 3, 3]
    assert len(compiled.history) == 2
    with pytest.raises(RuntimeError, match="a program can't hold sys.modules"):
        mytorch.compile(package.always, fullgraph=True)(mytorch.ones(1))


def test_einops_knows_tensors_before_its_first_call():
    backends = pytest.importorskip("einops")._backends
    einops = importlib.reload(importlib.import_module("mytorch.utils.einops"))
    assert isinstance(backends._type2backend[nn.Parameter], einops.Backend)
    weight = nn.Parameter(mytorch.ones(2))
    compiled = mytorch.compile(lambda x: with_einops(weight * x), fullgraph=True)
    assert compiled(mytorch.ones(2)).tolist() == [[3.0, 3.0]]


class Slotted:
    __slots__ = ("last",)


def test_a_slot_that_it_gives_its_first_value():
    slotted = Slotted()

    def function(x):
        slotted.last = 3.0
        return x * slotted.last

    compiled = mytorch.compile(function)
    for _ in range(3):
        assert compiled(mytorch.ones(1)).item() == 3.0 and slotted.last == 3.0
        slotted.last = 7.0


def test_functions_that_nothing_refers_to(monkeypatch):
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x * CLOSED[0])  # mytorch's own are constant
    relu = nn.ReLU()
    compiled = mytorch.compile(lambda x: relu(x) * 2)
    for CLOSED[0] in (1.0, 5.0):
        assert compiled(mytorch.ones(2)).tolist() == [2 * CLOSED[0]] * 2
