"""FLOPs from the shapes of what ran are those that are counted on meta tensors."""

import pytest

import mytorch
from mytorch.compiler import capture
from mytorch.models import GPT2, GPT2Config
from mytorch.profiler import record_function
from mytorch.stream import flops, record
from mytorch.stream.flops import product_flops
from mytorch.utils.flop_counter import FlopCounterMode


def gpt(device):
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 8}
    model = GPT2(GPT2Config(33, bias=False, **sizes)).to(device)
    return model, mytorch.zeros(2, 8, dtype=mytorch.int64, device=device)


def test_a_block_with_the_name_of_an_op_is_no_product():
    with record() as instructions:
        for name in ("outer", "linear", "einsum", "add"):
            with record_function(name):
                mytorch.ones(3).exp()
    assert [flops(i) for i in instructions] == [0] * 8


def test_of_elementwise_functions():
    x = mytorch.ones(2, 5, requires_grad=True)
    cases = (lambda: x + 1, 0), (lambda: x - x, 0), (lambda: x * x, 20), (lambda: x / x, 20)
    for function, backward in cases:
        with record() as instructions:
            function().backward(mytorch.ones(2, 5))
        assert [flops(i) for i in instructions if i.phase == "forward" and i.name != "ones"][0] == 10
        assert sum([flops(i) for i in instructions if i.phase == "backward"]) == backward


@pytest.mark.parametrize("backward", [False, True])
def test_of_a_gpt(backward):
    model, x = gpt("meta")
    with FlopCounterMode(display=False) as counter:
        loss = model(x).mean()
        if backward:
            loss.backward()
    model, x = gpt("cpu")
    with record() as instructions:
        loss = model(x).mean()
        if backward:
            loss.backward()
    assert sum(map(product_flops, instructions)) == counter.get_total_flops()


def test_of_a_program_that_was_captured():
    """NumPy's names count as those of the ops that call it, also where the result has a place."""

    def step(x, y):
        z = x * y - x / 2
        z[1:] += y[1:]
        return z @ y.mT

    x, y = mytorch.ones(4, 5), mytorch.ones(4, 5)
    with record() as eager:
        step(x, y)
    program = capture(step, x, y)
    with record() as recorded:
        program(x, y)
    assert sum(map(flops, eager)) == sum(map(flops, recorded)) == 3 * 20 + 15 + 2 * 4 * 5 * 4
