"""What is read from, and written to, parts of arrays in programs."""

import numpy as np
import pytest

import mytorch
from mytorch.compiler import capture
from mytorch.compiler.passes import functionalize, simplify_slices
from mytorch.nn import functional as F


def gradient(function):
    def step(x):
        return mytorch.autograd.grad((function(x) ** 2).sum(), [x])[0]

    return step


def rows(x):
    return sum([(k + 1) * x[k : k + 2] for k in range(4)])


def kept(x):
    """A part that is also a result: nothing may be added to it in place."""
    z = mytorch.zeros(6, 10)
    z[1:3] = x[1:3] * 2
    first = x + z
    w = mytorch.zeros(6, 10)
    w[3:] = x[3:] * 3
    return first, first + w, z, w + w


def written_again(x):
    z = mytorch.zeros(6, 10)
    z[1:3] = x[1:3]
    y = x + z
    z[2] = 5.0
    return y + z, y


def read_before(x):
    z = mytorch.zeros(6, 10)
    y = x + z
    z[:] = x * 2
    return y + z


def value_changes(x):
    z, v = mytorch.zeros(6, 10), x * 2
    z[1:3] = v[1:3]
    v[2] = 3.0
    return (x + x) + z + v


# The functions, and how many arrays of zeros are left.
FUNCTIONS = {
    "rows": (gradient(rows), 1),
    "chunks": (gradient(lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1]), None),
    "the whole": (gradient(lambda x: x[:6] * x[:, :10]), 0),
    "nothing": (lambda x: mytorch.cat([x[6:], x * 2, x[:0]]) + 1, 0),
    "kept": (kept, 2),
    "written again": (written_again, 1),
    "read before": (read_before, 1),
    "the value changes": (value_changes, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_is_computed(name):
    function, zeros = FUNCTIONS[name]
    mytorch.manual_seed(0)
    x = mytorch.randn(6, 10, requires_grad=name in ("rows", "chunks", "the whole"))
    with F.use_fused(False):
        program = capture(function, x).optimized()
        ours, want = program(x), function(x)
    for a, b in zip(*[y if isinstance(y, tuple) else (y,) for y in (ours, want)], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-5, 1e-6)
    if zeros is not None:
        assert [i.name for i in program.instructions].count("zeros") == zeros, str(program)


def test_parts_are_added_in_place():
    x = mytorch.randn(6, 10, requires_grad=True)
    program = functionalize(capture(gradient(rows), x))
    before = [i.name for i in program.instructions].count("zeros")
    found = simplify_slices(program)
    writes = [i for i in found.instructions if i.written and i.name == "add"]
    assert before == 4 and len(writes) == 3 and len({i.written for i in writes}) == 1
