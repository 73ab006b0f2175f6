"""What all Triton kernels need of a GPU, compiled for three; test_kernels.py runs it in its own process."""

import os
import sys

import numpy as np
import pytest

from mytorch.nn.fused_ops.triton.chips import CHIPS
from tests.triton.cases import COMPILED, DTYPES, DTYPES_OF_ALL, FUNCTIONS
from tests.triton.compile import compiling
from tests.triton.harness import arguments, gradients, kernel

EVERYTHING = os.environ.get("MYTORCH_TEST_ALL") == "1"  # else for one chip: compiling takes minutes


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in COMPILED for dtype in DTYPES.get(name, DTYPES_OF_ALL)]
)
def test_resources(name, dtype):
    for row in COMPILED[name]:
        raws = arguments(name, row, dtype)
        for capability in CHIPS if EVERYTHING else [90]:
            with compiling(capability) as reports:
                call(name, raws)
            assert reports, "nothing was launched"
            for report in reports:
                print(report)
            assert not [(report, report.problems()) for report in reports if report.problems()]


def call(name, raws):
    """The kernel, and its backward; what they compute with doesn't matter."""
    result = kernel(name)(*raws)
    if name not in FUNCTIONS:
        result, vjp = result
        outputs = list(result) if isinstance(result, tuple) else [result]
        gradients(name, vjp, [np.empty_like(y, order="C") for y in outputs], len(raws))


def test_pytorch_is_not_imported():
    assert "torch" not in sys.modules
