"""
What the checks of collectives.py share: this rank, everyone's numbers, and comparisons.

A rank knows the numbers of all others, because each draws them in the same way.
"""

import json
import traceback
from pathlib import Path

import ml_dtypes
import numpy as np

import mytorch
import mytorch.distributed as dist

rank, size = dist.get_rank, dist.get_world_size
CHECKS = {}
bfloat16 = np.dtype(ml_dtypes.bfloat16)
ALL_DTYPES = [
    "float16", "float32", "float64", "complex64", "complex128", "bool",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", bfloat16,
]


def check(function):
    CHECKS[function.__name__] = function
    return function


def run_all(folder):
    """Run the checks in their order, and write what each found."""
    Path(folder, f"{rank()}.json").write_text(json.dumps(found_by_all()))


def found_by_all():
    """Run the checks in their order, and return what each found on this rank, "" if nothing."""
    found = {}
    for name, run in CHECKS.items():
        try:
            run()
            found[name] = ""
        except AssertionError:  # all ranks have communicated; any other error ends the job
            found[name] = traceback.format_exc()
    found["backend"] = dist.get_backend()
    return found


def numbers(of, shape=(3, 4), dtype="float32", seed=0):
    """What rank `of` has."""
    x = np.random.default_rng([seed, of]).integers(1, 6, shape)
    return (x % 2 if dtype == "bool" else x).astype(dtype)


def numbers_of_all(**how):
    return np.stack([numbers(of, **how) for of in range(size())])


def same(found, expected):
    """Equal in every bit, and in dtype and shape."""
    found = found.numpy() if isinstance(found, (mytorch.Tensor, mytorch.Array)) else found
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    np.testing.assert_array_equal(found, expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")
