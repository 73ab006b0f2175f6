"""Results of compiled functions that nothing uses: they have no gradients, as in eager code, and no zeros."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn, optim
from mytorch.compiler.passes.absent import without_gradients
from mytorch.compiler.program.instruction import Instruction, Value
from mytorch.compiler.program.program import Program
from mytorch.nn import functional as F
from tests.strict_cupy import memory


def split(x, w):
    a, b = (x @ w).split(2, 1)
    return a, b.exp(), a * b


FUNCTIONS = {  # several results each
    "logits and loss": lambda x, w: (lambda y: (y, F.cross_entropy(y, mytorch.tensor([0, 1, 2]))))(x @ w),
    "views of logits": lambda x, w: (lambda y: (y.reshape(-1), y.sum(), y.T))(x @ w),
    "casts": lambda x, w: (lambda y: (y.double(), y.half(), y.sum()))(x @ w),
    "products": lambda x, w: (lambda y: (y @ w.T, -y / 2, y * w.sum(), y.sum(0)))(x @ w),
    "apart": lambda x, w: (x * 2, w.exp(), (x @ w).sum()),
    "kernels": lambda x, w: (lambda y: (F.softmax(y, 1), F.layer_norm(y, (4,)), F.gelu(y)))(x @ w),
    "broadcast": lambda x, w: (lambda y: (y + x.sum(), y[:1] + y, y.expand(2, 3, 4)))(x @ w),
    "a written gradient": lambda x, w: (lambda y: (y, y[1:].exp(), w[:2] * 3))(x @ w),
    "transposed": lambda x, w: (lambda y: (y.T, y * 2, (y.T * 3).sum()))(x @ w),
    "split": split,
    "concatenated": lambda x, w: (lambda y: (mytorch.cat([y, y * 2]), y.cumsum(0), y[:, [1, 1]]))(x @ w),
    "complex": lambda x, w: (lambda y: (y.to("complex64") * 1j, y * 2))(x @ w),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_eager_s(name):
    compiled = mytorch.compile(FUNCTIONS[name], fullgraph=True)

    def run(function, used):
        rng = np.random.default_rng(0)
        draw = [rng.standard_normal(shape, "float32") for shape in [(3, 5), (5, 4)]]
        x, w = (mytorch.tensor(values, requires_grad=True) for values in draw)
        results = function(x, w)
        picked = [results[k % len(results)] for k in used]
        mytorch.autograd.backward(picked, [mytorch.ones_like(y) for y in picked])
        return [None if p.grad is None else p.grad.numpy() for p in (x, w)]

    for used in [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2), (0,)]:
        if len({k % len(FUNCTIONS[name](mytorch.ones(3, 5), mytorch.ones(5, 4))) for k in used}) < len(used):
            continue
        for ours, eager in zip(run(compiled, used), run(FUNCTIONS[name], used), strict=True):
            if eager is None:  # zeros where the gradients can't be left out
                assert ours is None or not ours.any()
            else:
                np.testing.assert_allclose(ours, eager, rtol=1e-5, atol=1e-6)


def test_arguments_that_only_unused_results_depend_on_get_no_gradient():
    def function(x, w):
        return x * 2, w.exp()

    for call, lib in ((mytorch.compile(function, fullgraph=True), mytorch), (function, torch)):
        x, w = lib.ones(2, requires_grad=True), lib.ones(3, requires_grad=True)
        call(x, w)[0].sum().backward()
        assert x.grad.tolist() == [2, 2] and w.grad is None


def value(number, shape=(2, 3), strides=None, dtype="float32", of=None):
    strides = strides or tuple(np.empty(shape, dtype).strides)
    return Value(number, shape, strides, np.dtype(dtype), of)


def made(name, args, y, **options):
    return Instruction(name, args, {}, (y,), **options)


def test_what_is_left_of_a_program():
    """The second gradient is absent: its casts and the addition go, and views are of what is left."""
    g, h, cast, out = value(0), value(1, dtype="float16"), value(2), value(3)
    flat = value(4, (6,), of=out)
    last = value(5, (6,))
    steps = [made(".astype", (h, np.dtype("float32")), cast), made("add", (cast, g), out),
             made(".reshape", (out, (6,)), flat), made("exp", (flat,), last)]
    left = without_gradients(Program((g, h), {}, {}, steps, (last, cast)), [h])
    assert left.inputs == (g,) and [i.name for i in left.instructions] == [".reshape", "exp"]
    assert left.instructions[0].args[0] is g and left.instructions[0].outputs[0].of is g
    assert left.instructions[1].args[0] is left.instructions[0].outputs[0]
    assert left.outputs == (last, None)


SUMS = {  # of gradients, in place: the arguments of add, of an absent gradient h among g and k; what is left
    "of the absent one": ([("out", "g", "h"), ("out", "out", "k")], ["add(%0, %2)"], 3),
    "of it later": ([("out", "g", "k"), ("out", "out", "h")], ["add(%0, %2)"], 3),
    "onto it": ([("h", "h", "g")], [], 0),
    "of two": ([("out", "g", "k"), ("out", "out", "g")], ["add(%0, %2)", "add(%3, %0, out=(%3,))"], 3),
    "of it twice": ([("out", "h", "g"), ("out", "out", "h"), ("out", "out", "k")], ["add(%0, %2)"], 3),
    "of nothing": ([("out", "h", "h"), ("out", "out", "h")], [], None),
    "of nothing, and then": ([("out", "h", "h"), ("out", "out", "k")], [], 2),
}


@pytest.mark.parametrize("sums, left, result", SUMS.values(), ids=SUMS)
def test_sums_of_gradients_in_place(sums, left, result):
    names = {"g": value(0), "h": value(1), "k": value(2), "out": value(3)}
    steps = []
    for to, *args in sums:
        args, to = tuple([names[a] for a in args]), names[to]
        steps.append(
            Instruction("add", args, {"out": (to,)}, (), (to,)) if args[0] is to else made("add", args, to)
        )
    program = Program((names["g"], names["h"], names["k"]), {}, {}, steps, (names[sums[-1][0]],))
    found = without_gradients(program, [names["h"]])
    assert [str(i).split("  #")[0].split(" = ")[-1] for i in found.instructions] == left
    assert [y and y.number for y in found.outputs] == [result]


def test_other_arrays_may_be_written_to():
    g, h, whole, out = value(0), value(1), value(2), value(3)
    write = Instruction(".setitem", (whole, 0, g), {}, (), (whole,))
    steps = [made("zeros", ((2, 3), np.dtype("float32")), whole), write, made("add", (g, h), out)]
    left = without_gradients(Program((g, h), {}, {}, steps, (whole, out)), [h])
    assert [i.name for i in left.instructions] == ["zeros", ".setitem"] and left.outputs == (whole, g)


@pytest.mark.parametrize(
    "steps",
    [
        lambda g, h: [made("exp", (h,), value(2))],
        lambda g, h: [made("add", (h, value(9, (1, 3))), value(2))],
        lambda g, h: [made("add", (h, value(9, strides=(4, 8))), value(2))],
        lambda g, h: [made("add", (h, 1.0), value(2))],
        lambda g, h: [made("add", (g, 1.0), value(2), written=(h,))],
        lambda g, h: [made("add", (g, h), value(2)), made("negative", (g,), value(3), written=(g,))],
        lambda g, h: [made("add", (g, h), value(2)), Instruction("add", (g, g), {"out": (g,)}, (), (g,))],
        lambda g, h: [made("concatenate", ([g, h],), value(2, (4, 3)))],
        lambda g, h: [Instruction("kernel.vjp", (value(8), g, h), {"wanted": {}}, (value(2),))],
        lambda g, h: [made("divide", (1.0, h), value(2))],
        lambda g, h: [made("divide", (g, h), value(2))],
        lambda g, h: [Instruction("sum", (h,), {"initial": 1.0}, (value(2),))],
        lambda g, h: [made("take", (g, h), value(2))],
        lambda g, h: (lambda y: [made("empty", ((2, 3),), y),
                                 Instruction("multiply", (h, g), {"out": (y,)}, (), (y,))])(value(2)),
    ],
)
def test_programs_that_need_the_zeros(steps):
    g, h = value(0), value(1)
    assert without_gradients(Program((g, h), {}, {}, steps(g, h), (value(2),)), [h]) is None


ZEROS = {
    "multiply": lambda g, h: (g, h), "matmul": lambda g, h: (h, g), "divide": lambda g, h: (h, g),
    ".T": lambda g, h: (h,), "cumsum": lambda g, h: (h, 0), "concatenate": lambda g, h: ([h, h],),
    "take": lambda g, h: (h, g), ".getitem": lambda g, h: (h, (0, g)), "subtract": lambda g, h: (h, h),
}


@pytest.mark.parametrize("name", ZEROS)
def test_what_is_zero_by_the_table_of_functions(name):
    g, h, y, last = value(0), value(1), value(2), value(3)
    steps = [made(name, ZEROS[name](g, h), y), made("exp", (g,), last)]
    left = without_gradients(Program((g, h), {}, {}, steps, (y, last)), [h])
    assert [i.name for i in left.instructions] == ["exp"] and left.outputs == (None, last)


class Allocations(memory.MemoryHook):
    def __init__(self):
        self.sizes = []

    def malloc_preprocess(self, device_id, size, mem_size):
        self.sizes.append(size)


class Model(nn.Module):
    """The forward pass of nanoGPT, which returns logits that the training loop drops."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(64, 128)
        self.norm, self.first, self.second = nn.LayerNorm(128), nn.Linear(128, 512), nn.Linear(512, 128)
        self.head = nn.Linear(128, 64, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens, targets):
        x = self.table(tokens)
        x = x + self.second(F.gelu(self.first(self.norm(x))))
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, 64), targets.view(-1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_compiled_module_makes_no_more_arrays_than_eager(fake_cuda, dtype):
    """On a GPU each array is a kernel; zeros for the logits, and the sum with them, were 10 % of a step."""
    found = []
    for compiled in (False, True):
        mytorch.manual_seed(0)
        model = Model().to("cuda")
        call, optimizer = mytorch.compile(model) if compiled else model, optim.AdamW(model.parameters())
        tokens = mytorch.arange(256, device="cuda").reshape(4, 64) % 64
        for _ in range(3):
            with Allocations() as made:
                with mytorch.autocast("cuda", dtype=dtype):
                    loss = call(tokens, tokens)[1]
                loss.backward()
            optimizer.step()
        gradients = [p.grad.cpu().numpy() for p in model.parameters()]
        found.append((loss.item(), gradients, len(made.sizes), sum(made.sizes)))
    (loss, gradients, count, size), (our_loss, ours, our_count, our_size) = found
    assert our_loss == loss
    for got, wanted in zip(ours, gradients, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5)
    assert our_count <= count and our_size <= size
