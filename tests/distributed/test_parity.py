"""DDP, join() and ZeroRedundancyOptimizer: every rank has what it has with PyTorch's, over gloo."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.distributed import parity_program as program
from tests.distributed.launched import ROOT, surroundings
from tests.distributed.on_ranks import results_in, results_of

pytest.importorskip("mpi4py")
pytest.importorskip("torch")

WORLDS = [2]  # test_ddp.py and test_zero.py run 3
TOLERANCES = {"compressed": (2e-3, 1e-3), "dtypes": (2e-3, 1e-5)}  # of float16: relative, absolute
CURVES, OTHERS = (1e-4, 1e-5), (1e-5, 1e-6)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    """{number of ranks: what the cases returned with PyTorch}"""
    folder = tmp_path_factory.mktemp("oracle")
    command = [sys.executable, "-m", "tests.distributed.parity_oracle", folder, *map(str, WORLDS)]
    done = subprocess.run(command, cwd=ROOT, env=surroundings(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return {world: results_in(folder / str(world)) for world in WORLDS}


@pytest.fixture(scope="module", params=WORLDS)
def results(request, oracle, tmp_path_factory):
    """What they returned on that many ranks, with mytorch and with PyTorch."""
    folder = tmp_path_factory.mktemp("parity")
    return results_of(Path(program.__file__), request.param, folder), oracle[request.param], request.param


@pytest.mark.parametrize("case", program.CASES)
def test_ranks_do_what_those_of_pytorch_do(case, results):
    ours, theirs, world = results
    found, expected = ours[case], theirs[case]
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
