"""State that functions use, and its changes: each case makes a function of a tensor, and what changes that.

A case gets pytest's `monkeypatch`, for what belongs to the process.
"""

import abc
import array
import builtins
import collections
import contextlib
import contextvars
import ctypes
import dataclasses
import datetime
import decimal
import enum
import functools
import io
import itertools
import logging
import math
import multiprocessing
import operator
import os
import pathlib
import queue
import random
import string
import sys
import threading
import types
import typing
import weakref

import numpy as np

import mytorch
from mytorch import nn, optim
from mytorch.backends import threads
from mytorch.nn import functional as F

ALPHA = 1.0
HERE = sys.modules[__name__]
CASES = {}


def case(function):
    CASES[function.__name__.replace("_", " ")] = function
    return function


def cases(table):
    CASES.update(table)


class Private:
    __slots__ = ("__s",)

    def __init__(self):
        self.__s = 1.0

    def get(self):
        return self.__s


def base(**entries):
    return type("Base", (), {"k": 1.0, **entries})


def derived(**entries):
    return type("Derived", (base(),), entries)


def of_class(patch, change, read=lambda x, o: x * o.k, make=derived, entries=None):
    kind = make(**(entries or {}))
    o = kind()
    return lambda x: read(x, o), lambda: change(kind, o)


def settled(read, change, **values):
    """What reads an object of a user's class, and what changes that."""

    def make(patch):
        o = types.SimpleNamespace(**values) if "kind" not in values else values["kind"]()
        return lambda x: read(x, o), lambda: change(o)

    return make


def value_of(make, read, change):
    """A case with one object that a global function reads."""

    def made(patch):
        o = make()
        return lambda x: x * float(read(o)), lambda: change(o)

    return made


# Classes: what is inherited, added, replaced and deleted.
cases({
    "inherited, then set on the subclass": lambda p: of_class(p, lambda k, o: setattr(k, "k", 5.0)),
    "inherited, then set on the object": lambda p: of_class(p, lambda k, o: setattr(o, "k", 5.0)),
    "set on the base": lambda p: of_class(p, lambda k, o: setattr(k.__base__, "k", 5.0)),
    "deleted on the subclass": lambda p: of_class(p, lambda k, o: delattr(k, "k"), entries={"k": 5.0}),
    "a property on the subclass": lambda p: of_class(
        p, lambda k, o: setattr(k, "k", property(lambda self: 5.0))),
    "another base": lambda p: of_class(
        p, lambda k, o: setattr(k, "__bases__", (type("Other", (), {"k": 7.0}),))),
    "another class": lambda p: of_class(p, lambda k, o: setattr(o, "__class__", derived(k=3.0))),
    "hasattr of the object": lambda p: of_class(
        p, lambda k, o: setattr(o, "z", 1), lambda x, o: x * (2 if hasattr(o, "z") else 1)),
    "hasattr of the class": lambda p: of_class(
        p, lambda k, o: setattr(k, "z", 1), lambda x, o: x * (2 if hasattr(o, "z") else 1)),
    "hasattr of the base": lambda p: of_class(
        p, lambda k, o: setattr(k.__base__, "z", 1), lambda x, o: x * (2 if hasattr(o, "z") else 1)),
    "getattr with a default": lambda p: of_class(
        p, lambda k, o: setattr(k, "z", 4), lambda x, o: x * getattr(o, "z", 1)),
    "getattr of a computed name": lambda p: of_class(
        p, lambda k, o: setattr(k, "kz", 4), lambda x, o: x * getattr(o, "k" + "z"[: len(x)], 1)),
    "__getattr__ on the class": lambda p: of_class(
        p, lambda k, o: setattr(k, "__getattr__", lambda self, name: 5.0),
        lambda x, o: x * getattr(o, "z", 1)),
    "__getattribute__ on the class": lambda p: of_class(
        p, lambda k, o: setattr(k, "__getattribute__", lambda self, name: 5.0)),
    "one attribute for another": lambda p: of_class(
        p, lambda k, o: (delattr(k, "unused"), setattr(k, "k", 6.0)), entries={"unused": 1}),
    "an object's for another": lambda p: of_class(
        p, lambda k, o: (delattr(o, "a"), setattr(o, "k", 6.0)),
        lambda x, o: x * o.k, lambda: type("K", (base(),), {"__init__": lambda self: setattr(self, "a", 1)})),
    "__bool__ of the class": lambda p: of_class(
        p, lambda k, o: setattr(k, "__bool__", lambda self: False), lambda x, o: x * 2 if o else x),
    "__len__ of the class": lambda p: of_class(
        p, lambda k, o: setattr(k, "__len__", lambda self: 0), lambda x, o: x * 2 if o else x),
    "__eq__ of the class": lambda p: of_class(
        p, lambda k, o: setattr(k, "__eq__", lambda self, y: True), lambda x, o: x * 2 if o == 3 else x),
    "__call__ of the class": lambda p: of_class(
        p, lambda k, o: setattr(k, "__call__", lambda self, x: x * 9), lambda x, o: o(x),
        entries={"__call__": lambda self, x: x * 2}),
    "a class attribute through type": lambda p: of_class(
        p, lambda k, o: setattr(k, "k", 5.0), lambda x, o: x * type(o).k),
    "a slot": lambda p: of_class(
        p, lambda k, o: setattr(o, "s", 5.0), lambda x, o: x * o.s,
        lambda: type("S", (), {"__slots__": ("s",), "__init__": lambda self: setattr(self, "s", 1.0)})),
    "a slot without a value": lambda p: of_class(
        p, lambda k, o: setattr(o, "t", 5.0), lambda x, o: x * (2 if hasattr(o, "t") else 1),
        lambda: type("S", (), {"__slots__": ("t",)})),
    "a private slot": lambda p: of_class(
        p, lambda k, o: setattr(o, "_Private__s", 5.0), lambda x, o: x * o.get(), lambda: Private),
    "vars of an object": lambda p: of_class(
        p, lambda k, o: setattr(o, "k", 5.0), lambda x, o: x * vars(o).get("k", 1)),
    "__dict__ of an object": lambda p: of_class(
        p, lambda k, o: setattr(o, "k", 5.0), lambda x, o: x * len(o.__dict__)),
    "dir of an object": lambda p: of_class(
        p, lambda k, o: setattr(k, "zz", 5.0), lambda x, o: x * (2 if "zz" in dir(o) else 1)),
    "isinstance of a class": lambda p: of_class(
        p, lambda k, o: setattr(o, "__class__", type("Z", (HERE.Marked,), {"k": 1.0})),
        lambda x, o: x * (2 if isinstance(o, HERE.Marked) else 1)),
})


class Marked:
    pass


class Keyed:
    k = 1.0


@case
def a_class_that_is_registered(patch):
    class Shape(abc.ABC):  # noqa: B024 - its subclasses are what matters
        pass

    class Square:
        pass

    o = Square()
    return lambda x: x * (2 if isinstance(o, Shape) else 1), lambda: Shape.register(Square)


@case
def an_attribute_of_a_metaclass(patch):
    meta = type("Meta", (type,), {"k": 1.0})
    kind = meta("Kind", (), {})
    return lambda x: x * kind.k, lambda: setattr(meta, "k", 5.0)


@case
def a_class_method(patch):
    kind = derived(make=classmethod(lambda cls: cls.k))
    return lambda x: x * kind.make(), lambda: setattr(kind, "k", 5.0)


@case
def a_static_method(patch):
    kind = derived(make=staticmethod(lambda: 1.0))
    return lambda x: x * kind.make(), lambda: setattr(kind, "make", staticmethod(lambda: 5.0))


@case
def the_method_of_super(patch):
    class Base:
        def k(self):
            return 1.0

    class Derived(Base):
        def k(self):
            return super().k()

    o = Derived()
    return lambda x: x * o.k(), lambda: setattr(Base, "k", lambda self: 5.0)


@case
def an_attribute_of_an_enum(patch):
    class Kind(enum.Enum):
        ONE = 1

        @property
        def k(self):
            return 1.0

    return lambda x: x * Kind.ONE.k, lambda: setattr(Kind, "k", property(lambda self: 5.0))


@case
def a_field_of_a_dataclass(patch):
    @dataclasses.dataclass
    class Config:
        k: float = 1.0

    o = Config()
    return lambda x: x * o.k, lambda: setattr(o, "k", 5.0)


@case
def a_default_of_a_dataclass(patch):
    @dataclasses.dataclass
    class Config:
        k: float = 1.0

    return lambda x: x * Config().k, lambda: setattr(Config.__init__, "__defaults__", (5.0,))


@case
def asdict_of_a_dataclass(patch):
    @dataclasses.dataclass
    class Config:
        k: float = 1.0

    o = Config()
    return lambda x: x * dataclasses.asdict(o)["k"], lambda: setattr(o, "k", 5.0)


@case
def a_class_that_is_made_in_the_function(patch):
    class Gain:
        def __init__(self):
            self.k = ALPHA

    return lambda x: x * Gain().k, lambda: patch.setattr(Gain, "__init__", lambda self: setattr(self, "k",
    5.0))


# Modules of mytorch.


class Act(nn.Module):
    scale = 1.0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2, bias=False)
        with mytorch.no_grad():
            self.linear.weight.fill_(1.0)

    def act(self, x):
        return x * self.scale

    def forward(self, x):
        return self.act(self.linear(x))


def of_module(change):
    def make(patch):
        kind = type("Net", (Act,), {})
        net = kind()
        return lambda x: net(x), lambda: change(kind, net)

    return make


cases({
    "a module's inherited attribute": of_module(lambda k, n: setattr(k, "scale", 5.0)),
    "a module's inherited method": of_module(lambda k, n: setattr(k, "act", lambda self, x: x * 7)),
    "a module's method on the object": of_module(lambda k, n: setattr(n, "act", lambda x: x * 7)),
    "a module's forward": of_module(lambda k, n: setattr(k, "forward", lambda self, x: x * 7)),
    "a module's forward on the object": of_module(lambda k, n: setattr(n, "forward", lambda x: x * 7)),
    "a module's __call__": of_module(lambda k, n: setattr(k, "__call__", lambda self, x: x * 7)),
    "a child's place": of_module(lambda k, n: setattr(n, "linear", nn.Identity())),
    "a child's attribute that shadows": of_module(lambda k,
        n: n.linear.__dict__.update(forward=lambda x: x * 7)),
    "a hook": of_module(lambda k, n: n.register_forward_hook(lambda m, a, y: y * 3) and None),
    "a pre-hook of a child": of_module(
        lambda k, n: n.linear.register_forward_pre_hook(lambda m, a: (a[0] * 3,)) and None),
    "a parameter": of_module(lambda k, n: (n.linear.weight.data.fill_(3.0), None)),
    "another parameter": of_module(lambda k, n: setattr(n.linear, "weight", nn.Parameter(mytorch.zeros(2,
        2)))),
    "another base of a module": of_module(
        lambda k, n: setattr(k, "__bases__", (type("Other", (Act,), {"scale": 5.0}),))),
    "training": of_module(lambda k, n: setattr(k, "act", lambda self, x: x * (2 if self.training else 3))),
})


@case
def a_buffer_that_is_no_longer_persistent(patch):
    net = nn.Sequential(nn.Linear(2, 2))
    net[0].register_buffer("b", mytorch.ones(2))
    change = lambda: net[0].register_buffer("b", net[0].b, persistent=False)  # noqa: E731
    return lambda x: x * len(net.state_dict()), change


@case
def a_buffer_that_is_replaced(patch):
    net = nn.Module()
    net.register_buffer("b", mytorch.ones(2))
    return lambda x: x * net.b, lambda: setattr(net, "b", mytorch.zeros(2))


@case
def an_attribute_of_a_parameter(patch):
    p = nn.Parameter(mytorch.ones(2))
    p.k = 1.0
    return lambda x: x * p * p.k, lambda: setattr(p, "k", 5.0)


@case
def hasattr_of_a_parameter(patch):
    p = nn.Parameter(mytorch.ones(2))
    return lambda x: x * p * (2 if hasattr(p, "k") else 1), lambda: setattr(p, "k", 5.0)


@case
def eval_of_a_module(patch):
    net = nn.Module()
    return lambda x: x * (2 if net.training else 3), lambda: net.eval() and None


@case
def an_option_of_an_optimizer(patch):
    optimizer = optim.SGD([nn.Parameter(mytorch.ones(2))], 0.5)
    return lambda x: x * optimizer.param_groups[0]["lr"], lambda: optimizer.param_groups[0].update(lr=0.25)


@case
def options_that_an_optimizer_loads(patch):
    optimizer, other = [optim.SGD([nn.Parameter(mytorch.ones(2))], lr) for lr in (0.5, 0.25)]
    saved = other.state_dict()
    return lambda x: x * optimizer.param_groups[0]["lr"], lambda: optimizer.load_state_dict(saved)


# Names of modules, builtins and closures.


def global_later(x):
    try:
        return x * LATER  # noqa: F821 - it appears
    except NameError:
        return x


def global_that_shadows(x):
    return x * divmod(7, 2)[0]


def global_of_two(x):
    return x * ALPHA


def helper(x):
    return x * 2


def calls_helper(x):
    return helper(x)


def globals_by_name(x):
    return x * globals()["ALPHA"]


def of_globals(function, change):
    return lambda p: (function, lambda: change(p))


cases({
    "a global": of_globals(global_of_two, lambda p: p.setattr(HERE, "ALPHA", 5.0)),
    "a global that appears": of_globals(global_later, lambda p: p.setattr(HERE, "LATER", 3.0, raising=False)),
    "a global that shadows a builtin": of_globals(
        global_that_shadows, lambda p: p.setattr(HERE, "divmod", lambda x, y: (9,), raising=False)),
    "a builtin": of_globals(global_that_shadows, lambda p: p.setattr(builtins, "divmod", lambda x, y: (9,))),
    "a builtin that appears": of_globals(
        global_later, lambda p: p.setattr(builtins, "LATER", 3.0, raising=False)),
    "a function of the module": of_globals(calls_helper, lambda p: p.setattr(HERE, "helper",
        lambda x: x * 9)),
    "globals()": of_globals(globals_by_name, lambda p: p.setattr(HERE, "ALPHA", 5.0)),
    "a default": lambda p: (lambda f: (f, lambda: setattr(f, "__defaults__", (5.0,))))(lambda x,
        k=1.0: x * k),
    "the code": lambda p: (lambda f: (lambda x: f(x), lambda: setattr(f, "__code__",
        (lambda x: x * 5).__code__)))(
        lambda x: x * 1),
})


@case
def an_attribute_of_a_function(patch):
    def scaled(x):
        return x * getattr(scaled, "k", 1.0)

    return scaled, lambda: setattr(scaled, "k", 5.0)


@case
def hasattr_of_another_function(patch):
    def marked():
        pass

    return lambda x: x * (2 if hasattr(marked, "k") else 1), lambda: setattr(marked, "k", 5.0)


@case
def a_variable_of_a_closure(patch):
    k = 1.0

    def change():
        nonlocal k
        k = 5.0

    return lambda x: x * k, change


@case
def a_variable_that_is_unbound_at_first(patch):
    def read(x):
        try:
            return x * k
        except NameError:
            return x

    def change():
        nonlocal k
        k = 5.0

    if patch is None:
        k = 0
    return read, change


def own_module(**entries):
    found = types.ModuleType("own")
    found.__dict__.update(entries)
    return found


@case
def an_entry_of_a_module(patch):
    own = own_module(k=1.0)
    return lambda x: x * own.k, lambda: setattr(own, "k", 5.0)


@case
def an_entry_of_a_module_that_appears(patch):
    own = own_module()

    def read(x):
        try:
            return x * own.k
        except AttributeError:
            return x

    return read, lambda: setattr(own, "k", 5.0)


@case
def an_attribute_that_another_function_gets(patch):
    def marked():
        pass

    return lambda x: x * getattr(marked, "k", 1.0), lambda: setattr(marked, "k", 5.0)


@case
def an_attribute_that_a_module_gets(patch):
    own = own_module()
    return lambda x: x * getattr(own, "k", 1.0), lambda: setattr(own, "k", 5.0)


@case
def an_attribute_that_a_partial_function_gets(patch):
    double = functools.partial(max, 2)
    return lambda x: x * getattr(double, "k", 1.0), lambda: setattr(double, "k", 5.0)


@case
def hasattr_of_a_module(patch):
    own = own_module()
    return lambda x: x * (2 if hasattr(own, "k") else 1), lambda: setattr(own, "k", 5.0)


@case
def getattr_of_what_a_call_with_a_text_gives(patch):
    own = HERE.Empty()
    own.k = 1.0

    def named(text):
        return own

    return lambda x: x * getattr(named("text"), "abk"[len(x) :]), lambda: setattr(own, "k", 5.0)


@case
def getattr_of_a_module(patch):
    own = own_module(abk=1.0)
    return lambda x: x * getattr(own, "ab" + "k"[: len(x)]), lambda: setattr(own, "abk", 5.0)


@case
def the_dict_of_a_module(patch):
    own = own_module(k=1.0)
    return lambda x: x * own.__dict__["k"], lambda: setattr(own, "k", 5.0)


@case
def the_getattr_of_a_module(patch):
    own = own_module(table={"k": 1.0})
    own.__getattr__ = lambda name: own.table[name]
    return lambda x: x * own.k, lambda: own.table.update(k=5.0)


@case
def a_module_that_is_imported(patch):
    own = own_module(k=1.0)
    patch.setitem(sys.modules, "own_of_the_tests", own)

    def read(x):
        import own_of_the_tests

        return x * own_of_the_tests.k

    return read, lambda: setattr(own, "k", 5.0)


@case
def another_module_of_the_same_name(patch):
    patch.setitem(sys.modules, "own_of_the_tests", own_module(k=1.0))

    def read(x):
        from own_of_the_tests import k

        return x * k

    return read, lambda: patch.setitem(sys.modules, "own_of_the_tests", own_module(k=5.0))


@case
def sys_modules(patch):
    return (
        lambda x: x * (2 if "own_of_the_tests" in sys.modules else 1),
        lambda: patch.setitem(sys.modules, "own_of_the_tests", own_module()),
    )


@case
def sys_modules_of_a_name(patch):
    patch.setattr(HERE, "ALPHA", 1.0)
    return lambda x: x * sys.modules[__name__].ALPHA, lambda: patch.setattr(HERE, "ALPHA", 5.0)


@case
def arguments_of_the_process(patch):
    return lambda x: x * len(sys.argv), lambda: patch.setattr(sys, "argv", [*sys.argv, "one more"])


@case
def the_recursion_limit(patch):
    before = sys.getrecursionlimit()
    patch.setattr(sys, "unused", None, raising=False)
    return lambda x: x * (sys.getrecursionlimit() - before + 1), lambda: sys.setrecursionlimit(before + 1)


# Containers.
def in_container(make, read, change):
    def made(patch):
        o = make()
        return lambda x: x * float(read(o)), lambda: change(o)

    return made


cases({
    "an item of a list": in_container(lambda: [1.0], lambda o: o[0], lambda o: o.__setitem__(0, 5.0)),
    "the length of a list": in_container(lambda: [1.0], len, lambda o: o.append(5.0)),
    "a nested list": in_container(lambda: [[1.0]], lambda o: o[0][0], lambda o: o[0].__setitem__(0, 5.0)),
    "a list in a tuple": in_container(lambda: ([1.0],), lambda o: o[0][0], lambda o: o[0].__setitem__(0,
        5.0)),
    "an entry of a dict": in_container(lambda: {"k": 1.0}, lambda o: o["k"], lambda o: o.update(k=5.0)),
    "get of a dict": in_container(dict, lambda o: o.get("k", 1.0), lambda o: o.update(k=5.0)),
    "a dict's keys": in_container(lambda: {"k": 1.0}, len, lambda o: o.update(j=5.0)),
    "the order of a dict": in_container(
        lambda: {"a": 1.0, "b": 2.0}, lambda o: [*o.values()][0], lambda o: o.update(a=o.pop("a"))),
    "a set": in_container(set, lambda o: 1 + (3 in o), lambda o: o.add(3)),
    "a deque": in_container(lambda: collections.deque([1.0]), lambda o: o[0], lambda o: o.appendleft(4.0)),
    "a defaultdict": in_container(
        lambda: collections.defaultdict(lambda: 1.0), lambda o: o.get("k", 1.0), lambda o: o.update(k=5.0)),
    "a default factory": in_container(
        lambda: collections.defaultdict(lambda: 1.0), lambda o: o["k"],
        lambda o: (o.pop("k", None), setattr(o, "default_factory", lambda: 5.0))),
    "an OrderedDict": in_container(
        lambda: collections.OrderedDict(a=1.0, b=2.0), lambda o: [*o.values()][0],
        lambda o: o.move_to_end("a")),
    "a Counter": in_container(lambda: collections.Counter("ab"), lambda o: o["a"], lambda o: o.update("aa")),
    "a ChainMap": in_container(
        lambda: collections.ChainMap({}, {"k": 1.0}), lambda o: o["k"], lambda o: o.maps[0].update(k=5.0)),
    "a UserDict": in_container(
        lambda: collections.UserDict(k=1.0), lambda o: o["k"], lambda o: o.update(k=5.0)),
    "a UserList": in_container(lambda: collections.UserList([1.0]), lambda o: o[0], lambda o: o.insert(0,
        5.0)),
    "a proxy of a dict": in_container(
        lambda: ({"k": 1.0},), lambda o: types.MappingProxyType(o[0])["k"], lambda o: o[0].update(k=5.0)),
    "a dict's view": in_container(lambda: (d := {"k": 1.0}) and (d, d.values()), lambda o: [*o[1]][0],
                                  lambda o: o[0].update(k=5.0)),
    "a bytearray": in_container(lambda: bytearray([1]), lambda o: o[0], lambda o: o.__setitem__(0, 5)),
    "a memoryview": in_container(
        lambda: memoryview(bytearray([1])), lambda o: o[0], lambda o: o.__setitem__(0, 5)),
    "an array": in_container(lambda: array.array("d", [1.0]), lambda o: o[0], lambda o: o.__setitem__(0,
        5.0)),
    "a NumPy array": in_container(lambda: np.ones(2), lambda o: o[0], lambda o: o.fill(5.0)),
    "a long NumPy array": in_container(lambda: np.ones(20_000), lambda o: o[7], lambda o: o.fill(5.0)),
    "a long list": in_container(lambda: [1.0] * 20_000, lambda o: o[7], lambda o: o.__setitem__(7, 5.0)),
    "a long dict": in_container(
        lambda: dict.fromkeys(range(20_000), 1.0), lambda o: o[7], lambda o: o.__setitem__(7, 5.0)),
    "an array of objects": in_container(
        lambda: np.array([[1.0], None], object), lambda o: o[0][0], lambda o: o.__setitem__(0, [5.0])),
    "a list in an array of objects": in_container(
        lambda: np.array([[1.0], None], object), lambda o: o[0][0], lambda o: o[0].__setitem__(0, 5.0)),
    "an Event in an array of objects": in_container(
        lambda: np.array([threading.Event()]), lambda o: half(o[0]), lambda o: o[0].set()),
    "an object that is a key": in_container(
        lambda: {HERE.Keyed(): 1}, lambda o: next(iter(o)).k, lambda o: setattr(next(iter(o)), "k", 5.0)),
    "an object in a set": in_container(
        lambda: {HERE.Keyed()}, lambda o: next(iter(o)).k, lambda o: setattr(next(iter(o)), "k", 5.0)),
    "a named tuple's list": in_container(
        lambda: collections.namedtuple("Pair", "k")([1.0]), lambda o: o.k[0], lambda o: o.k.__setitem__(0,
        5.0)),
    "a list of objects": in_container(
        lambda: [types.SimpleNamespace(k=1.0)], lambda o: o[0].k, lambda o: setattr(o[0], "k", 5.0)),
    "a bound get": in_container(
        lambda: (d := {"k": 1.0}) and (d, d.get), lambda o: o[1]("k"), lambda o: o[0].update(k=5.0)),
    "a dict of a user's class": in_container(
        lambda: type("Options", (dict,), {"k": 1.0})(), lambda o: o.k, lambda o: setattr(type(o), "k", 5.0)),
    "a namespace": in_container(
        lambda: types.SimpleNamespace(k=1.0), lambda o: o.k, lambda o: setattr(o, "k", 5.0)),
})

# What is opaque: threads, clocks, files, iterators, C.


def counted():
    for k in itertools.count(1):
        yield float(k)


def echo():
    k = 1.0
    while True:
        k = (yield k) or k


def thread_local():
    o = threading.local()
    o.k = 1.0
    return o


def logger():
    found = logging.getLogger("of the tests of state")
    found.setLevel(logging.WARNING)
    return found


class Flag(threading.Event):
    """A user's event."""


class Clock:
    def __init__(self):
        self.event, self.lock, self.queue = threading.Event(), threading.Lock(), queue.Queue()
        self.values, self.k = {"lock": self.lock}, 1.0

    def is_late(self):
        return 2.0 if self.event.is_set() else 1.0

    def by_name(self, name):
        return 2.0 if getattr(self, name).is_set() else 1.0

    def held(self):
        return 2.0 if self.values["lock"].locked() else 1.0


def half(o):
    return 2.0 if o.is_set() else 1.0


def referred(kind):
    def make():
        key = Marked()
        return key, kind({key: 1.0} if kind is weakref.WeakKeyDictionary else {"k": key})

    return make


def make_reference():
    o = Marked()
    o.k = 1.0
    return [o, weakref.ref(o)]


def forget(o):
    o[0] = None


class Point(ctypes.Structure):
    _fields_ = (("k", ctypes.c_double),)


cases({
    "threading.Event": value_of(threading.Event, half, lambda o: o.set()),
    "a user's Event": value_of(Flag, half, lambda o: o.set()),
    "an attribute that is an Event": value_of(Clock, lambda o: o.is_late(), lambda o: o.event.set()),
    "getattr of an Event": value_of(Clock, lambda o: o.by_name("event"), lambda o: o.event.set()),
    "getattr of a text that is an Event": value_of(
        Clock, lambda o: getattr(o, "event").is_set() + 1, lambda o: o.event.set()),  # noqa: B009
    "a dict with a Lock": value_of(Clock, lambda o: o.held(), lambda o: o.lock.acquire() and None),
    "a Lock": value_of(threading.Lock, lambda o: 1 + o.locked(), lambda o: o.acquire() and None),
    "an RLock": value_of(threading.RLock, lambda o: 1 + ("count=1" in repr(o)),
        lambda o: o.acquire() and None),
    "a Semaphore": value_of(
        lambda: threading.Semaphore(2), lambda o: o._value, lambda o: o.acquire() and None),
    "a Condition": value_of(
        threading.Condition, lambda o: 1 + o._is_owned(), lambda o: o.acquire() and None),
    "a local of a thread": value_of(thread_local, lambda o: o.k, lambda o: setattr(o, "k", 5.0)),
    "a queue": value_of(queue.Queue, lambda o: o.qsize() + 1, lambda o: o.put(1)),
    "a simple queue": value_of(queue.SimpleQueue, lambda o: o.qsize() + 1, lambda o: o.put(1)),
    "a method of an Event": value_of(
        lambda: (e := threading.Event()) and (e, e.is_set), lambda o: 1 + o[1](), lambda o: o[0].set()),
    "a partial of an Event": value_of(
        lambda: (e := threading.Event()) and (e, functools.partial(half, e)), lambda o: o[1](),
        lambda o: o[0].set()),
    "a list of Events": value_of(lambda: [threading.Event()], lambda o: half(o[0]), lambda o: o[0].set()),
    "a dict with an Event as key": value_of(
        lambda: {threading.Event(): 1}, lambda o: half(next(iter(o))), lambda o: next(iter(o)).set()),
    "multiprocessing.Value": value_of(
        lambda: multiprocessing.Value("d", 1.0), lambda o: o.value, lambda o: setattr(o, "value", 5.0)),
    "multiprocessing.RawArray": value_of(
        lambda: multiprocessing.RawArray("d", [1.0]), lambda o: o[0], lambda o: o.__setitem__(0, 5.0)),
    "ctypes": value_of(lambda: ctypes.c_double(1.0), lambda o: o.value, lambda o: setattr(o, "value", 5.0)),
    "a structure of ctypes": value_of(lambda: Point(1.0), lambda o: o.k, lambda o: setattr(o, "k", 5.0)),
    "an array of ctypes": value_of(
        lambda: (ctypes.c_double * 2)(1.0), lambda o: o[0], lambda o: o.__setitem__(0, 5.0)),
    "a context variable": value_of(
        lambda: contextvars.ContextVar("k", default=1.0), lambda o: o.get(), lambda o: o.set(5.0) and None),
    "a generator": value_of(counted, next, lambda o: next(o)),
    "send of a generator": value_of(
        lambda: (g := echo()) and [next(g), g], lambda o: o[1].send(None), lambda o: o[1].send(5.0)),
    "an iterator": value_of(lambda: iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), next, lambda o: next(o)),
    "itertools.count": value_of(lambda: itertools.count(1), next, lambda o: next(o)),
    "itertools.cycle": value_of(lambda: itertools.cycle([1.0, 2.0, 3.0]), next, lambda o: next(o)),
    "a map": value_of(lambda: map(float, range(1, 9)), next, lambda o: next(o)),
    "zip": value_of(lambda: zip(map(float, range(1, 9))), lambda o: next(o)[0], lambda o: next(o)),
         # noqa: B905
    "a file": value_of(lambda: io.StringIO("1\n2\n3\n4\n5\n6\n7\n"), lambda o: o.readline(),
        lambda o: o.readline()),
    "a file of bytes": value_of(lambda: io.BytesIO(b"123456"), lambda o: o.read(1), lambda o: o.read(1)),
    "tell of a file": value_of(lambda: io.StringIO("abc"), lambda o: o.tell() + 1, lambda o: o.seek(2)),
    "a weak reference": value_of(make_reference, lambda o: o[1]() and o[1]().k, lambda o: setattr(o[0],
        "k", 5.0)),
    "a weak reference to nothing": value_of(
        make_reference, lambda o: 1 if o[1]() is None else 2, forget),
    "a weak dictionary": value_of(
        referred(weakref.WeakKeyDictionary), lambda o: o[1][o[0]], lambda o: o[1].update({o[0]: 5.0})),
    "a weak dictionary of values": value_of(
        referred(weakref.WeakValueDictionary), lambda o: len(o[1]), lambda o: o[1].update(j=o[0])),
    "a weak set": value_of(weakref.WeakSet, lambda o: len(o) + 1, lambda o: o.add(Marked)),
    "a logger": value_of(
        logger, lambda o: 2 if o.isEnabledFor(logging.INFO) else 1, lambda o: o.setLevel(logging.DEBUG)),
    "a logger's level": value_of(logger, lambda o: o.level, lambda o: o.setLevel(logging.DEBUG)),
    "an attrgetter": value_of(
        lambda: (types.SimpleNamespace(k=1.0), operator.attrgetter("k")), lambda o: o[1](o[0]),
        lambda o: setattr(o[0], "k", 5.0)),
    "a methodcaller": value_of(
        lambda: (Clock(), operator.methodcaller("is_late")), lambda o: o[1](o[0]),
        lambda o: o[0].event.set()),
    "random.Random": value_of(lambda: random.Random(1), lambda o: o.random(), lambda o: o.random()),
    "NumPy's generator": value_of(
        lambda: np.random.default_rng(1), lambda o: o.random(), lambda o: o.random()),
    "NumPy's random state": value_of(
        lambda: np.random.RandomState(1), lambda o: o.rand(), lambda o: o.rand()),
    "NumPy's iterator": value_of(lambda: np.nditer(np.arange(1.0, 9.0)), next, lambda o: next(o)),
    "an exit stack": value_of(
        contextlib.ExitStack, lambda o: len(o._exit_callbacks) + 1, lambda o: o.callback(len, ())),
    "an exception": value_of(lambda: ValueError(1.0), lambda o: o.args[0], lambda o: setattr(o, "args",
        (5.0,))),
    "a thread": value_of(
        lambda: threading.Thread(name="a"), lambda o: len(o.name), lambda o: setattr(o, "name", "abc")),
    "a cached function": value_of(
        lambda: (s := types.SimpleNamespace(k=1.0)) and (s, functools.lru_cache(lambda: s.k)),
        lambda o: o[1](), lambda o: (o[1].cache_clear(), setattr(o[0], "k", 5.0))),
    "a single dispatch": value_of(
        lambda: functools.singledispatch(lambda x: 1.0), lambda o: o(3), lambda o: o.register(int,
        lambda x: 5.0)),
    "a template": value_of(
        lambda: string.Template("$k"), lambda o: len(o.template), lambda o: setattr(o, "template", "$kk")),
    "a decimal": value_of(
        lambda: decimal.Context(prec=2), lambda o: o.divide(decimal.Decimal(1), decimal.Decimal(3)),
        lambda o: setattr(o, "prec", 5)),
    "a cell": value_of(
        lambda: types.CellType(1.0), lambda o: o.cell_contents, lambda o: setattr(o, "cell_contents", 5.0)),
})


@case
def the_precision_of_decimal(patch):
    context, before = decimal.getcontext(), decimal.getcontext().prec
    patch.setattr(HERE, "restore", lambda: setattr(context, "prec", before), raising=False)
    context.prec = 3
    third = decimal.Decimal(1)
    return lambda x: x * len(str(third / 3)), lambda: setattr(context, "prec", 6)


@case
def the_environment(patch):
    patch.setenv("MYTORCH_TEST_K", "1")
    return lambda x: x * float(os.environ["MYTORCH_TEST_K"]), lambda: patch.setenv("MYTORCH_TEST_K", "5")


@case
def getenv_with_a_default(patch):
    patch.delenv("MYTORCH_TEST_K", raising=False)
    return lambda x: x * float(os.getenv("MYTORCH_TEST_K", "1")), lambda: patch.setenv("MYTORCH_TEST_K", "5")


@case
def the_current_folder(patch):
    return lambda x: x * len(os.getcwd()), lambda: patch.chdir("/")


@case
def a_file_that_appears(patch):
    here = pathlib.Path(os.devnull + "-of-the-tests")
    patch.setattr(pathlib.Path, "exists", lambda self: False)
    return lambda x: x * (2 if here.exists() else 1), lambda: patch.setattr(pathlib.Path, "exists",
    lambda self: True)


@case
def a_function_of_time(patch):
    import time

    patch.setattr(time, "time", lambda: 1.0)
    return lambda x: x * time.time(), lambda: patch.setattr(time, "time", lambda: 5.0)


@case
def a_date(patch):
    o = types.SimpleNamespace(day=datetime.date(2020, 1, 1))
    return lambda x: x * o.day.year, lambda: setattr(o, "day", datetime.date(2021, 1, 1))


@case
def a_path(patch):
    o = types.SimpleNamespace(path=pathlib.PurePath("a"))
    return lambda x: x * len(str(o.path)), lambda: setattr(o, "path", pathlib.PurePath("abc"))


@case
def a_constant_of_math(patch):
    return lambda x: x * math.pi, lambda: patch.setattr(math, "pi", 3.0)


@case
def a_type_hint(patch):
    class Config(typing.NamedTuple):
        k: float = 1.0

    return lambda x: x * Config().k, lambda: setattr(Config.__new__, "__defaults__", (5.0,))


def tried(read, error):
    def function(x):
        try:
            return x * read()
        except error:
            return x

    return function


@case
def an_attribute_of_a_function_that_appears(patch):
    def marked():
        pass

    return tried(lambda: marked.k, AttributeError), lambda: setattr(marked, "k", 5.0)


@case
def a_key_that_appears(patch):
    table = {}
    return tried(lambda: table["k"], KeyError), lambda: table.update(k=5.0)


@case
def an_item_that_appears(patch):
    items = []
    return tried(lambda: items[0], IndexError), lambda: items.append(5.0)


@case
def keywords_of_a_partial(patch):
    scaled = functools.partial(lambda x, k: x * k, k=1.0)
    return lambda x: scaled(x), lambda: scaled.keywords.update(k=5.0)


@case
def the_state_of_a_partial(patch):
    scaled = functools.partial(lambda x, k: x * k, k=1.0)
    return lambda x: scaled(x), lambda: scaled.__setstate__((scaled.func, (), {"k": 5.0}, {}))


@case
def a_dict_in_a_partial(patch):
    scaled = functools.partial(lambda table, x: x * table["k"], {"k": 1.0})
    return lambda x: scaled(x), lambda: scaled.args[0].update(k=5.0)


@case
def defaults_of_an_optimizer(patch):
    optimizer = optim.SGD([nn.Parameter(mytorch.ones(2))], 0.5)
    return lambda x: x * optimizer.defaults["lr"], lambda: optimizer.defaults.update(lr=0.25)


@case
def hasattr_of_a_class_of_layers(patch):
    layer = nn.Identity()

    def change():
        patch.setattr(nn.Identity, "is_marked", True, raising=False)

    return lambda x: x * (2 if hasattr(layer, "is_marked") else 1), change


@case
def a_descriptor(patch):
    class Held:
        k = 1.0

        def __get__(self, owner, kind):
            return self.k

    held = Held()
    o = type("Owner", (), {"held": held})()
    return lambda x: x * o.held, lambda: setattr(held, "k", 5.0)


@case
def what_a_dict_gives_for_missing_keys(patch):
    kind = type("Options", (dict,), {"k": 1.0, "__missing__": lambda self, key: self.k})
    options = kind()
    return lambda x: x * options["a"], lambda: setattr(kind, "k", 5.0)


@case
def a_metaclass_that_knows_instances(patch):
    meta = type("Meta", (type,), {"k": True, "__instancecheck__": lambda self, x: self.k})
    kind = meta("Kind", (), {})
    return lambda x: x * (2 if isinstance(3, kind) else 1), lambda: setattr(meta, "k", False)


@case
def a_protocol_at_run_time(patch):
    @typing.runtime_checkable
    class Readable(typing.Protocol):
        def read(self): ...

    kind = type("Kind", (), {})
    o = kind()
    return lambda x: x * (2 if isinstance(o, Readable) else 1), lambda: setattr(kind, "read", lambda self: 1)


@case
def a_method_between_two_classes(patch):
    class Base:
        def k(self):
            return 1.0

    class Middle(Base):
        pass

    class Derived(Middle):
        def k(self):
            return super().k()

    o = Derived()
    return lambda x: x * o.k(), lambda: setattr(Middle, "k", lambda self: 5.0)


@case
def state_of_a_decorator(patch):
    table = {"k": 1.0}

    def scaled(function):
        @functools.wraps(function)
        def call(x):
            return function(x) * table["k"]

        return call

    doubled = scaled(lambda x: x * 2)
    return lambda x: doubled(x), lambda: table.update(k=5.0)


@case
def a_context_manager(patch):
    table = {"k": 1.0}

    @contextlib.contextmanager
    def value():
        yield table["k"]

    def function(x):
        with value() as k:
            return x * k

    return function, lambda: table.update(k=5.0)


@case
def scale_of_a_distribution(patch):
    normal = mytorch.distributions.Normal(mytorch.zeros(2), mytorch.ones(2))
    return lambda x: x * normal.scale, lambda: setattr(normal, "scale", mytorch.full((2,), 5.0))


@case
def a_tensor_that_is_another(patch):
    table, x = {}, mytorch.ones(2)
    return lambda y: y * (2 if table.get("k") is x else 1), lambda: table.update(k=x)


# Objects of classes that are derived from those of numbers, strings, tensors, arrays and modules.


def of_type(base, *args, of_object=False, **entries):
    """A case with an object of a derived class, of which an attribute, or one of its class, changes."""

    def make(patch):
        kind = type("Kind", (base,), {"k": 1.0, **entries})
        o = kind(*args)
        changed = o if of_object else kind
        return lambda x: x * o.k, lambda: setattr(changed, "k", 5.0)

    return make


class Level(enum.IntEnum):
    LOW = 1


class Option(enum.IntFlag):
    FIRST = 1


class Mode(str, enum.Enum):  # noqa: UP042 - this is what is tested
    FAST = "fast"


def of_member(member):
    def make(patch):
        member.k = 1.0
        config = types.SimpleNamespace(member=member)
        return lambda x: x * config.member.k, lambda: setattr(member, "k", 5.0)

    return make


def equal_objects(kind, *args):
    def make(patch):
        first, second = kind(*args), kind(*args)
        first.k, second.k = 1.0, 5.0
        o = types.SimpleNamespace(item=first)
        return lambda x: x * o.item.k, lambda: setattr(o, "item", second)

    return make


class Float(float):
    pass


class Text(str):
    pass


class Items(tuple):
    pass


class Loud(types.ModuleType):
    k = 5.0


class Noted(np.ndarray):
    pass


def noted():
    a = np.ones(2).view(Noted)
    a.k = 1.0
    return a


cases({
    "the class of a float": of_type(float, 2.0),
    "a float of one's own": of_type(float, 2.0, of_object=True),
    "the class of an int": of_type(int, 2),
    "an int of one's own": of_type(int, 2, of_object=True),
    "the class of a str": of_type(str, "a"),
    "a str of one's own": of_type(str, "a", of_object=True),
    "bytes of one's own": of_type(bytes, b"a", of_object=True),
    "the class of complex numbers": of_type(complex, 2.0),
    "a product of a float of one's own": lambda p: (
        lambda kind: (lambda o: (lambda x: x * float(o * 2), lambda: setattr(kind, "__mul__",
            lambda a, b: 5.0)))(kind(1.0)))(type("Kind", (float,), {"__mul__": lambda a, b: 1.0})),
    "a member of an IntEnum": of_member(Level.LOW),
    "a member of an IntFlag": of_member(Option.FIRST),
    "a member of an Enum of strings": of_member(Mode.FAST),
    "an equal float": equal_objects(Float, 2.0),
    "an equal str": equal_objects(Text, "a"),
    "an equal tuple": equal_objects(Items, (1,)),
    "the class of a parameter": of_type(nn.Parameter, mytorch.ones(2)),
    "the class of a tensor": of_type(mytorch.Tensor, np.ones(2, np.float32)),
    "the class of a module": of_type(types.ModuleType, "own"),
    "another class of a module": lambda p: (
        lambda own: (lambda x: x * getattr(own, "k", 1.0), lambda: setattr(own, "__class__", Loud)))(
            types.ModuleType("own")),
    "an attribute of an array": value_of(noted, lambda a: a.k, lambda a: setattr(a, "k", 5.0)),
    "the shape of an array": value_of(
        lambda: np.ones(4), lambda a: a.shape[0], lambda a: setattr(a, "shape", (2, 2))),
    "the dtype of an array": value_of(
        lambda: np.ones(2, np.float32), lambda a: a[0], lambda a: setattr(a, "dtype", np.int32)),
    "the shape of an array that is read": lambda p: (lambda a: (
        lambda x: x * mytorch.as_tensor(a)[1], lambda: setattr(a, "shape", (2, 2))))(
            np.arange(4, dtype=np.float32)),
    "whether an array is writeable": value_of(
        lambda: np.zeros(2), lambda a: 1 + a.flags.writeable, lambda a: a.setflags(write=False)),
    "a row of a structured array": value_of(
        lambda: np.zeros(2, [("k", "f8")])[0], lambda a: 1 + a["k"], lambda a: a.__setitem__("k", 5.0)),
})


@case
def a_method_of_the_class_of_a_parameter(patch):
    kind = type("Kind", (nn.Parameter,), {"scaled": lambda self: 1.0})
    p = kind(mytorch.ones(2))
    return lambda x: x * p.scaled(), lambda: setattr(kind, "scaled", lambda self: 5.0)


@case
def an_attribute_of_a_module_that_has_a_class(patch):
    own = type("Own", (types.ModuleType,), {"k": 1.0})("own")
    patch.setattr(HERE, "own_of_a_class", own, raising=False)
    return reads_own_of_a_class, lambda: setattr(type(own), "k", 5.0)


def reads_own_of_a_class(x):
    return x * own_of_a_class.k  # noqa: F821 - a case sets it


def restored_shape(x):
    SHAPED.shape = (2, 2) if SHAPED.ndim == 1 else (4,)
    return x * SHAPED.shape[0]


SHAPED = np.ones(4)


@case
def a_shape_that_the_function_sets(patch):
    SHAPED.shape = (4,)
    return restored_shape, lambda: setattr(SHAPED, "shape", (4,))


# What describes classes and functions.


def described(read, change):
    def make(patch):
        kind = type("Kind", (), {"__doc__": "a", "__annotations__": {"k": float}})

        def function(k: float):
            "a"

        return lambda x: x * read(kind, function), lambda: change(kind, function) and None

    return make


def new_subclass(kind):
    kind.derived = type("Derived", (kind,), {})


cases({
    "the name of a class": described(lambda k, f: len(k.__name__), lambda k, f: setattr(k, "__name__", "K")),
    "the name of the class of an object": described(
        lambda k, f: len(type(k()).__name__), lambda k, f: setattr(k, "__name__", "K")),
    "the docstring of a class": described(
        lambda k, f: len(k.__doc__), lambda k, f: setattr(k, "__doc__", "abc")),
    "the annotations of a class": described(
        lambda k, f: len(k.__annotations__), lambda k, f: k.__annotations__.update(z=int)),
    "the name of a function": described(
        lambda k, f: len(f.__name__), lambda k, f: setattr(f, "__name__", "f")),
    "the docstring of a function": described(
        lambda k, f: len(f.__doc__), lambda k, f: setattr(f, "__doc__", "abc")),
    "the annotations of a function": described(
        lambda k, f: len(f.__annotations__), lambda k, f: f.__annotations__.update(z=int)),
    "an annotation of a function": described(
        lambda k, f: f.__annotations__["k"](1.5), lambda k, f: f.__annotations__.update(k=int)),
    "the subclasses of a class": described(
        lambda k, f: 1 + len(k.__subclasses__()), lambda k, f: new_subclass(k)),
})


@case
def annotations_of_a_class_that_has_none(patch):
    kind = type("Kind", (), {})
    o = types.SimpleNamespace(k=1.0)
    return (
        lambda x: x * (len(vars(kind).get("__annotations__", ())) + o.k),
        lambda: setattr(o, "k", 5.0),
    )


# An object that the function puts into a new one, under a name that others have, too.


class Inner:
    def __init__(self, k=1.0):
        self.k = k


class HolderOf:
    def __init__(self, inner):
        self.inner = inner


class SlottedHolder:
    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner


@dataclasses.dataclass
class FieldOf:
    inner: object


class Empty:
    pass


class ReadsInner(nn.Module):
    def forward(self, x, holder):
        return x * holder.inner.k


PairOf = collections.namedtuple("PairOf", "inner")


def assigned(inner):
    o = Empty()
    o.inner = inner
    return o


def in_a_new_holder(hold, read=lambda x, holder: x * holder.inner.k):
    def make(patch):
        pool, other = [Inner()], HolderOf(Inner())
        return lambda x: read(x, hold(pool[0])) * other.inner.k, lambda: setattr(pool[0], "k", 5.0)

    return make


cases({
    "in a new holder": in_a_new_holder(lambda i: HolderOf(i)),
    "in a new holder with a slot": in_a_new_holder(lambda i: SlottedHolder(i)),
    "in a new dataclass": in_a_new_holder(lambda i: FieldOf(i)),
    "in a new named tuple": in_a_new_holder(lambda i: PairOf(i)),
    "in a new namespace": in_a_new_holder(lambda i: types.SimpleNamespace(inner=i)),
    "in a new namespace, by a dict": in_a_new_holder(lambda i: types.SimpleNamespace(**{"inner": i})),
    "in a new namespace, by a computed name": in_a_new_holder(
        lambda i: types.SimpleNamespace(**{f"{'inn'}er": i})),
    "in a new object that is assigned to": in_a_new_holder(assigned),
    "in a new holder that a module gets": in_a_new_holder(lambda i: HolderOf(i), ReadsInner()),
    "in a new object of Python": lambda p: (
        lambda pool, other: (
            lambda x: x * contextlib.nullcontext(pool[0]).enter_result.k * other.enter_result.k,
            lambda: setattr(pool[0], "k", 5.0),
        )
    )([Inner()], types.SimpleNamespace(enter_result=Inner())),
})


# What gets at any attribute, under another name.

get, find, attributes_of, has, kind_of = getattr, operator.attrgetter, dir, hasattr, type
BY_NAME = {"get": getattr}


def in_object(read):
    return value_of(Inner, read, lambda o: setattr(o, "k", 5.0))


cases({
    "getattr under another name": in_object(lambda o: get(o, "k")),
    "attrgetter under another name": in_object(lambda o: find("k")(o)),
    "attrgetter of a computed name": in_object(lambda o: getattr(operator, "attr" + "getter")("k")(o)),
    "getattr of a computed name of the builtins": in_object(
        lambda o: getattr(builtins, "get" + "attr"[: len([o]) + 4])(o, "k")),
    "getattr in a dict": in_object(lambda o: BY_NAME["get"](o, "k")),
    "getattr in a default": in_object(lambda o, g=getattr: g(o, "k")),
    "getattr that is mapped": in_object(lambda o: [*map(get, [o], ["k"])][0]),
    "getattr in an object": value_of(
        lambda: types.SimpleNamespace(g=getattr, inner=Inner()), lambda o: o.g(o.inner, "k"),
        lambda o: setattr(o.inner, "k", 5.0)),
    "getattr in a partial": value_of(
        lambda: (lambda i: (i, functools.partial(getattr, i)))(Inner()), lambda o: o[1]("k"),
        lambda o: setattr(o[0], "k", 5.0)),
    "getattr in a variable": in_object(lambda o: (lambda g: g(o, "k"))(getattr)),
    "an attribute in a format": in_object(lambda o: "{0.k}".format(o)),  # noqa: UP030, UP032 - this is tested
    "an attribute in the width of a format": value_of(
        lambda: Inner(1), lambda o: len("{:{o.k}}".format("", o=o)), lambda o: setattr(o, "k", 5)),
    "an attribute in a format of a dict": in_object(lambda o: "{o.k}".format_map({"o": o})),
    "an attribute in a format that isn't written out": in_object(lambda o: ("{" + "0.k}").format(o)),
    "dir under another name": value_of(
        Inner, lambda o: 1 + ("z" in attributes_of(o)), lambda o: setattr(o, "z", 1)),
    "hasattr under another name": value_of(
        Inner, lambda o: 1 + has(o, "z"), lambda o: setattr(o, "z", 1)),
    "hasattr of a class of layers, under another name": lambda p: (
        lambda layer: (lambda x: x * (1 + has(layer, "is_new")),
                       lambda: p.setattr(nn.Identity, "is_new", True, raising=False)))(nn.Identity()),
    "type under another name": value_of(
        Inner, lambda o: 1 + (kind_of(o) is Inner), lambda o: setattr(o, "__class__", HolderOf)),
})


# mytorch's own settings.


def setting(read, change, restore):
    def make(patch):
        before = restore()
        patch.setattr(HERE, "restore", before, raising=False)
        return lambda x: x * read(), change

    return make


def set_threads():
    before = mytorch.get_num_threads()
    mytorch.set_num_threads(1)
    return lambda: mytorch.set_num_threads(before)


def set_precision():
    before = mytorch.get_float32_matmul_precision()
    mytorch.set_float32_matmul_precision("highest")
    return lambda: mytorch.set_float32_matmul_precision(before)


def set_deterministic():
    mytorch.use_deterministic_algorithms(False)
    return lambda: mytorch.use_deterministic_algorithms(False)


def set_seed():
    mytorch.manual_seed(1)
    return lambda: mytorch.manual_seed(0)


def set_dtype():
    return lambda: mytorch.set_default_dtype(mytorch.float32)


def set_fused():
    F.use_fused(None)
    return lambda: F.use_fused(None)


def cudnn():
    mytorch.backends.cudnn.benchmark = False
    return lambda: setattr(mytorch.backends.cudnn, "benchmark", False)


OWN = mytorch.Generator()
cases({
    "the number of threads": setting(
        lambda: len(str(mytorch.get_num_threads())) * mytorch.get_num_threads(),
        lambda: setattr(threads, "_wanted", 2), set_threads),  # a machine may have one core
    "the precision of products": setting(
        lambda: len(mytorch.get_float32_matmul_precision()),
        lambda: mytorch.set_float32_matmul_precision("high"), set_precision),
    "allow_tf32": setting(
        lambda: 1 + mytorch.backends.cuda.matmul.allow_tf32,
        lambda: mytorch.set_float32_matmul_precision("high"), set_precision),
    "deterministic algorithms": setting(
        lambda: 1 + mytorch.are_deterministic_algorithms_enabled(),
        lambda: mytorch.use_deterministic_algorithms(True), set_deterministic),
    "the seed": setting(
        lambda: mytorch.initial_seed(), lambda: mytorch.manual_seed(5) and None, set_seed),
    "the seed of a generator": setting(
        lambda: OWN.initial_seed() % 100, lambda: OWN.manual_seed(5) and None,
        lambda: OWN.manual_seed(2) and (lambda: None)),
    "the default dtype": setting(
        lambda: mytorch.get_default_dtype().itemsize, lambda: mytorch.set_default_dtype(mytorch.float64),
        set_dtype),
    "a flag of cudnn": setting(
        lambda: 1 + mytorch.backends.cudnn.benchmark,
        lambda: setattr(mytorch.backends.cudnn, "benchmark", True), cudnn),
})

# What may differ in each call: with `fullgraph` it is an error.
VARYING = {
    "datetime.now": lambda x: x * datetime.datetime.now().timestamp(),
    "date.today": lambda x: x * datetime.date.today().day,
    "time": lambda x: x * __import__("time").time(),
    "id": lambda x: x * (id(x) % 2),
    "os.urandom": lambda x: x * os.urandom(1)[0],
    "random.random": lambda x: x * random.random(),
    "random.choice": lambda x: x * random.choice([1, 2]),
    "np.random.rand": lambda x: x * np.random.rand(),
    "getattr of NumPy": lambda x: x * np.random.default_rng().random(),
    "os.getpid": lambda x: x * os.getpid(),
    "os.listdir": lambda x: x * len(os.listdir(".")),
    "threading.active_count": lambda x: x * threading.active_count(),
    "threading.current_thread": lambda x: x * len(threading.current_thread().name),
    "open": lambda x: x * open(os.devnull).fileno(),  # noqa: SIM115
    "np.load": lambda x: x * np.load("a.npy"),
    "mytorch.load": lambda x: x * mytorch.load("a.pt")["k"],
    "globals": lambda x: x * len(globals()),
    "locals": lambda x: x * len(locals()),
    "eval": lambda x: x * eval("ALPHA"),
    "print": lambda x: print(x.shape) or x,
    "input": lambda x: x * float(input()),
    "sys.getrefcount": lambda x: x * sys.getrefcount(x),
    "sys._getframe": lambda x: x * sys._getframe().f_lineno,
    "multiprocessing.cpu_count": lambda x: x * multiprocessing.cpu_count(),
    "decimal": lambda x: x * float(decimal.Decimal(1) / 3),
    "queue.Queue": lambda x: x * queue.Queue().qsize(),
    "get_rng_state": lambda x: x * mytorch.get_rng_state().sum(),
    "set_num_threads": lambda x: mytorch.set_num_threads(1) or x,
    "logging.getLogger": lambda x: x * logging.getLogger().level,
}
