"""Fixtures for all tests."""

import sys

import pytest

from mytorch.backends import cublas
from mytorch.random import _default, manual_seed
from tests import strict_cupy
from tests.strict_cupy.cublas import Cublas


@pytest.fixture(autouse=True)
def seeded():
    """Every test draws the same numbers in every run, with mytorch and with PyTorch, if that is loaded."""
    manual_seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def fake_cuda(monkeypatch):
    """`import cupy` gives the strict stand-in, with two GPUs and a cuBLAS; the value is that module."""
    cupy = strict_cupy.install(device_count=2)
    blas = cublas.Library(Cublas())
    monkeypatch.setattr(cublas, "library", lambda: blas)
    yield cupy
    strict_cupy.uninstall()
    for place in [place for place in _default if place != "cpu"]:
        del _default[place]  # its generator went with the stand-in


@pytest.fixture(params=["cpu", "cuda:0"])
def device(request):
    """Runs the test on the CPU, and on a GPU of the stand-in."""
    if request.param != "cpu":
        request.getfixturevalue("fake_cuda")
    return request.param
