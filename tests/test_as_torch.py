"""Programs written for PyTorch run with mytorch in its place, as they are, and lose the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.as_torch.mount import PROGRAMS

ROOT = Path(__file__).parent.parent


def start(framework):
    """PyTorch compiles nothing: that takes it seconds, and the losses are the same."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", ROOT / "tests/as_torch/mount.py", framework], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={
            **os.environ, "PYTHONPATH": str(ROOT), "MYTORCH_COMPILE": "wait", "TORCHDYNAMO_DISABLE": "1"
        },
    )


@pytest.fixture(scope="module")
def results():
    running = {framework: start(framework) for framework in ("torch", "mytorch")}
    results = {}
    for framework, process in running.items():
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        results[framework] = json.loads(out.splitlines()[-1])
        assert results[framework]["framework"] == framework
    return results


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_losses_are_pytorchs(results, program):
    ours, theirs = (results[framework]["losses"][program] for framework in ("mytorch", "torch"))
    assert len(ours) >= 5
    assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-5)
