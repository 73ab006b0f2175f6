"""Compiling itself: what it says of a kernel is true. test_kernels.py runs it in a process of its own."""

import numpy as np
import pytest
import triton
import triton.language as tl
from triton.runtime import driver

from mytorch.nn.fused_ops.triton import available, why_not
from mytorch.nn.fused_ops.triton.chips import CHIPS
from mytorch.nn.fused_ops.triton.launch import chip, launch
from mytorch.nn.fused_ops.triton.tune import tuned
from tests.triton.compile import compiling


@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def product(x_ptr, y_ptr, out_ptr, n, N: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((N, N), tl.float32)
    for step in range(0, n, K):
        x = tl.load(x_ptr + i[:, None] * n + k[None, :] + step)
        total = tl.dot(x, tl.load(y_ptr + (k[:, None] + step) * N + i[None, :]), total)
    tl.store(out_ptr + i[:, None] * N + i[None, :], total)


X = np.arange(1024, dtype="float32")


@pytest.mark.parametrize("capability", CHIPS)
def test_nothing_runs(capability):
    x, before = X.copy(), driver._active
    with compiling(capability) as reports:
        launch(double, (4,), x, x.size, BLOCK=256, num_warps=2)
        assert chip() == CHIPS[capability] and available()
    np.testing.assert_array_equal(x, X)
    (report,) = reports
    assert report.kernel == "double" and report.capability == capability
    assert report.signature == (("x_ptr", "*fp32:16"), ("n", "i32:16"))
    assert dict(report.config) == {"BLOCK": 256, "num_warps": 2}
    assert 8 <= report.registers <= 40 and report.spilled == report.shared_memory == 0
    assert report.problems() == [] and driver._active is before and why_not()


def test_there_is_one_report_of_a_kind():
    with compiling(90) as reports:
        for n in (1024, 512, 1000, 1001):  # divisible by 16, or not
            launch(double, (4,), X, n, BLOCK=256)
        assert len(reports) == 2
        launch(double, (4,), X.astype("float16"), 1024, BLOCK=256)
        launch(double, (4,), X[1:], 512, BLOCK=256)
        kinds = [dict(report.signature) for report in reports]
    assert kinds == [
        {"x_ptr": "*fp32:16", "n": "i32:16"}, {"x_ptr": "*fp32:16", "n": "i32"},
        {"x_ptr": "*fp16:16", "n": "i32:16"}, {"x_ptr": "*fp32", "n": "i32:16"},
    ]
    with compiling(90) as again:
        launch(double, (4,), X, 1024, BLOCK=256)
    assert again == reports[:1]


def test_every_configuration_is_compiled():
    configs = [{"BLOCK": b, "num_warps": w} for b in (256, 512) for w in (1, 4)]
    with compiling(80) as reports:
        launch(tuned(configs)(double), (1,), X, X.size)
    assert [dict(r.config) for r in reports] == configs


@triton.jit
def normalize(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(x_ptr + i, x / tl.sum(x, axis=0))


def test_what_is_spilled_is_a_problem():
    with compiling(90) as reports:
        launch(normalize, (1,), X, BLOCK=16384, num_warps=1)  # 512 numbers for each thread
        launch(normalize, (1,), X, BLOCK=16384, num_warps=16)
    assert reports[0].spilled > 0 and reports[0].problems() == [f"{reports[0].spilled} bytes spilled"]
    assert reports[1].problems() == []


def test_too_much_shared_memory_is_a_problem_of_the_smaller_gpu():
    args = [np.zeros((128, 1024), "float16")] * 2 + [np.zeros((128, 128), "float32"), 1024]
    found = {}
    for capability in (80, 90):
        with compiling(capability) as reports:
            launch(product, (1,), *args, N=128, K=64, num_warps=8, num_stages=7)
        found[capability] = (reports[0].shared_memory, reports[0].problems())
    used = found[80][0]
    assert found[80][1] == [f"{used} bytes of shared memory, at most {163 * 1024}"]
    assert found[90][0] >= used and found[90][1] == []


def test_other_gpus_are_refused():
    with pytest.raises(ValueError, match="is for 80, 90, 100, got 75"), compiling(75):
        pass


def test_a_kernel_that_cannot_be_compiled_is_an_error():
    with compiling(90) as reports, pytest.raises(triton.CompilationError):
        launch(double, (1,), X, 1024, BLOCK=100)
    assert reports == []
