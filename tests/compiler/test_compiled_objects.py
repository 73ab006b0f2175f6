"""Compiled functions use what may change of functions, classes, containers and Python's own objects as it is
in each call."""

import array
import collections
import contextvars
import enum
import os
import queue
import threading
import time
import types
import weakref

import numpy as np
import pytest

import mytorch
from mytorch import nn

X = mytorch.ones(2)


def scaled(x, k=2):
    return x * k


class Double:
    def factor(self):
        return 2


class Triple(Double):
    def factor(self):
        return 3


class Named(dict):
    pass


class Pair(collections.namedtuple("Pair", "first second")):
    factor = 2


class Slotted(list):
    __slots__ = ("k",)


class Marked(mytorch.Tensor):
    __slots__ = ("k",)
    factor = 2


class Rate(float):
    pass


class Level(enum.IntEnum):
    LOW = 2


class Other(enum.IntEnum):
    MIDDLE = 2


def copy_of(function):
    return types.FunctionType(function.__code__, globals(), "copy", function.__defaults__)


def assigned(owner, name, value):
    return lambda: setattr(owner, name, value)


def entry(x, key=0):
    """What reads an entry, and what changes it."""
    return lambda: x[key], lambda: x.__setitem__(key, 3)


def reader(make):
    """A function of a tensor that reads a value, and what changes that."""
    read, change = make()
    return lambda x: x * read(), change


def a_default():
    function = copy_of(scaled)
    return function, assigned(function, "__defaults__", (3,))


def a_default_of_a_keyword():
    def function(x, *, k=2):
        return x * k

    return function, assigned(function, "__kwdefaults__", {"k": 3})


def a_default_of_what_it_calls():
    called = copy_of(scaled)
    return lambda x: called(x), assigned(called, "__defaults__", (3,))


def code_of_what_it_calls():
    called = copy_of(scaled)
    return lambda x: called(x), assigned(called, "__code__", (lambda x, k=2: x * 3).__code__)


def a_class():
    x = Double()
    return lambda y: y * x.factor(), assigned(x, "__class__", Triple)


OBJECTS = {
    "UserDict": lambda: entry(collections.UserDict(k=2), "k"),
    "UserList": lambda: entry(collections.UserList([2])),
    "ChainMap": lambda: entry(collections.ChainMap({"k": 2}), "k"),
    "bytearray": lambda: entry(bytearray([2])),
    "array": lambda: entry(array.array("i", [2])),
}


def a_method_of_a_dict():
    entries = {"k": 2}
    get = entries.get
    return lambda: get("k"), lambda: entries.update(k=3)


def a_queue():
    x = queue.Queue()
    x.put(1)
    return x.qsize, lambda: x.put(2)


def a_context_variable():
    x = contextvars.ContextVar("x", default=2)
    return x.get, lambda: x.set(3)


def a_local_of_a_thread():
    x = threading.local()
    x.k = 2
    return lambda: x.k, assigned(x, "k", 3)


def a_proxy():
    entries = {"k": 2}
    x = types.MappingProxyType(entries)
    return lambda: x["k"], lambda: entries.update(k=3)


def a_weak_reference():
    x = Double()
    x.k = 2
    reference = weakref.ref(x)
    return lambda: reference().k, assigned(x, "k", 3)


def the_environment():
    os.environ["MYTORCH_TEST_FACTOR"] = "2"
    change = lambda: os.environ.__setitem__("MYTORCH_TEST_FACTOR", "3")  # noqa: E731
    return lambda: int(os.environ["MYTORCH_TEST_FACTOR"]), change


def a_variable_of_the_environment():
    return lambda: int(os.getenv("MYTORCH_TEST_FACTOR")), the_environment()[1]


FUNCTIONS = [
    a_default, a_default_of_a_keyword, a_default_of_what_it_calls, code_of_what_it_calls, a_class,
]
READERS = [
    *OBJECTS.values(), a_method_of_a_dict, a_queue, a_context_variable, a_local_of_a_thread, a_proxy,
    a_weak_reference, the_environment, a_variable_of_the_environment,
]
MAKERS = [*FUNCTIONS, *[lambda make=make: reader(make) for make in READERS]]
NAMES = [make.__name__ for make in FUNCTIONS] + [*OBJECTS]
NAMES += [make.__name__ for make in READERS[len(OBJECTS) :]]


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("make", MAKERS, ids=NAMES)
def test_what_has_changed_is_seen(make):
    try:
        (eager, change), (function, change_ours) = make(), make()
        compiled = mytorch.compile(function)
        before = eager(X).tolist(), compiled(X).tolist()
        change(), change_ours()
        after = eager(X).tolist(), compiled(X).tolist()
        assert before[0] == before[1] != after[1] == after[0]
    finally:
        os.environ.pop("MYTORCH_TEST_FACTOR", None)


def test_attributes_of_containers_among_the_arguments():
    compiled = mytorch.compile(lambda x, named: x * named["a"] * named.k)
    first, second = Named(a=1), Named(a=1)
    first.k, second.k = 2, 3
    assert compiled(X, first).tolist() == [2, 2] and compiled(X, second).tolist() == [3, 3]
    first.k = 5
    assert compiled(X, first).tolist() == [5, 5]
    product = mytorch.compile(lambda x, pair: x * pair.first * pair.factor)
    try:
        assert product(X, Pair(1, 0)).tolist() == [2, 2]
        Pair.factor = 3
        assert product(X, Pair(1, 0)).tolist() == [3, 3]
    finally:
        Pair.factor = 2


def test_an_argument_that_is_a_tensor_of_the_state():
    weight = mytorch.ones(2)
    compiled = mytorch.compile(lambda x: x * 2 if x is weight else x * 3)
    assert [compiled(x).tolist() for x in (X, weight, X)] == [[3, 3], [2, 2], [3, 3]]
    assert [mytorch.compile(lambda x: x + 0 if x is not weight else -x)(x).tolist() for x in (weight, X)] == [
        [-1, -1], [1, 1]
    ]


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("clock", ["time", "perf_counter", "monotonic_ns"])
def test_clocks(clock):
    compiled = mytorch.compile(lambda x: (x * 2, getattr(time, clock)()))
    times = [compiled(X)[1] for _ in range(3)]
    before = time.time()
    assert len({*times}) == 3 or clock == "time" and times[0] <= times[2] <= before
    assert time.perf_counter.__module__ == "time"  # nothing stands in its place


def rate(k):
    made = Rate(2.0)
    made.k = k
    return made


def leaf():
    return mytorch.ones(2, requires_grad=True)


def parameter(**attributes):
    made = nn.Parameter(mytorch.ones(2))
    vars(made).update(attributes)
    return made


def with_k(made, k):
    made.k = k
    return made


def retained():
    x = leaf() * 1
    x.retain_grad()
    (x * 3).sum().backward()
    return x


ARGUMENTS = {  # a function of a tensor and something else, and what makes that for each call
    "a class derived of float": (lambda x, k: x * k.k, [lambda: rate(1.0), lambda: rate(5.0)]),
    "enums": (lambda x, k: x * len(k.name), [lambda: Level.LOW, lambda: Other.MIDDLE]),
    "keys of a dict": (lambda x, y: x / [*y][0], [lambda: {0.0: 1}, lambda: {-0.0: 1}]),
    "NumPy's numbers": (lambda x, k: x * k, [lambda: np.float64(2), lambda: np.float64(3), lambda: 2.0]),
    "Parameter": (lambda x, y: x * (2 if isinstance(y, nn.Parameter) else 3), [leaf, parameter, leaf]),
    "a type": (lambda x, y: x * (2 if type(y) is mytorch.Tensor else 3), [leaf, parameter, leaf]),
    "Buffer": (lambda x, y: x * (2 if isinstance(y, nn.Buffer) else 3), [lambda: X, lambda: nn.Buffer(X)]),
    "attributes of a parameter": (
        lambda x, y: x * getattr(y, "k", 1), [parameter, lambda: parameter(k=2), lambda: parameter(k=3)]),
    "slots of a container": (
        lambda x, y: x * y.k, [lambda: with_k(Slotted(), 2), lambda: with_k(Slotted(), 3)]),
    "slots of a tensor": (
        lambda x, y: x * getattr(y, "k", 1), [lambda: with_k(Marked(X), 2), lambda: with_k(Marked(X), 3)]),
    "slots of a buffer": (
        lambda x, y: x * (2 if y.persistent else 3),
        [lambda: nn.Buffer(X), lambda: nn.Buffer(X, persistent=False)]),
    "is_leaf": (lambda x, y: x * (2 if y.is_leaf else 3), [leaf, lambda: leaf() * 1]),
    "not is_leaf": (lambda x, y: x * (2 if y.is_leaf else 3), [lambda: leaf() * 1, leaf, lambda: X]),
    "grad_fn": (lambda x, y: x * (2 if y.grad_fn is None else 3), [lambda: leaf() * 1, leaf, lambda: X]),
    "a retained grad": (lambda x, y: x * (1 if y.grad is None else 2), [retained, lambda: leaf() * 1]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_kinds_of_arguments(name):
    function, makers = ARGUMENTS[name]
    compiled = mytorch.compile(function)
    calls = [*makers, *makers]
    want = [function(X, make()).tolist() for make in calls]
    assert len({*map(tuple, want)}) > 1
    assert [compiled(X, make()).tolist() for make in calls] == want


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_whether_a_tensor_of_the_closure_is_a_leaf():
    state = [leaf()]
    function = lambda x: x * (2 if state[0].is_leaf else 3)  # noqa: E731
    compiled = mytorch.compile(function)
    for y in (leaf(), leaf() * 1, leaf()):
        state[0] = y
        assert compiled(X).tolist() == function(X).tolist()
    w = leaf() * 1
    assert mytorch.compile(lambda x: x * (2 if w.is_leaf else 3))(X).tolist() == [3, 3]


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_attributes_that_it_gives_to_an_argument():
    def mark(x, p):
        p.marked = True
        return x * 2

    compiled = mytorch.compile(mark)
    for _ in range(3):
        p = parameter()
        assert compiled(X, p).tolist() == [2, 2] and p.marked


def test_numbers_of_numpy_are_values():
    compiled = mytorch.compile(lambda x, k: x * k)
    for _ in range(3):
        compiled(X, np.float64(2))
    assert len(compiled.history) == 1
    assert str(compiled(X, np.float64(0.0)).tolist()) == "[0.0, 0.0]"
    assert str(compiled(X, np.float64(-0.0)).tolist()) == "[-0.0, -0.0]"


def first_part(x):
    return (x * 1).chunk(2)[0]


def written_part(x):
    x = (x * 1).chunk(2)[0]
    x.add_(1)
    return x


def part_of_a_part(x):
    return (x * 1).unbind(0)[1][:2]


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_one_of_several_views_cannot_be_written_to():
    for compile in (lambda function: function, mytorch.compile):
        x = mytorch.ones(4, 4, requires_grad=True)
        with pytest.raises(RuntimeError, match="one of several views"):
            compile(written_part)(x)
        for function in (first_part, part_of_a_part):
            y = compile(function)(x)
            with pytest.raises(RuntimeError, match="one of several views"):
                y.mul_(2)
            with mytorch.no_grad():
                assert y.add_(1).sum() == 2 * y.numel()
            (y * y).sum().backward()
            assert x.grad.sum() == 4 * y.numel()
            x.grad = None
        assert compile(written_part)(x.detach()).tolist() == [[2] * 4] * 2
        with mytorch.no_grad():
            assert compile(written_part)(x).tolist() == [[2] * 4] * 2


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_what_tensors_of_other_classes_hold_may_change():
    p, x = parameter(scales=[2]), Marked(X)
    compiled = mytorch.compile(lambda x, p: x * p.scales[0] * x.factor)
    assert compiled(x, p).tolist() == [4, 4]
    p.scales[0] = 3
    assert compiled(x, p).tolist() == [6, 6]
    try:
        Marked.factor = 5
        assert compiled(x, p).tolist() == [15, 15]
    finally:
        Marked.factor = 2
