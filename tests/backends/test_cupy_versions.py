"""What CuPy 13 and CuPy 14 do differently."""

import numpy as np
import pytest

from mytorch.backends import cublas
from mytorch.distributed.backends import nccl

CHARS = tuple(i * 37 % 256 - 128 for i in range(128))
ID = np.array(CHARS, np.int8).tobytes()
LIBRARY = cublas.library  # `fake_cuda` replaces it


@pytest.mark.parametrize(("version", "theirs"), [("13.6.0", CHARS), ("14.0.0", ID), ("14.2.0", ID)])
def test_the_id_of_a_nccl_communicator(fake_cuda, monkeypatch, version, theirs):
    """Ranks share bytes; `get_unique_id` gives and `NcclCommunicator` takes signed chars in CuPy 13."""
    monkeypatch.setattr(fake_cuda, "__version__", version)
    assert nccl._as_bytes(theirs) == ID
    taken = nccl._as_id(ID)
    assert taken == theirs and type(taken) is type(theirs)


def test_cuda_s_runtime_may_be_missing(fake_cuda, monkeypatch):
    """CuPy 14 looks for it when its version is asked, and raises an error of its own."""

    def missing():
        raise RuntimeError("Failure finding libcudart.so")

    monkeypatch.setattr(cublas, "_load", missing)
    with pytest.warns(UserWarning, match="cuBLAS can't be loaded .*libcudart"):
        assert LIBRARY.__wrapped__() is None
