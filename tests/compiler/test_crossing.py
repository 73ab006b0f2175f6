"""What crosses from one loop over the batch to a later one: stored where it is narrow, or computed again."""

import itertools
from collections import Counter

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import mytorch
from mytorch import nn
from mytorch.compiler import capture
from mytorch.compiler.parts.chunking import run_parts
from mytorch.compiler.parts.crossing import PRICES, STORE, _cost_of
from mytorch.compiler.parts.minimum_cut import Network
from mytorch.compiler.parts.stages import Stages
from mytorch.nn import functional as F

X = mytorch.randn(1000, 64)
DOWN, UP, SQUARE = mytorch.randn(256, 4), mytorch.randn(4, 256), mytorch.randn(64, 256) / 16
STATE = mytorch.zeros(64)


def deviation(wide):
    """The statistic of the batch separates two loops, which both take `wide`."""
    return ((wide - wide.mean(0)) ** 2).sum(1)


def products(x):
    return deviation(((x @ SQUARE).tanh() @ DOWN @ UP).exp())


def elements(x):
    return deviation((x.exp().sum(1, keepdim=True) + UP[0]).cos() * 2)


def of_whole(x):
    """The array that `cumsum` makes isn't used again, unless the later loop computes again from it."""
    return deviation(x.cumsum(0)[:, :1] * UP[0])


def late(x):
    """What only the later loop takes runs there."""
    return x.exp() * x.sum(0)


def written(x):
    y = x * STATE
    total = y.sum(0)
    STATE.add_(1)  # `y` can't be computed again from here on
    return y * total + STATE


def stored(stages):
    """The shapes of what the first loop has stored for the second one."""
    (first, _) = [k for k, stage in enumerate(stages.all) if stage.is_loop]
    return [x.shape for x in stages.crossings()[first] if stages.levels.dim_of(x) is not None]


def counts(stages, name):
    instructions = [i for stage in stages.all for i in stage.instructions if i.name == name]
    return len(instructions), len({*instructions})


@pytest.mark.parametrize(
    ("function", "limit", "shapes"),
    [
        (products, "500kB", [(1000, 4)]),
        (products, "45kB", []),
        (elements, "2MB", [(1000, 256)]),
        (elements, "500kB", [(1000, 1)]),
        (of_whole, "900kB", [(1000, 1)]),
    ],
)
def test_the_narrowest_values_cross(function, limit, shapes):
    with F.use_fused(False):
        program = capture(function, X)
        chunked = program.chunked(limit)
        want = program(X).numpy()
        np.testing.assert_allclose(chunked(X).numpy(), want, 2e-4, 2e-4 * want.max())
    stages = chunked._stages
    assert stored(stages) == shapes
    assert chunked.peak <= float(limit[:-2]) * {"MB": 1e6, "kB": 1e3}[limit[-2:]] < program.memory().peak
    assert chunked.peak == stages.peak(chunked.rows)


def test_what_crosses_is_shown():
    with F.use_fused(False):
        text = str(capture(products, X).chunked("500kB"))
    assert text.count("stored, 17.0 kB: ") == 2 and text.count("stored, ") == 2
    assert "float32[1000, 4] (16.0 kB), %" in text and "float32[256] (1.0 kB)\n" in text


def test_products_do_not_run_again():
    """A training step whose loss separates the forward and the backward pass."""
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 32), nn.Tanh(), nn.Linear(32, 3))

    def step(x):
        loss = F.cross_entropy(model(x), (x[:, 0] > 0).long())
        return loss, mytorch.autograd.grad(loss, list(model.parameters()))

    with F.use_fused(False):
        program = capture(step, X)
        chunked = program.chunked(program.memory().peak * 9 // 10)
        assert counts(chunked._stages, "matmul") == (8, 8)
        assert counts(Stages(program, PRICES[1]), "matmul") == (8, 8)
        assert counts(Stages(program, PRICES[1]), "tanh") == (3, 2)
        less = program.chunked("300kB")
        assert counts(less._stages, "matmul") == (10, 8)  # the logits were stored for the loss
        for a, b in zip(chunked(X)[1], less(X)[1], strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-4, 1e-6)


def test_nothing_runs_twice_where_all_is_stored():
    with F.use_fused(False):
        for function in (products, elements, of_whole, written, late):
            stages = Stages(capture(function, X), STORE)
            ran = Counter([i for stage in stages.all for i in stage.instructions])
            assert {i.name for i, count in ran.items() if count > 1} <= {".getitem"}  # views
    assert stored(stages) == []


@pytest.mark.parametrize("price", PRICES)
def test_what_was_written_to_is_not_read_again(price):
    with F.use_fused(False):
        STATE.fill_(2)
        stages = Stages(capture(written, X), price)
        y = run_parts(stages, [X.numpy()], 300, 1000)
        want = X.numpy() * 2 * (X.numpy() * 2).sum(0) + 3
    np.testing.assert_allclose(y.numpy(), want, 1e-3, 1e-3)
    assert stored(stages) == [(1000, 64)]


def test_errors_name_what_is_alive():
    with F.use_fused(False), pytest.raises(ValueError) as error:
        capture(lambda x: x.cumsum(0).cumsum(0), X).chunked("0.5MB")
    message = "no instruction can be cut along the batch; the whole needs 512.0 kB, the limit is 0.5MB; at %"
    assert message in str(error.value)
    with F.use_fused(False), pytest.raises(ValueError) as error:
        capture(lambda x: x.cumsum(0) * 2, X).chunked("300kB")
    message, alive = str(error.value).split(" these are alive: ")
    at = "at %4: float32[1, 64] = multiply(%2, 2)"
    assert message == f"<lambda>: a row at a time needs 512.3 kB, the limit is 300kB; {at}"
    whole = "float32[1000, 64] (256.0 kB)"
    assert alive == f"%2: {whole}, %4: {whole}, %4: float32[1, 64] (256 B)"


# The first path, 0 1 2 5, must give way to two others.
@hypothesis.example([(a, b, 1) for a, b in ((0, 3), (0, 1), (1, 4), (1, 2), (3, 2), (2, 5), (4, 5))])
@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=20)
)
def test_cuts_are_minimal(edges):
    """Of all ways to put the nodes on two sides, the returned one costs least, with the fewest nodes."""
    network = Network()
    for a, b, capacity in edges:
        network.add(a, b, capacity)

    def cost(behind):
        return sum([capacity for a, b, capacity in edges if a not in behind and b in behind])

    found = network.behind_cut(0, 5)
    sides = [{5, *inner} for n in range(5) for inner in itertools.combinations(range(1, 5), n)]
    assert 5 in found and 0 not in found
    assert (cost(found), len(found)) == min([(cost(side), len(side)) for side in sides])


def test_work_of_linear_algebra():
    """Like a product it takes longer than its bytes say, whatever its name is."""
    program = capture(lambda x: (mytorch.linalg.inv(x), x @ x, x.exp()), mytorch.eye(8).expand(6, 8, 8) * 2)
    stages, found = Stages(program, 1), {}
    for i in program.instructions:
        found[i.name] = _cost_of(stages, i, 1, {*program.instructions})
    assert found["linalg.inv"] == found["matmul"] == 64 * found["exp"]
