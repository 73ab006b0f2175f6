"""Programs of functions that write to their arguments: the loop that computes a value also stores it."""

from random import Random

import numpy as np
import pytest

import mytorch
from mytorch.compiler import Instruction, capture
from mytorch.compiler.memory.plan import planned
from mytorch.compiler.passes import functionalize
from mytorch.nn import functional as F


def adamw(p, m, v, g, size):
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.mul_(0.99).sub_(size * m / (v.sqrt() + 1e-8))


def chain(p, m, v, g, size):
    p += g
    p *= 2
    g.copy_(p.exp())
    return p, g.sum()


def exchange(p, m, v, g, size):
    t = p.clone()
    p.copy_(m)
    m.copy_(t)
    v.copy_(m)


def copy_returned(p, m, v, g, size):
    y = p * 2
    z = mytorch.zeros_like(p)
    z.copy_(y)
    m.copy_(y)
    return y, z, m


def changed_behind(p, m, v, g, size):
    y = p * 2
    m.copy_(y)
    y[0] = 7
    v.copy_(y)


def views(p, m, v, g, size):
    before, row = p.T * 2, m[0]
    p += before.T
    m *= 2
    return row + 1, p


def part(p, m, v, g, size):
    p *= 2
    p[1] = 5
    p += m


def read_between(p, m, v, g, size):
    y = p.exp() + g
    z = y @ p
    p.copy_(y)
    return (z,)


def twice(p, m, v, g, size):
    y = m * g + 1
    m.copy_(y)
    v.copy_(y)


def kept(p, m, v, g, size):
    y = m * g + 1
    m.copy_(y)
    return y.T, y * 2


# How many results each loop stores in the memory of arguments, and the writes that are left.
CASES = [
    (adamw, [3], 0), (chain, [2], 0), (exchange, [2], 1), (copy_returned, [0], 1), (changed_behind, [0], 3),
    (views, [2], 0), (part, [], 3), (read_between, [0], 1), (twice, [1], 1), (kept, [0], 1),
]


def arguments():
    generator = np.random.default_rng(0)
    arrays = [np.abs(generator.standard_normal((6, 6), np.float32)) for _ in range(4)]
    return [*map(mytorch.from_numpy, arrays), mytorch.tensor(0.1)]


def check(function, source=""):
    """Compares results, arguments and what shares memory with eager, twice; returns the program."""
    with F.use_fused(False):
        program = capture(function, *arguments()).optimized()
        ours, theirs = arguments(), arguments()
        for _ in range(2):
            results = [f(*given) or () for f, given in ((program, ours), (function, theirs))]
            for a, b in zip((*results[0], *ours), (*results[1], *theirs), strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-4, 1e-5, err_msg=source)
        shared = [_shared((*r, *given)) for r, given in zip(results, (ours, theirs), strict=True)]
        assert shared[0] == shared[1], source
    return program


@pytest.mark.parametrize(("function", "places", "writes"), CASES, ids=[case[0].__name__ for case in CASES])
def test_in_place(function, places, writes):
    instructions = planned(check(function))
    assert [len(i.kwargs["loop"].places) for i in instructions if i.name == "loop"] == places
    assert sum(i.name == ".setitem" for i in instructions) == writes


def _shared(tensors):
    """The pairs that share memory."""
    arrays = [x.numpy() for x in tensors]
    return [(a, b) for a in range(len(arrays)) for b in range(a) if np.shares_memory(arrays[a], arrays[b])]


WRITES = [
    "{x}.mul_({y})", "{x}.lerp_({y}, 0.3)", "{x}.copy_({y})", "{x}.copy_({y}.T)", "{x}.copy_({x}.tanh())",
    "{x}.copy_({y} @ {z} * 0.1)", "{x}[1:3] = {y}[0:2] * 2", "{x}.zero_()", "{x}.sub_({y}.sum(0))",
    "{new} = {x}.clone()", "{new} = {x}.T", "{new} = {x}.view(36).view(6, 6)", "{new} = {x} * {y} + 1",
    "{new} = {x}.softmax(-1) + {y}", "{new} = {x} @ {y} * 0.1", "{new} = mytorch.zeros(6, 6); {new} += {x}",
]


def random_writes(seed):
    """A function that writes to its arguments, to what it makes of them, and to views; and its source."""
    random, names, lines = Random(seed), ["p", "m", "v", "g"], []
    for k in range(random.randint(2, 8)):
        x, y, z = random.choices(names, k=3)
        write = random.choice(WRITES)
        lines.append(write.format(x=x, y=y, z=z, new=f"t{k}"))
        names += [f"t{k}"] if "{new}" in write else []
    lines.append(f"return {', '.join(random.choices(names, k=random.randint(1, 3)))},")
    source, namespace = "\n    ".join(["def function(p, m, v, g, size):", *lines]), {"mytorch": mytorch}
    exec(source, namespace)
    return namespace["function"], source


def test_random_writes():
    placed = 0
    for seed in range(80):
        function, source = random_writes(seed)
        program = check(function, source)
        placed += any([i.name == "loop" and i.kwargs["loop"].places for i in planned(program)])
    assert placed > 20


def test_the_formula_of_adamw_is_one_loop_in_place():
    program = capture(adamw, *arguments()).optimized()
    assert [i.name for i in planned(program)] == ["loop"]
    assert "np.empty" not in program.source() and program.memory().peak == 0


def test_an_object_finds_what_was_written_before():
    program = capture(lambda p, g: (p.add_(g).mul_(2), None)[1], *arguments()[:2])
    names = [i.name for i in program.instructions]
    assert names == ["add", ".setitem", "multiply", ".setitem"]
    assert [i.name for i in functionalize(program).instructions] == ["add", "multiply", ".setitem"]
    program.instructions.insert(2, Instruction("host.call", (), {}, ()))
    assert [i.name for i in functionalize(program).instructions] == [*names[:2], "host.call", *names[2:]]


def test_beside_an_optimizer():
    model = mytorch.nn.Linear(2, 2)
    optimizer = mytorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        loss = model(x).square().sum()
        loss.backward()
        with mytorch.no_grad():
            model.bias.mul_(0.5)
            model.bias += 1
        optimizer.step()
        optimizer.zero_grad()
        return loss

    x, found = mytorch.ones(1, 2), []
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for function in (step, mytorch.compile(step)):
        model.load_state_dict(state)
        optimizer.state.clear()
        found.append([function(x).item() for _ in range(3)])
    np.testing.assert_allclose(*found, 1e-5)


def test_a_read_only_array_is_not_written_to():
    array = np.ones((6, 6), np.float32)
    array.flags.writeable = False
    program = capture(adamw, *arguments()).optimized()
    with pytest.raises(ValueError, match="read-only"):
        program(array, *arguments()[1:])
