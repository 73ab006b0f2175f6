"""Kernels in programs are taken apart into launches: the same numbers, without the Python around them."""

import re
import threading

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.backends import threads
from mytorch.compiler.codegen import lowering
from mytorch.core.tensor import raw_of
from mytorch.nn import functional as F
from mytorch.nn.functional.composite import REGISTRY, Unsupported
from mytorch.optim import AdamW

pytestmark = pytest.mark.skipif(bool(threads.why_serial()), reason=f"no pool: {threads.why_serial()}")


def array(x):
    return raw_of(x).copy()


def normal(*shape, seed=0):
    return mytorch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


# Of each kernel: arguments that are tensors, by their shapes, and the call.
KERNELS = {
    "linear": ([(6, 80, 64), (96, 64), (96,)], F.linear),
    "linear_activation": ([(500, 64), (96, 64), (96,)], lambda x, w, b: F.linear_activation(x, w, b, "gelu")),
    "relu": ([(500, 64), (96, 64)], lambda x, w: F.linear_activation(x, w, None, "relu")),
    "layer_norm": ([(300, 64), (64,), (64,)], lambda x, w, b: F.layer_norm(x, (64,), w, b)),
    "layer_norm_plain": ([(300, 64)], lambda x: F.layer_norm(x, (64,))),
    "add_layer_norm": (
        [(300, 64), (300, 64), (64,)], lambda x, y, w: sum(F.add_layer_norm(x, y, (64,), w))
    ),
    "rms_norm": ([(300, 64), (64,)], lambda x, w: F.rms_norm(x, (64,), w)),
    "group_norm": ([(20, 8, 11, 11), (8,)], lambda x, w: F.group_norm(x, 4, w)),
    "self_attention": ([(2, 70, 96)], lambda x: F.self_attention(x, 2, is_causal=True)),
    "self_attention_many": ([(6, 40, 96)], lambda x: F.self_attention(x, 2)),
    "scaled_dot_product_attention": ([(2, 4, 40, 32)] * 3, F.scaled_dot_product_attention),
    "gelu": ([(300, 64)], F.gelu),
    "swiglu": ([(300, 128)], F.swiglu),
    "geglu": ([(300, 128)], F.geglu),
    "lstm_steps": (
        [(90, 64), (10, 16), (10, 16), (64, 16)],
        lambda x, *states: mytorch.cat(F.lstm_steps(x, *states, None, (10,) * 8 + (5, 5), True)),
    ),
    "matmul": ([(7, 100, 64), (64, 80)], mytorch.matmul),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_step_is_launches_and_gives_the_same_numbers(name):
    shapes, call = KERNELS[name]
    params = [mytorch.nn.Parameter(normal(*shape, seed=k)) for k, shape in enumerate(shapes)]

    def step(weight):
        for p in params:
            p.grad = None
        y = call(*params)
        (y * weight).sum().backward()
        return y

    weight = normal(*call(*params).shape, seed=9)
    expected = [array(step(weight)), *[array(p.grad) for p in params]]
    program = mytorch.capture(step, weight)
    source = program.source()
    assert "kernel.vjp" in str(program) or name == "matmul"
    assert "vjp(" not in source and "saved" not in source
    assert re.search(r"^    (?!host)[a-z]+_[a-z_]+\(", source, re.MULTILINE)
    for _ in range(2):
        found = [array(program(weight)), *[array(p.grad) for p in params]]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def gpt_step(seed=0):
    mytorch.manual_seed(seed)
    block = mytorch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
    optimizer = AdamW(block.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        loss = (block(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return block, step


def test_gradients_are_computed_in_the_flat_buffer_and_old_ones_kept():
    x, (block, step), (other, compiled) = normal(4, 48, 64), gpt_step(), gpt_step()
    compiled, weights = mytorch.compile(compiled), [p for p in other.parameters() if p.ndim == 2]
    for _ in range(3):
        before = [p.grad for p in weights]
        copies = [None if g is None else array(g) for g in before]
        np.testing.assert_allclose(array(compiled(x)), array(step(x)), rtol=1e-5)
        for p, g, copy in zip(weights, before, copies, strict=True):
            assert p.grad_slot.holds(p.grad)
            assert g is None or np.array_equal(array(g), copy)
    for p, q in zip(block.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(array(p.grad), array(q.grad), rtol=1e-4, atol=1e-6)


def test_a_weight_of_two_layers_gets_the_sum():
    w = mytorch.nn.Parameter(normal(64, 64))

    def step(x):
        w.grad = None
        F.linear(F.linear(x, w), w).sum().backward()

    x = normal(300, 64, seed=1)
    step(x)
    expected = array(w.grad)
    program = mytorch.capture(step, x)
    program(x)
    np.testing.assert_array_equal(array(w.grad), expected)


def test_arrays_of_other_layouts():
    weight = mytorch.nn.Parameter(normal(64, 96).T)  # its rows aren't contiguous
    frozen = array(normal(300, 64, seed=2))
    frozen.flags.writeable = False

    def call(x):
        return F.linear(x, weight)

    for x in (mytorch.from_numpy(frozen), normal(64, 300, seed=3).T, normal(600, 64, seed=4)[::2]):
        program = mytorch.capture(call, x).optimized()
        np.testing.assert_array_equal(array(program(x)), array(call(x)))


def test_other_settings_later():
    x, weight = normal(400, 64), mytorch.nn.Parameter(normal(96, 64, seed=1))
    program = mytorch.capture(lambda x: F.linear_activation(x, weight, None, "gelu"), x)
    expected, before = array(program(x)), mytorch.get_num_threads()
    launched = []
    mytorch.set_num_threads(1)
    try:
        np.testing.assert_allclose(array(program(x)), expected, rtol=1e-4, atol=1e-5)
        assert "True, 400)" in program.source()  # one part
    finally:
        mytorch.set_num_threads(before)
    kernel = REGISTRY["linear_activation"].kernels["cpu"]
    forward = kernel.forward
    try:
        kernel.forward = lambda *args: launched.append(args) or forward(*args)
        with F.use_fused(False):
            np.testing.assert_allclose(array(program(x)), expected, rtol=1e-4, atol=1e-5)
        assert not launched  # the manual variant
        program(x)
        assert len(launched) == 1  # on tracing arrays
        program(x)
        assert len(launched) == 1
    finally:
        kernel.forward = forward


def test_a_kernel_that_cannot_be_taken_apart_runs_as_it_is(monkeypatch):
    forward = REGISTRY["layer_norm"].kernel("cpu").forward

    def reads(x, *args):
        assert np.isfinite(np.asarray(x)).all()
        return forward(x, *args)

    x = normal(300, 64)
    program = mytorch.capture(lambda x: F.gelu(F.layer_norm(x, (64,))), x)
    expected = array(program(x))
    monkeypatch.setattr(REGISTRY["layer_norm"].kernels["cpu"], "forward", reads)
    other = mytorch.capture(lambda x: F.gelu(F.layer_norm(x, (64,))), x)
    assert "= layer_norm(" in other.source() and "= gelu(" not in other.source()
    np.testing.assert_array_equal(array(other(x)), expected)


def test_a_kernel_that_is_being_compiled_is_taken_apart_when_it_is_there(monkeypatch):
    def missing(demanded=False):
        raise Unsupported("its kernels are being compiled")

    composite, x = REGISTRY["gelu"], normal(300, 64)
    kernels = {**composite.kernels, "cpu": composite.kernel("cpu")}
    monkeypatch.setattr(composite, "kernels", {})
    monkeypatch.setitem(composite.suppliers, "cpu", missing)
    program = mytorch.capture(F.gelu, x)
    manual = array(program(x))
    run = program.executable()._run
    program(x)
    assert program.executable()._run is run
    monkeypatch.setattr(composite, "kernels", kernels)
    np.testing.assert_allclose(array(program(x)), manual, rtol=1e-5, atol=1e-6)
    assert program.executable()._run is not run
    assert "gelu_gelu(" in program.source()


def test_what_a_later_backward_pass_needs_is_kept():
    model = mytorch.nn.Sequential(mytorch.nn.Linear(64, 96), mytorch.nn.LayerNorm(96))
    compiled, x = mytorch.compile(model), normal(300, 64).requires_grad_()
    weight = normal(300, 96, seed=1)
    (model(x) * weight).sum().backward()
    expected, x.grad = array(x.grad), None
    (compiled(x) * weight).sum().backward()
    np.testing.assert_array_equal(array(x.grad), expected)


@pytest.mark.parametrize("layer", [nn.Linear(256, 64), nn.LayerNorm(256), nn.GELU()], ids=str)
def test_a_gradient_with_a_graph_of_its_own(layer):
    def penalty(x):
        x = x.detach().requires_grad_()
        (slope,) = mytorch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        layer.zero_grad()
        (slope.norm(dim=1) - 1).square().mean().backward()
        return mytorch.tensor(x.grad)

    x = mytorch.randn(128, 256)
    expected, found = penalty(x), mytorch.compile(penalty, fullgraph=True)(x)
    assert mytorch.allclose(expected, found, rtol=1e-4, atol=1e-6)


def test_threads_may_run_a_program_at_once():
    weight = mytorch.nn.Parameter(normal(96, 64))
    program = mytorch.capture(lambda x: F.layer_norm(F.linear(x, weight), (96,)), normal(300, 64))
    inputs = [normal(300, 64, seed=k) for k in range(4)]
    expected, found = [array(program(x)) for x in inputs], [[] for _ in inputs]

    def run(k):
        found[k] = [array(program(inputs[k])) for _ in range(20)]

    workers = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for results, one in zip(found, expected, strict=True):
        assert len(results) == 20
        for result in results:
            np.testing.assert_array_equal(result, one)


def test_only_kernels_of_the_table_and_no_others():
    assert {*lowering.LOWERED} <= {*REGISTRY}
