"""Convolutions, unfold and fold on a GPU (the strict stand-in for CuPy), as on the CPU, without waiting."""

import numpy as np
import pytest

import mytorch
from mytorch.nn import functional as F
from mytorch.nn.functional import im2col
from tests.every import every
from tests.nn.functional.test_convolution import CASES, FOLDS
from tests.on_device import DEVICE, LAYOUTS, check, never_waiting, tensor

rng = np.random.default_rng(0)


def numbers(shape, dtype):
    return rng.uniform(-1, 1, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_as_on_the_cpu(fake_cuda, case, dtype):
    name, shapes, kwargs = CASES[case]
    check(lambda _, *xs: getattr(F, name)(*xs, **kwargs), *(numbers(s, dtype) for s in shapes))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "contiguous"])
@pytest.mark.parametrize("case", ["all", "t groups"])
def test_by_parts_and_in_other_layouts(fake_cuda, case, layout, monkeypatch):
    monkeypatch.setattr(im2col, "GPU_MEMORY", 500)
    name, shapes, kwargs = CASES[case]
    inputs = [numbers(s, "float32") for s in shapes]
    check(lambda _, *xs: getattr(F, name)(*xs, **kwargs), *inputs, layout=layout)


@pytest.mark.parametrize("case", FOLDS)
def test_unfold_and_fold(fake_cuda, case):
    size, kernel_size, kwargs = FOLDS[case]

    def there_and_back(_, x):
        columns = F.unfold(x, kernel_size, **kwargs)
        return columns, F.fold(columns * columns, size, kernel_size, **kwargs)

    check(there_and_back, numbers((2, 3, *size), "float32"))


def test_they_dont_wait_for_the_gpu(fake_cuda, monkeypatch):
    with never_waiting(monkeypatch, fake_cuda):
        for name, shapes, kwargs in CASES.values():
            inputs = [tensor(numbers(s, "float32"), DEVICE, grad=True) for s in shapes]
            y = getattr(F, name)(*inputs, **kwargs)
            y.backward(mytorch.ones_like(y.detach()))
            assert every(x.grad.device == DEVICE for x in inputs)
