"""DDP, join() and ZeroRedundancyOptimizer: every rank has what it has with PyTorch's, over gloo."""

from pathlib import Path

import numpy as np
import pytest

from tests.distributed import parity_program as program
from tests.distributed.on_ranks import results_of

pytest.importorskip("mpi4py")
pytest.importorskip("torch")

TOLERANCES = {"compressed": (2e-3, 1e-3), "dtypes": (2e-3, 1e-5)}  # of float16: relative, absolute
CURVES, OTHERS = (1e-4, 1e-5), (1e-5, 1e-6)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("parity")


def results(library, world, folder):
    names = [f"{library}.{case}" for case in program.CASES]
    return results_of(Path(program.__file__), world, f"{folder}/{library}", *names)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("case", program.CASES)
def test_ranks_do_what_those_of_pytorch_do(case, world, folder):
    found, expected = (results(name, world, folder)[f"{name}.{case}"] for name in ("mytorch", "torch"))
    assert len(found) == len(expected) == world
    tolerances = TOLERANCES.get(case, CURVES if "curve" in case or "join" in case else OTHERS)
    for rank, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert sorted(ours) == sorted(theirs), f"rank {rank}"
        for name, value in theirs.items():
            if value.dtype.kind == "f":
                assert ours[name].dtype == value.dtype, name
                np.testing.assert_allclose(ours[name], value, *tolerances, err_msg=f"rank {rank}: {name}")
            else:
                np.testing.assert_array_equal(ours[name], value, f"rank {rank}: {name}")
