"""`__torch_function__` of subclasses, wrappers and modes: programs that do the same in PyTorch."""

import ast
import copy
import importlib
import inspect
import io
import pickle
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import torch

import mytorch
from mytorch.core.op import op
from mytorch.core.overriding import overrides, overriding
from mytorch.ops.torch_function import ASKING

LIBRARIES = {"torch": torch, "mytorch": mytorch}
DISABLE = {
    torch: (torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction),
    mytorch: (mytorch.overrides.DisableTorchFunctionSubclass, mytorch.overrides.DisableTorchFunction),
}


def name_of(t, function):
    """The name without its module: a function that is a method, too, is one object here."""
    name = t.overrides.resolve_name(function) or function.__name__
    for part in ("mytorch.", "torch.", "nn.", "functional.", "Tensor."):
        name = name.removeprefix(part)
    return name


def logging_class(t, log):
    class Logging(t.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append((name_of(t, func), [kind.__name__ for kind in types]))
            return super().__torch_function__(func, types, args, kwargs)

    return Logging


def logging_mode(t, log):
    class Logging(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append(name_of(t, func))
            return func(*args, **(kwargs or {}))

    return Logging


def described(x):
    """The kind and the values of a result."""
    if isinstance(x, tuple) and not all(isinstance(n, int) for n in x):
        return [described(item) for item in x]
    if hasattr(x, "tolist"):
        kind = type(x).__name__.replace("Array", "Tensor")
        return kind, [round(v, 5) for v in np.asarray(x.tolist(), float).ravel().tolist()]
    return list(x) if isinstance(x, tuple) else str(x)


# What `__torch_function__` of a subclass gets: s is one of it, x a tensor.
LOGGED = """
    s + 1 | 1 + s | s - x | 1 - s | s * 2 | 2 * s | s / 2 | 2 / s | s // 2 | s % 2 | s ** 2 | 2 ** s | x + s
    s @ s | x @ s | -s | abs(s) | s > 1 | s != x | ~(s > 1) | (s > 1) & (s < 2)
    s.sum() | t.sum(s) | s.std() | t.std(s) | s.max(0) | s.mean(dim=0) | s.norm() | s.clone() | s.detach()
    s.reshape(2, 2) | s.view(4) | s.permute(0) | s.chunk(2) | t.split(s, 2) | s[0] | s[s > 1]
    x[1:].add_(s[1:]) | s.add_(1) | s.to(t.float64) | s.float() | s.cpu() | s.squeeze()
    s.masked_fill(s > 1, 0.0) | s.sub(1) | s.item | s.sum().item() | s.tolist() | s.numpy()
    float(s[0]) | bool(s[0]) | len(s) | s.size() | s.shape | s.grad | s.requires_grad | s.is_leaf | s.ndim
    s.T | s.device | s.new_zeros(2) | t.zeros_like(s) | t.stack([s, x]) | t.cat((x, s)) | t.add(x, 1, out=s)
    t.where(s > 1, s, x) | t.relu(s) | t.equal(s, s) | t.nn.functional.relu(s) | t.nn.functional.softmax(s, 0)
    t.nn.functional.linear(s, t.ones(2, 4)) | t.nn.functional.l1_loss(s, s)
    t.nn.functional.pad(s, (1, 1)) | t.is_tensor(s) | t.nn.Linear(4, 2)(s).shape | s.requires_grad_()
    (s.requires_grad_() ** 2).sum().backward() | s.as_subclass(t.Tensor) | t.exp(input=s)
    t.autograd.grad((s.requires_grad_() * 2).sum(), s) | t.linalg.norm(s) | t.fft.fft(s).abs()
"""


EXPRESSIONS = [source.strip() for line in LOGGED.strip().splitlines() for source in line.split(" | ")]


@pytest.mark.parametrize("source", EXPRESSIONS)
def test_a_subclass_gets_the_calls_that_it_gets_in_pytorch(source):
    found = {}
    for library, t in LIBRARIES.items():
        log = []
        s = t.tensor([1.0, 2.0, 3.0, 4.0]).as_subclass(logging_class(t, log))
        x = t.tensor([4.0, 3.0, 2.0, 1.0])
        result = eval(source, {"t": t, "s": s, "x": x})
        calls = [(name.replace("__eq__", "eq"), kinds) for name, kinds in log]
        result = "" if callable(result) and "item" in source else result
        with DISABLE[t][1]():
            found[library] = calls, described(result)
    assert found["mytorch"] == found["torch"]


def plain(t):
    class Plain(t.Tensor):
        pass

    return Plain


def kinds(*results):
    return [type(x).__name__ for x in results]


def results_keep_the_class(t):
    Plain = plain(t)
    p, x = Plain([1.0, 2.0]), t.ones(2)
    layer = t.nn.Linear(2, 2)
    return kinds(
        p, p + 1, x + p, p.detach(), p.split(1)[0], p.max(0)[0], p.clone(), p[0], p.T, t.stack([x, p]),
        layer(p), x.add_(p), t.nn.Parameter(x) + p, t.nn.Parameter(x) * 2, t.nn.Buffer(x) * 2, p.new_ones(1),
        next(iter(p)), t.nn.functional.gelu(p), t.nn.functional.cross_entropy(p[None], t.tensor([1])),
        p.to(t.float64), p.as_subclass(t.Tensor), t.tensor(p), t.add(x, x, out=p), p.numpy(), p.tolist(),
        p.requires_grad_(),
    )


def a_subclass_goes_before_its_base_and_else_from_left_to_right(t):
    log = []

    def make(name, base):
        def handler(cls, func, types, args=(), kwargs=None):
            log.append((name, [kind.__name__ for kind in types]))
            return NotImplemented if name != "Last" else "answer"

        return type(name, (base,), {"__torch_function__": classmethod(handler)})

    First, Second = make("First", t.Tensor), make("Second", t.Tensor)
    Below = make("Below", First)
    first, second, below = (t.ones(2).as_subclass(kind) for kind in (First, Second, Below))
    last = make("Last", object)()
    answers = [t.add(first, second, out=last), t.stack([second, first, below, last]), t.mul(first, last)]
    return [*answers, t.mul(plain(t)([1.0]), last), log]


def all_of_them_may_refuse(t):
    class Refusing(t.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    class Reflected:
        __torch_function__ = Refusing.__torch_function__

        def __radd__(self, other):
            return "reflected"

    x, refusing = t.ones(2), t.ones(2).as_subclass(Refusing)
    calls = (
        lambda: refusing + 1, lambda: t.add(x, refusing), lambda: t.nn.functional.relu(refusing),
        lambda: t.std(Reflected()), lambda: x - Reflected(), lambda: x @ Reflected(),
        lambda: x.add_(Reflected()),
    )
    errors = []
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        words = "__torch_function__", "Refusing", "Reflected", "operand"
        errors.append([word in str(caught.value) for word in words])
    return [x + Reflected(), *errors]


def quantity(t):
    """A wrapper of a tensor that knows its unit, and is none itself."""
    handled = {}

    class Quantity:
        def __init__(self, value, unit):
            self.value, self.unit = value, unit

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return handled[func](*args, **(kwargs or {})) if func in handled else NotImplemented

        def __add__(self, other):
            return t.add(self, other)

        def __mul__(self, other):
            return t.mul(self, other)

        def tolist(self):
            return [*np.ravel(self.value.tolist()).tolist(), self.unit]

    def implements(*functions):
        return lambda function: handled.update(dict.fromkeys(functions, function))

    @implements(t.add, t.Tensor.add)
    def add(input, other):
        if input.unit != other.unit:
            raise ValueError(f"{input.unit} + {other.unit}")
        return Quantity(input.value + other.value, input.unit)

    @implements(t.mul, t.Tensor.mul)
    def mul(input, other):
        units = [getattr(x, "unit", "") for x in (input, other)]
        values = [getattr(x, "value", x) for x in (input, other)]
        return Quantity(values[0] * values[1], "".join(units))

    @implements(t.mean, t.std, t.nn.functional.relu, t.nn.functional.normalize, t.flip)
    def same(input, *args, **kwargs):
        return Quantity(input.value + 1, input.unit)

    @implements(t.stack, t.cat)
    def joined(tensors, dim=0):
        return Quantity(t.stack([x.value for x in tensors], dim), tensors[0].unit)

    return Quantity


QUANTITIES = {
    "add": lambda t, m, s, x: m + m,
    "other units": lambda t, m, s, x: m + s,
    "mul": lambda t, m, s, x: m * s,
    "by a tensor": lambda t, m, s, x: t.mul(m, x),
    "tensor first": lambda t, m, s, x: t.mul(x, m),
    "tensor * wrapper": lambda t, m, s, x: x * m,
    "wrapper on the right": lambda t, m, s, x: x.mul(m),
    "mean, an op": lambda t, m, s, x: t.mean(m),
    "keywords": lambda t, m, s, x: t.mean(input=m, dim=0),
    "std, built of ops": lambda t, m, s, x: t.std(m),
    "flip, an op without out": lambda t, m, s, x: t.flip(m, dims=(0,)),
    "normalize, built of ops": lambda t, m, s, x: t.nn.functional.normalize(m, dim=0),
    "relu, a composite": lambda t, m, s, x: t.nn.functional.relu(m),
    "a module": lambda t, m, s, x: t.nn.ReLU()(m),
    "in a list": lambda t, m, s, x: t.stack([m, m]),
    "in a tuple": lambda t, m, s, x: t.cat((m, m), dim=0),
    "exp is not implemented": lambda t, m, s, x: t.exp(m),
    "sum is not implemented": lambda t, m, s, x: t.sum(m),
    "no wrapper": lambda t, m, s, x: t.mean(x),
    "no number": lambda t, m, s, x: t.mean("abc"),
}


@pytest.fixture
def nothing_known():
    """As in a process in which no class with `__torch_function__` is known yet."""
    before = [*overriding]
    overriding.clear()
    yield
    overriding[:] = before or overriding


@pytest.mark.parametrize("name", QUANTITIES)
def test_wrappers_of_tensors_are_asked_in_their_first_call_and_later(nothing_known, name):
    found = {}
    for library, t in LIBRARIES.items():
        Quantity = quantity(t)
        x = t.tensor([5.0, 6.0])
        m, s = Quantity(t.tensor([1.0, 2.0]), "m"), Quantity(t.tensor([3.0, 4.0]), "s")
        assert not overriding or library == "torch"
        found[library] = []
        for _ in range(2):
            try:
                found[library].append(QUANTITIES[name](t, m, s, x).tolist())
            except (TypeError, ValueError) as error:
                found[library].append((isinstance(error, TypeError), "m + s" in str(error)))
    ours = found["mytorch"]
    assert ours == found["torch"] and ours[0] == ours[1]


def test_the_first_call_passes_the_same_arguments_as_later_ones(nothing_known):
    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return [repr(a) for a in args[1:]], kwargs

    F, m = mytorch.nn.functional, Like()
    calls = (
        lambda: F.relu(m), lambda: F.softmax(m, 0), lambda: F.normalize(m, dim=1), lambda: mytorch.mean(m, 0),
        lambda: mytorch.add(m, 2, alpha=3), lambda: mytorch.flip(m, (0,)), lambda: F.linear(m, m),
    )
    for call in calls:
        overriding.clear()
        first = call()
        assert overriding and call() == first


def a_mode_sees_functions_and_factories(t):
    log = []
    model = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.ReLU(), t.nn.Linear(2, 2), t.nn.GELU(), t.nn.LayerNorm(2))
    with logging_mode(t, log)():
        x = t.zeros(4, 3)
        y = t.nn.functional.cross_entropy(model(x + t.ones_like(x)), t.tensor([0, 1, 1, 0]))
        (t.sum(y) * 2 / t.exp(y)).add_(1)
        x[0]
        x.std(), t.std(x, 0), t.stack([x, x]), x.mean(), x @ x.t(), t.nn.functional.normalize(x)
        t.ones(1, requires_grad=True).backward()
    t.ones(1)
    return [name for name in log if name not in ("t", "grad_fn.__get__")]


def a_mode_changes_results_and_may_refuse(t):
    class Doubling(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func in (t.exp, t.Tensor.exp):
                return NotImplemented
            result = func(*args, **(kwargs or {}))
            return result * 2 if func in (t.add, t.Tensor.add) else result

    x, p = t.ones(2), plain(t)([1.0, 2.0])
    with Doubling():
        changed = [x + 1, p + 1]
        with pytest.raises(TypeError):
            t.exp(x)
        changed.append(x + 1)
    return [*changed, x + 1]


def modes_are_nested(t):
    log = []

    class Named(t.overrides.TorchFunctionMode):
        def __init__(self, name):
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append((self.name, func.__name__, len(types)))
            if self.name == "c" and func.__name__ == "add":
                args = args[0] * 3, args[1]
            return func(*args, **(kwargs or {}))

    x, p = t.ones(2), plain(t)([1.0, 2.0])
    a = Named("a")
    with a, Named("b"):
        x + 1
        with Named("c"), a:
            y = p + 1
        with DISABLE[t][0]():
            p.mul(2)
        with DISABLE[t][1]():
            x.mul(3)
        with pytest.raises(ZeroDivisionError), Named("d"):
            raise ZeroDivisionError
        x + 4
    x + 5
    return [y, log, kinds(y)]


def without_subclasses(t):
    p = plain(t)([1.0, 2.0])
    subclasses, everything = DISABLE[t]
    with subclasses():
        inside = [*kinds(p + 1, p[0], p.detach()), t.overrides.has_torch_function((p,))]
        with everything():
            pass
        inside += kinds(p + 1)
    return [inside, kinds(p + 1), t.overrides.has_torch_function([p])]


def functions_of_users(t):
    log, o = [], t.overrides

    def double(x):
        if o.has_torch_function((x,)):
            return o.handle_torch_function(double, (x,), x)
        return x * 2

    @o.wrap_torch_function(lambda x, y: (x, y))
    def product(x, y):
        return x * y

    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    p, x = t.ones(2).as_subclass(logging_class(t, log)), t.ones(2)
    results = [double(Like()), product(x, Like()), double(x), product(x, x), double(p), product(p, 3)]
    with logging_mode(t, log)():
        double(x)
    tensors = p, x, Like(), 3, None, [x]
    return [results, log, *[(o.is_tensor_like(y), o.has_torch_function((y,))) for y in tensors]]


def gradients_pass_through_subclasses(t):
    Plain = plain(t)
    w = t.ones(3, requires_grad=True)
    s = w.as_subclass(Plain)
    found = [s.requires_grad, s.is_leaf]
    (s * s * t.tensor([1.0, 2.0, 3.0])).sum().backward()
    leaf = Plain([1.0, 2.0])
    leaf.requires_grad_()
    cubes = leaf**3
    cubes.retain_grad()
    y = (cubes * 2).sum()
    y.backward(retain_graph=True)
    grads = [t.tensor(x.grad.tolist()) for x in (w, leaf, cubes)]
    found += [*grads, leaf.is_leaf, kinds(y)]
    (g,) = t.autograd.grad((leaf**3).sum(), leaf, create_graph=True)
    (h,) = t.autograd.grad(g.sum(), leaf)
    found += [g.detach(), h, kinds(g, h)]
    base = t.ones(3, requires_grad=True)
    view = (base * 1).as_subclass(Plain)
    part = view[0:2]
    view.mul_(3)
    part.add_(1)
    (view * view).sum().backward()
    return [*found, base.grad, kinds(part)]


def a_write_is_noticed(t):
    s = t.ones(2, requires_grad=True).as_subclass(plain(t))
    y = s.exp()
    z = y * y
    with t.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="leaf"):
        s.add_(1)
    return []


def autograd_asks_neither_classes_nor_modes(t):
    log = []
    Logging = logging_class(t, log)
    w, s = t.ones(2, requires_grad=True), Logging([3.0, 4.0]).requires_grad_()
    loss = (w * w * s).as_subclass(t.Tensor).sum()
    log.append("grad")
    (g,) = t.autograd.grad(loss, w, create_graph=True)
    log.append("view")
    base = t.zeros(2)
    part = base[:1]
    base.add_(w)
    with logging_mode(t, log)():
        results = [part.requires_grad]
    log = [name for name in map(str, log) if "__get__" not in name]
    return [*results, part.detach(), g.detach(), *kinds(g), *log]


def a_checkpoint_does_the_same_again(t):
    checkpoint = t.utils.checkpoint.checkpoint
    leaf = plain(t)([1.0, 2.0]).requires_grad_()
    y = checkpoint(lambda x: (x * x).exp() * x, leaf, use_reentrant=False)
    y.sum().backward()
    return [kinds(y), t.tensor(leaf.grad.tolist())]


def subclasses_are_made_by_new(t):
    class Extra(t.Tensor):
        @staticmethod
        def __new__(cls, x, extra, *args, **kwargs):
            return super().__new__(cls, x, *args, **kwargs)

        def __init__(self, x, extra):
            super().__init__()
            self.extra = extra

    class Made(t.Tensor):
        @staticmethod
        def __new__(cls, x, extra, requires_grad=False):
            out = t.Tensor._make_subclass(cls, x, requires_grad)
            out.extra = extra
            return out

    x = t.ones(2)
    a, b, c = Extra([1.0, 2.0], "m"), Made(x, "s"), Made(x * 2, "kg", True)
    x.add_(1)
    others = t.Tensor([1.0, 2.0]), t.Tensor(), t.nn.Parameter(t.ones(1)).detach()
    extras = a.extra, b.extra, c.extra, hasattr(a + 1, "extra")
    return [a, b, c.detach(), c.is_leaf, c.requires_grad, *extras, *others, kinds(a + 1, b * 2)]


def subclasses_have_only_an_init(t):
    class Marked(t.Tensor):
        def __init__(self, *args, **kwargs):
            super().__init__()
            self.mark = "m"

    class Silent(t.Tensor):
        def __init__(self, x):
            self.mark = "s"

    class Weight(t.nn.Parameter):
        def __init__(self, data=None, requires_grad=True):
            super().__init__()
            self.mark = "w"

    x = t.ones(2)
    made = Marked([1.0, 2.0]), Marked(x), Silent(x), Weight(x), Weight(x, False), Weight()
    x.add_(1)
    gradients = [y.requires_grad for y in made]
    return [*(y.detach() for y in made), *(y.mark for y in made), *gradients, kinds(*made[:3], made[0] + 1)]


def copies_of_parameters(t):
    p = t.nn.Parameter(t.ones(2))
    p.mark = ["m"]
    pickled = pickle.loads(pickle.dumps(p))
    return [copy.copy(p).mark is p.mark, pickled.mark, hasattr(copy.deepcopy(p), "mark"), t.nn.Parameter()]


def a_module_holds_one(t):
    module = t.nn.Linear(2, 2)
    module.register_buffer("mark", plain(t)([1.0, 2.0]))
    module.load_state_dict(module.state_dict())
    return [kinds(module.mark, module.mark + 1, module(t.ones(2)), module(module.mark))]


def functions_of_autograd(t):
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    s = plain(t)([1.0, 2.0]).requires_grad_()
    y = Square.apply(s)
    y.sum().backward()
    return [y.detach().as_subclass(t.Tensor), t.tensor(s.grad.tolist())]


PROGRAMS = [
    results_keep_the_class, a_subclass_goes_before_its_base_and_else_from_left_to_right,
    all_of_them_may_refuse, a_mode_sees_functions_and_factories, a_mode_changes_results_and_may_refuse,
    modes_are_nested, without_subclasses, functions_of_users, gradients_pass_through_subclasses,
    a_write_is_noticed, autograd_asks_neither_classes_nor_modes, a_checkpoint_does_the_same_again,
    subclasses_are_made_by_new, subclasses_have_only_an_init, copies_of_parameters, a_module_holds_one,
    functions_of_autograd,
]


def values(x):
    """The results of a program, nested, with the values of tensors."""
    if isinstance(x, (list, tuple)):
        return [values(item) for item in x]
    return described(x) if hasattr(x, "tolist") else x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_do_the_same_in_pytorch(program):
    theirs, ours = values(program(torch)), values(program(mytorch))
    assert ours == theirs


def test_nothing_is_asked_until_a_class_or_a_mode_is_defined():
    """No class of the package turns the question on, which costs each call something."""
    program = (
        "import pkgutil, importlib, mytorch\n"
        "from mytorch import nn, accelerate, models, distributed, distributions, amp, profiler, compile\n"
        "from mytorch.core.overriding import overriding\n"
        "model = nn.Sequential(nn.LazyLinear(2), nn.ReLU(), nn.BatchNorm1d(2))\n"
        "model(mytorch.ones(2, 3)).sum().backward()\n"
        "assert not overriding\n"
        "with mytorch.overrides.BaseTorchFunctionMode():\n"
        "    assert overriding\n"
        "assert not overriding\n"
        "with mytorch.overrides.BaseTorchFunctionMode():\n"
        "    class Sub(mytorch.Tensor): pass\n"
        "assert type(Sub([1.0]) + 1) is Sub and len(overriding) == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("module", "name"), sorted(ASKING))
def test_the_functions_that_ask_are_those_of_the_table(module, name):
    """By their names, which tell the function that a user calls from those that it calls itself."""
    tree = ast.parse(inspect.getsource(importlib.import_module(f"mytorch.{module}")))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    assert any("dispatch(" in ast.unparse(node) for node in found)


def test_a_mode_is_of_one_thread():
    log, seen = [], []
    with logging_mode(mytorch, log)():
        thread = threading.Thread(target=lambda: seen.append(mytorch.ones(2) + 1))
        thread.start()
        thread.join()
    assert log == [] and seen[0].tolist() == [2, 2] and overrides.modes == ()


def test_a_checkpoint_runs_again_in_the_modes_of_the_forward_pass():
    x = mytorch.tensor([1.0, 2.0], requires_grad=True)
    with negating():
        y = mytorch.utils.checkpoint.checkpoint(lambda x: mytorch.exp(x * x), x)
    y.sum().backward()
    z = x.detach().requires_grad_()
    (-mytorch.exp(-(z * z))).sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), z.grad.tolist(), rtol=1e-6)
    assert overrides.modes == () and overriding.count("a mode") == 0


def test_functions_of_users_made_by_op_are_asked():
    @op
    def halved(x):
        return x / 2, lambda g: g / 2

    log = []
    p = plain(mytorch)([2.0, 4.0])
    with logging_mode(mytorch, log)():
        y = halved(p)
    assert log == ["halved"] and described(y) == ("Plain", [1, 2])


class Marked(mytorch.Tensor):
    __slots__ = ("k", "__dict__")


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_keep_the_class_and_what_it_adds(copied):
    x = mytorch.ones(2).as_subclass(Marked)
    x.k, x.names = 3, ["a"]
    y = copied(x)
    assert described(y) == ("Marked", [1, 1]) and (y.k, y.names) == (3, ["a"])
    assert copied is copy.copy or y.names is not x.names
    y += 1
    assert x.tolist() == ([2, 2] if copied is copy.copy else [1, 1])


def test_a_class_that_defines_its_own_copy_keeps_it():
    class Own(mytorch.Tensor):
        def __deepcopy__(self, memo):
            return "own"

    x = Own([1.0])
    x.name = "x"
    assert copy.deepcopy(x) == "own"


class Weight(mytorch.nn.Parameter):
    pass


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_a_parameter_keep_what_its_class_adds(copied):
    x = Weight(mytorch.ones(2), False)
    x.names = ["a"]
    y = copied(x)
    assert type(y) is Weight and (y.names, y.requires_grad) == (["a"], False)
    assert copied is copy.copy or y.names is not x.names
    layer = mytorch.nn.Linear(2, 2)
    layer.weight = x
    assert copied(layer).weight.names == ["a"]


def test_what_makes_no_tensor_is_no_empty_one():
    class Named(mytorch.Tensor):
        def __init__(self, x, name):
            super().__init__(*([x] if name else []))

    assert Named([1.0], "x").tolist() == [1]
    with pytest.raises(TypeError, match=r"Named: the arguments make no tensor, and super"):
        Named([1.0], "")


def test_as_subclass_wants_a_subclass():
    with pytest.raises(TypeError, match="subclass of Tensor"):
        mytorch.ones(2).as_subclass(int)


def test_names_of_functions():
    o = mytorch.overrides
    names = {
        mytorch.Tensor.add: "mytorch.Tensor.add", mytorch.add: "mytorch.add", mytorch.stack: "mytorch.stack",
        mytorch.nn.functional.relu: "mytorch.nn.functional.relu", mytorch.Tensor.add_: "mytorch.Tensor.add_",
        mytorch.Tensor.shape.__get__: "mytorch.Tensor.shape.__get__",
        mytorch.linalg.svd: "mytorch.linalg.svd", mytorch.manual_seed: None, len: None,
    }
    assert {f: o.resolve_name(f) for f in names} == names
    found = o.get_overridable_functions()
    assert mytorch.stack in found[mytorch] and mytorch.Tensor.sum in found[mytorch.Tensor]
    assert o.is_tensor_method_or_property(mytorch.Tensor.detach)
    assert o.is_tensor_method_or_property(mytorch.Tensor.grad.__get__)
    assert not o.is_tensor_method_or_property(mytorch.stack)


def negating():
    class Negating(mytorch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return -func(*args, **(kwargs or {}))

    return Negating()


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_compiled_functions_run_eagerly_where_calls_are_overridden():
    f = mytorch.compile(lambda x: x * 2 + 1)
    x = mytorch.tensor([1.0, 2.0])
    assert f(x).tolist() == [3, 5] and len(f.history) == 1
    with negating():
        assert f(x).tolist() == [1, 3]  # -(-(x * 2) + 1)
        assert f(x).tolist() == [1, 3]
    assert f(x).tolist() == [3, 5] and len(f.history) == 2
    assert described(f(x.as_subclass(Marked))) == ("Marked", [3, 5])
    p = x.as_subclass(Marked)
    g = mytorch.compile(lambda x: x + p)
    assert described(g(x)) == ("Marked", [2, 4])

    @mytorch.compile
    def enters_a_mode(x):
        with negating():
            return x + 1

    assert enters_a_mode(x).tolist() == enters_a_mode(x).tolist() == [-2, -3]


def test_programs_hold_no_overridden_calls_and_are_overridden_as_a_whole():
    x = mytorch.tensor([1.0, 2.0])
    p = x.as_subclass(Marked)
    with pytest.raises(NotImplementedError, match="__torch_function__"):
        mytorch.capture(lambda x: x + p, x)
    with pytest.raises(NotImplementedError, match="__torch_function__"), negating():
        mytorch.capture(lambda x: x + 1, x)
    with pytest.raises(RuntimeError, match="__torch_function__"), negating():
        mytorch.compile(lambda x: x + 1, fullgraph=True)(x)
    program = mytorch.capture(lambda x: x + 1, x)
    with negating():
        assert program(x).tolist() == [-2, -3]
    assert described(program(p)) == ("Marked", [2, 3])
    assert described(program.chunked("1GB")(p)) == ("Marked", [2, 3])


def test_tensors_of_pytorch_override_nothing_here(nothing_known):
    x = torch.ones(2)
    for _ in range(2):
        with pytest.raises(TypeError, match="Tensor"):
            mytorch.nn.functional.relu(x)
        with pytest.raises(TypeError):
            mytorch.exp(x)


def test_a_saved_subclass_keeps_its_values():
    file = io.BytesIO()
    mytorch.save({"x": mytorch.ones(2).as_subclass(Marked)}, file)
    file.seek(0)
    assert mytorch.load(file)["x"].tolist() == [1, 1]


def test_what_refuses_a_wrapper_says_so_the_first_time_too():
    program = """
        import mytorch
        class Wrapper:
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return "it"
        for _ in range(2):
            try:
                print(mytorch.tensor(Wrapper()))
            except TypeError as error:
                print("refused")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.stdout.split() == ["refused", "refused"], done.stderr


def test_parameters_are_subclassed_by_new():
    class Quantized(mytorch.nn.Parameter):
        def __new__(cls, data, requires_grad=True):
            return super().__new__(cls, data, requires_grad)

    class Made(mytorch.nn.Parameter):
        def __new__(cls, data, requires_grad=True, extra=1):
            self = mytorch.Tensor._make_subclass(cls, data, requires_grad)
            self.extra = extra
            return self

    for p in (Quantized(mytorch.ones(2)), Made(mytorch.ones(2), extra=5)):
        (p * 2).sum().backward()
        assert p.tolist() == [1, 1] and p.grad.tolist() == [2, 2] and isinstance(p, mytorch.nn.Parameter)
    assert p.extra == 5
