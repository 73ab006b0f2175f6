"""Run the tests of the Triton kernels: interpreter, compiler and PyTorch can't share a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.triton.peers import assert_as_exact_as_pytorch

ROOT = Path(__file__).parents[2]
COMPILE = {"TRITON_INTERPRET": "0", "TRITON_DISABLE_LINE_INFO": "1", "TRITON_STORE_BINARY_ONLY": "1"}


@pytest.fixture
def without_torch(tmp_path):
    """A folder with a package `torch` that can't be imported, and at the end says whether somebody tried."""
    package, tried = tmp_path / "torch", tmp_path / "tried"
    package.mkdir()
    (package / "__init__.py").write_text(
        f"open({str(tried)!r}, 'w')\nraise RuntimeError('torch was imported')\n"
    )
    yield tmp_path
    assert not tried.exists(), "PyTorch was imported"


def run(files, path, **environment):
    """Test these files, in a process that looks for packages in the folder `path` first."""
    if sys.platform != "linux":
        pytest.skip("Triton is for Linux")
    options = "-q -p no:cacheprovider -p no:xdist -W error::UserWarning"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split(), *files.split()],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)]), **environment},
    )
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]


def test_values_in_the_interpreter(without_torch):
    """They are right, and in half precision as exact as PyTorch's."""
    files = ("interpreting", "interpreted", "interpreted_attention", "loops", "programs")
    results = without_torch / "results"
    results.mkdir()
    paths = " ".join(f"tests/triton/{file}.py" for file in files)
    cache = {"MYTORCH_CACHE": str(without_torch)}
    run(paths, without_torch, TRITON_INTERPRET="1", MYTORCH_TEST_RESULTS=str(results), **cache)
    assert_as_exact_as_pytorch(results)


def test_resources_of_what_is_compiled(without_torch):
    paths = "tests/triton/compiling.py tests/triton/compiled.py tests/triton/loops.py"
    run(paths, without_torch, MYTORCH_CACHE=str(without_torch), **COMPILE)
