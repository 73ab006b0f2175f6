"""Triton's kernels of optimizers; test_updates.py runs this twice, interpreted and compiled."""

import itertools
import os
import sys

import ml_dtypes
import numpy as np
import pytest

from mytorch import Tensor
from mytorch.nn.fused_ops.triton import adam, lion, sgd
from mytorch.optim.update import Chunk
from tests.triton import interpreter
from tests.triton.compile import compiling
from tests.triton.results import save
from tests.triton.update_cases import CASES, HALF

if os.environ.get("TRITON_INTERPRET") == "1":
    interpreter.install()

interpreted = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="compiled")
compiled = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="interpreted")

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LIMITS = {"float32": (2e-6, 1e-7), "float16": (1e-3, 1e-4), "bfloat16": (8e-3, 1e-3)}

KERNELS = {"adam": adam, "sgd": sgd, "lion": lion}


class Run:
    """The kernel of a case and, in float64, the formula that its optimizer has in NumPy."""

    def __init__(self, case, dtype, size):
        kind, options = CASES[case]
        self.optimizer = kind([Tensor(np.zeros(1, np.float32), requires_grad=True)], **options)
        self.options = self.optimizer.param_groups[0]
        self.names = self.optimizer.state_names(self.options)
        self.kernel = KERNELS[self.optimizer.kernel]
        self.random = np.random.default_rng(0)
        self.data = self.random.standard_normal(size).astype(DTYPES[dtype])
        self.state = {name: np.zeros(size, np.float32) for name in self.names}
        self.wide = self.data.astype(float)
        self.wide_state = {name: np.zeros(size) for name in self.names}
        self.dtype, self.count = dtype, np.zeros(1, np.float32)
        self.on_the_device = bool(self.optimizer.state_scalars(self.options) and self.names)

    def gradient(self):
        return self.random.standard_normal(self.data.size).astype(self.data.dtype)

    def step(self, number, grad, factors=(None, None, None, 1.0, True), lr=None):
        self.count += 1
        options = self.options if lr is None else {**self.options, "lr": lr}
        step = self.count if self.on_the_device else number
        self.kernel.update(self.data, grad, self.state, step, options, factors)

    def step_in_float64(self, number, grad):
        scratch, spare = np.zeros((2, grad.size))
        chunk = Chunk(self.wide, grad.astype(float), self.wide_state, scratch, spare)
        with np.errstate(all="ignore"):
            self.optimizer.update(chunk, number, self.options)

    def compare(self):
        rtol, atol = LIMITS[self.dtype]
        np.testing.assert_allclose(self.data.astype(float), self.wide, rtol, atol * 10)
        for name in self.names:
            np.testing.assert_allclose(self.state[name], self.wide_state[name], rtol * 10, atol, err_msg=name)


@interpreted
@pytest.mark.parametrize(("case", "dtype"), [*itertools.product(CASES, ["float32"]), *HALF])
def test_steps(case, dtype):
    run = Run(case, dtype, 2500)  # two blocks and a part
    inputs, outputs = [], []
    for number in range(1, 4):
        g = run.gradient()
        inputs += [run.data.copy(), g.copy()]
        run.step(number, g)
        outputs.append(run.data.copy())
        np.testing.assert_array_equal(g, inputs[-1])
        run.step_in_float64(number, g)
        run.wide[:] = run.wide if dtype == "float32" else run.data.astype(float)  # each step from one place
        run.compare()
    save(case, 0, dtype, inputs=inputs, outputs=outputs)


@interpreted
@pytest.mark.parametrize("case", ["Adam", "SGD momentum", "Lion"])
def test_gradients_are_unscaled_clipped_and_skipped(case):
    run = Run(case, "float32", 1030)
    for number in range(1, 5):
        g = run.gradient()
        scaled, scale = 1024 * g, np.array([1024], np.float32)
        total = np.array([2048 * number], np.float32)
        given, stores = scaled.copy(), number % 2 == 0
        factors = scale, np.zeros(1, np.float32), total, 5.0, stores
        run.step(number, scaled, factors, np.array([0.05], np.float32))
        np.testing.assert_array_equal(scaled, g if stores else given)  # unscaled, and not clipped
        run.options["lr"] = 0.05
        run.step_in_float64(number, g * min(1, 5 / (2 * number + 1e-6)))
        run.compare()
    kept = [a.copy() for a in (run.data, *run.state.values())]
    bad = np.full(1030, np.inf, np.float32)
    run.step(5, bad, (scale, np.array([2.0], np.float32), total, 5.0, True))
    for now, before in zip((run.data, *run.state.values()), kept, strict=True):
        np.testing.assert_array_equal(now, before)
    assert np.isinf(bad).all()


@interpreted
def test_corrections_are_exact_however_many_steps():
    """The first step of Adam is lr sign(g), and so is every other one for a constant gradient."""
    for betas in ((0.9, 0.999), (0.5, 0.99999), (0.0, 0.5)):
        for step in (1, 2, 10, 1000, 100000):
            data, ones = np.zeros(4, np.float32), np.ones(4, np.float32)
            b1, b2 = (1 - beta**step for beta in betas)
            state = {"exp_avg": ones * (b1 - 1 + betas[0]) / (betas[0] or 1),
                     "exp_avg_sq": ones * (b2 - 1 + betas[1]) / betas[1]}
            state = {name: a.astype(np.float32) for name, a in state.items()}
            options = {"lr": 1.0, "betas": betas, "eps": 0.0, "weight_decay": 0, "maximize": False,
                       "decoupled_weight_decay": True}
            count = np.array([step], np.float32)
            adam.update(data, ones.copy(), state, count, options, (None, None, None, 1.0, True))
            np.testing.assert_allclose(data, -1, rtol=3e-5 if step == 1 else 1e-4, err_msg=f"{betas} {step}")


@interpreted
@pytest.mark.parametrize("case", ["Adam", "AdamW amsgrad", "SGD momentum", "Lion"])
def test_nan_and_inf_come_out_as_from_numpy(case):
    run = Run(case, "float32", 8)
    g = np.array([np.nan, np.inf, -np.inf, 0, 1e30, 1e-30, 1, -1], np.float32)
    for number in (1, 2):
        run.step(number, g.copy())
        with np.errstate(all="ignore"):
            chunk_state = run.wide_state
            run.step_in_float64(number, g)
        np.testing.assert_array_equal(np.isnan(run.data[:4]), np.isnan(run.wide[:4]))
        for name in run.names:
            np.testing.assert_array_equal(np.isnan(run.state[name][:4]), np.isnan(chunk_state[name][:4]))


@interpreted
def test_nothing_to_update():
    for case in ("Adam", "SGD", "Lion"):
        run = Run(case, "float32", 0)
        run.step(1, run.gradient())  # a grid without programs would be an error
        assert run.data.shape == (0,) and run.count == 1


@compiled
@pytest.mark.parametrize(
    ("case", "dtype", "capability"),
    [("AdamW amsgrad", "float32", 90), ("SGD nesterov", "float32", 90), ("Lion", "float32", 90),
     ("Adam", "float16", 80), ("Adam", "bfloat16", 100)],
)
def test_resources(case, dtype, capability):
    run, number = Run(case, dtype, 1 << 20), np.ones(1, np.float32)
    with compiling(capability) as reports:
        run.step(2, run.gradient())
        run.step(2, run.gradient(), (number, number, number, 1.0, True), number)
    assert len(reports) == 2
    assert not [(report, report.problems()) for report in reports if report.problems()]


def test_pytorch_is_not_imported():
    assert "torch" not in sys.modules
