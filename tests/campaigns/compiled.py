"""
Random programs, compiled beside eager and PyTorch: several calls, between which Python's objects change.

A program is a function in a file, which mytorch's eager code, `mytorch.compile` and PyTorch import each. Its
arguments have dtypes, layouts in memory and sizes, which may differ in the next call; one is an index, which
may be out of bounds. It writes in place, also through views, and uses a global, attributes of an object, its
class and a module, buffers and parameters, of which one changes between two calls.
"""

import importlib.util
import os
import re
from types import SimpleNamespace

import numpy as np
import torch

import mytorch
from tests import oracle
from tests.campaigns.statements import INDEXED, STATE, STATEMENTS, WRITES, without_jumps

LAYOUTS = {
    "plain": lambda a: a.copy(),
    "transposed": lambda a: np.array(a, order="F"),
    "with gaps": lambda a: np.repeat(a, 2, -1)[..., ::2] if a.ndim else a.copy(),
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a.copy(),
    "expanded": lambda a: a[:1].copy() if a.ndim and len(a) else a.copy(),
}
CHANGES = [
    "program.FACTOR = 3", "program.config.bias = 2", "program.Config.kind = 2", "program.layer.step = 2",
    "program.layer.train(not program.layer.training)", "program.layer.total.fill_(5)", "pass",
    "program.layer.weight.requires_grad_(not program.layer.weight.requires_grad)", "program.OFFSET = None",
    "program.layer.total = program.layer.total + 1", "program.Layer.scale = 3", "program.config.flag = True",
]
HEAD = '''
import LIBRARY as F
from LIBRARY.nn import functional as N

FACTOR, OFFSET = 2, 1


class Config:
    kind = 1

    def __init__(self):
        self.bias = 1


class Base(F.nn.Module):
    scale = 2


class Layer(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", F.ones(1))
        self.weight = F.nn.Parameter(F.full((1,), 0.5))
        self.step = 1

    def forward(self, x):
        if self.training:
            self.total.add_(self.step)
        return x * self.weight * self.scale + self.total


config, layer = Config(), Layer()


def ints(*values):
    return F.tensor(values)


def first(x):
    return x[0] if isinstance(x, (tuple, list)) else x


'''
# Where compiled code may raise, or may not: what is saved is written to in place.
IN_PLACE = "modified by an inplace operation|a leaf Variable"
OF_EMPTY = "out of bounds"  # NumPy looks at no index where nothing is taken
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-3, "float64": 1e-8}
LARGEST = 1e4


def draw(random, kind, shapes, dtypes, statement):
    """The case: leaves, statements, what is returned, calls, whether there are kernels, the seed."""
    leaves = [(random.choice(shapes), random.choice(dtypes), random.random() < 0.6) for _ in range(3)]
    kinds, others = STATEMENTS[kind.split(", ")[1]], (INDEXED, STATE)
    if kind.endswith("smooth"):
        kinds, others = [*map(without_jumps, kinds)], [*map(without_jumps, others)]
    found = []
    grows = random.random() < 0.5  # sizes differ from call to call
    for _ in range(random.randint(2, 12)):
        found.append(statement(random, others if random.random() < 0.25 else kinds))
    # Elements that share memory may be written in any order.
    writes = any(is_write(text) for text, *_ in found)
    allowed = [name for name in LAYOUTS if name != "expanded" or not writes]
    calls = []
    for k in range(random.randint(2, 6 if grows else 4)):
        layouts = ["plain"] * 3 if random.random() < 0.3 else [random.choice(allowed) for _ in leaves]
        index = [random.choice([0, 0, 1, 1, -1] + [9] * (random.random() < 0.2)) for _ in range(2)]
        layouts = layouts if not calls or (k % 2 == 0 and not grows) else calls[-1][0]
        growth = random.choice([0, 1, 2, 3, 7]) if grows and calls else 0
        change = "pass" if grows and random.random() < 0.7 else random.choice(CHANGES)
        calls.append((layouts, index, change, growth))
    returned, seed = [random.random() for _ in range(3)], random.randrange(1 << 30)
    return kind, leaves, found, returned, calls, random.random() < 0.5, seed


def check(folder, kind, leaves, statements, returned, calls, kernels, seed, make):
    os.environ["MYTORCH_CHECK_PROGRAMS"] = "1"
    rngs = [np.random.default_rng([seed, k]) for k in range(len(leaves))]
    arrays = [make(rng, shape, dtype) for rng, (shape, dtype, _) in zip(rngs, leaves, strict=True)]
    mytorch.use_fused(kernels)
    lines = lines_of(folder, leaves, statements, arrays)
    names = [line.split(" = ")[0].strip() for line in lines if re.match(r"t\d+ = ", line)] or ["t0"]
    wanted = list(dict.fromkeys(names[int(x * len(names))] for x in returned))
    body = "".join(f"    {line}\n" for line in lines)
    text = f"def program(t0, t1, t2, i):\n{body}    return {', '.join(wanted)},\n"
    both = [load(folder, f"program_{name}", "mytorch", text) for name in ("eager", "compiled")]
    function = mytorch.compile(both[1].program)
    # What is computed from halves, or a layer's float32, is as exact as they are, whatever its dtype.
    loosest = max(TOLERANCE.get(dtype, 0) for _, dtype, _ in [*leaves, ("", "float32", "")])
    theirs = load(folder, "program_torch", "torch", text)
    for k, (layouts, index, change, growth) in enumerate(calls):
        larger = [(tuple([n + growth * (n > 1) for n in shape]), *more) for shape, *more in leaves]
        rngs = [np.random.default_rng([seed, n, growth]) for n in range(len(leaves))]
        pairs = zip(rngs, larger, strict=True)
        held = [make(rng, shape, dtype) for rng, (shape, dtype, _) in pairs] if growth else arrays
        given = [[leaf_of(*x) for x in zip(held, larger, layouts, strict=True)] for _ in both]
        outcomes = [
            outcome(call, module, args, index)
            for call, module, args in zip((both[0].program, function), both, given, strict=True)
        ]
        what = f"{text}\ncall {k}: {layouts}, {index}, sizes + {growth}; kernels: {kernels}"
        try:
            compare(*outcomes, loosest)
            if k == 0 and {*layouts} == {"plain"}:
                compare_with_torch(theirs, leaves, arrays, index, outcomes[0], loosest)
        except AssertionError as error:
            raise AssertionError(f"{what}\n\n{str(error)[:2000]}") from None
        if not outcomes[0].goes_on:
            return
        for module in both:
            exec(change, {"program": module})
        text += f"# {change}\n"


def is_write(text):
    """Whether a statement writes in place, and defines no tensor."""
    return text in WRITES or "=" in re.sub(r"[=<>!]=|\(.*?\)", "", text) or "_(" in text


def lines_of(folder, leaves, statements, arrays):
    """The lines of the statements that eager code can do."""
    module = load(folder, "tried", "mytorch", "")
    tensors = [leaf_of(*pair, "plain") for pair in zip(arrays, leaves, strict=True)]
    names = {**vars(module), "i": mytorch.tensor([0, 1]), **{f"t{k}": x for k, x in enumerate(tensors)}}
    lines, count = ["t1 = t1 * 1"], 3
    exec(lines[0], names)
    for text, which, words in statements:
        line = text.replace("{m}", "({a} > 0)")
        line = line.format(**{n: f"t{k % count}" for n, k in zip("abc", which, strict=True)}, **words)
        line = line if is_write(text) else f"t{count} = first({line})"
        try:
            exec(line, names)
        except Exception:
            continue
        lines.append(line)
        if not is_write(text):
            y = names[f"t{count}"]
            if not isinstance(y, mytorch.Tensor) or not (y.detach().to("float64").abs() < LARGEST).all():
                lines.pop()
                del names[f"t{count}"]
                continue
            count += 1
    return lines


def load(folder, name, library, text):
    path = folder / f"{name}.py"
    path.write_text(HEAD.replace("LIBRARY", library) + text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaf_of(array, leaf, layout):
    shape, dtype, wants_grad = leaf
    x = mytorch.Tensor(LAYOUTS[layout](array))
    x = x.expand(shape) if layout == "expanded" else x
    return x.requires_grad_(wants_grad and mytorch.is_floating_point(x))


def outcome(call, module, args, index):
    """The error, or results; what arguments and buffers hold, and gradients."""
    found = SimpleNamespace(error=None, results=[], backward=None, goes_on=True)
    for p in module.layer.parameters():
        p.grad = None
    try:
        found.results = list(call(*args, mytorch.tensor(index)))
    except Exception as error:
        found.error = error
    found.flags = [x.requires_grad for x in found.results]
    roots = [x for x in found.results if x.requires_grad]
    if roots:
        try:
            sum((x.to("float64") * (k + 1)).sum() for k, x in enumerate(roots)).backward()
        except (RuntimeError, IndexError) as error:
            found.backward, found.goes_on = error, False
    found.held = [x.detach() for x in (*found.results, *args, module.layer.total)]
    grads = [x.grad if x.is_leaf else None for x in (*args, module.layer.weight)]
    found.grads = [None if g is None else g.copy() for g in grads]
    return found


def compare(eager, compiled, loosest):
    """Asserts that both outcomes are the same."""
    a, b = eager.error, compiled.error
    if (a is None) != (b is None) and re.search(IN_PLACE, str(a or b)):
        eager.goes_on = False
        return
    allowed = IN_PLACE if all(x.numel() for x in eager.held) else f"{IN_PLACE}|{OF_EMPTY}"
    assert type(a) is type(b), f"eager raises {a!r}, compiled {b!r}"
    assert eager.flags == compiled.flags, f"requires_grad is {eager.flags}, compiled {compiled.flags}"
    for k, (x, y) in enumerate(zip(eager.held, compiled.held, strict=True)):
        what = f"result {k}" if k < len(eager.results) else f"what argument {k - len(eager.results)} holds"
        same(y, x, what, loosest)
    a, b = eager.backward, compiled.backward
    if a is not None or b is not None:
        assert re.search(allowed, str(a or b)), f"backward: eager raises {a!r}, compiled {b!r}"
        eager.goes_on = False
        return
    for k, (x, y) in enumerate(zip(eager.grads, compiled.grads, strict=True)):
        if x is None or y is None:  # of what only an unused result depends on: zeros
            rest = y if x is None else x
            assert rest is None or not rest.any().item(), f"gradient {k} is {x}, compiled {y}"
        else:
            same(y, x, f"gradient {k}", loosest)


def same(got, want, what, loosest):
    assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{what} is {got!r}, eager's {want!r}"
    a, b = (np.asarray(getattr(x, "data", x)) for x in (got, want))
    tolerance = max(loosest, TOLERANCE.get(str(want.dtype), 0))
    if str(want.dtype) not in TOLERANCE:
        np.testing.assert_array_equal(a, b, what)
        return
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(b)
    room = tolerance * max(1.0, np.abs(b[finite]).max(initial=0))
    np.testing.assert_allclose(np.where(finite, a, 0), np.where(finite, b, 0), tolerance, room, err_msg=what)
    np.testing.assert_array_equal(np.isfinite(a), finite, what)


def compare_with_torch(module, leaves, arrays, index, eager, loosest):
    """Asserts that PyTorch's results are eager's, where it raises no error."""
    if eager.error is not None:
        return
    args = [
        oracle.torch_of(a).requires_grad_(wants_grad and oracle.torch_of(a).is_floating_point())
        for a, (_, _, wants_grad) in zip(arrays, leaves, strict=True)
    ]
    try:
        results = module.program(*args, torch.tensor(index))
    except (RuntimeError, IndexError, NotImplementedError, TypeError, ValueError):
        return  # `programs` compares what both refuse
    for k, (x, y) in enumerate(zip(eager.held, results, strict=False)):
        tolerance = max(loosest, TOLERANCE[str(x.dtype)]) if str(x.dtype) in TOLERANCE else 0
        values = y.detach().double().nan_to_num(0, 0, 0).abs()
        largest = max([1.0, *values.reshape(-1).tolist()])
        oracle.same(x, y.detach(), tolerance, tolerance * largest, f"result {k}, PyTorch's")
