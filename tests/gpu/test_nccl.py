"""NCCL for real: on as many GPUs as there are, two at least."""

import subprocess
import sys

import pytest

from mytorch.backends.device import device_count
from tests.distributed.launched import ROOT, surroundings

GPUS = min(device_count(), 3)


@pytest.mark.skipif(GPUS < 2, reason=f"NCCL takes one GPU a rank, and there are {GPUS}")
def test_collectives_on_gpus():
    command = [sys.executable, "-m", "mytorch.cli", "launch", "--num_gpus", str(GPUS)]
    done = subprocess.run(
        [*command, "tests/distributed/programs/on_gpus.py"],
        cwd=ROOT,
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["well"] * GPUS
