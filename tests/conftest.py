"""Fixtures for all tests."""

import gc
import os
import resource
import sys
from pathlib import Path

os.environ.setdefault("MYTORCH_COMPILE", "wait")  # kernels in the background would be tested at times
os.environ.setdefault("MYTORCH_CHECK_PROGRAMS", "1")  # what programs declare is compared with what they make

# The tests start hundreds of processes, each of which would compile mytorch where none may write bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import hypothesis
import pytest

from mytorch.backends import cublas
from mytorch.random import _default
from tests import seeds, strict_cupy
from tests.strict_cupy.cublas import Cublas

# Several processes, kills and timeouts, whole trainings, Triton's interpreter and compiler, kernels one by
# one, transformers' models, PyTorch's databases of samples, mypy, the stand-in for a GPU: left out by
# `bash run_tests.sh -m "not slow"`.
SLOW = (
    "benchmarks/", "campaigns/", "chat/", "database/", "device/", "distributed/", "nn/fused_ops/", "triton/",
    "accelerate/test_checkpoint", "accelerate/test_damage", "amp/test_mixed_precision",
    "accelerate/test_ranks", "accelerate/test_readme_loop", "accelerate/test_restart", "backends/test_gemm",
    "backends/test_threads", "cli/test_checks", "cli/test_commands", "cli/test_compile",
    "cli/test_estimate_memory", "cli/test_settings",
    "models/test_decoder", "models/test_gguf", "models/test_pretrained", "nn/test_quantization",
    "utils/data/test_life", "utils/data/test_start", "utils/data/test_state", "utils/data/test_workers",
    "test_as_torch", "test_cuda_graphs", "test_examples", "test_finetune_gpt2", "test_import",
    "test_notebook", "test_programs", "test_reading", "test_site", "test_stubs", "test_tiny_chat",
    "test_train_gpt2",
)

# Hypothesis takes the same examples in every run, however slow the machine is.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")

# What a test lets crash writes no core file into the repository, whose files other tests look at.
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def is_slow(path: Path) -> bool:
    return path.relative_to(Path(__file__).parent).as_posix().startswith(SLOW)


def pytest_ignore_collect(collection_path, config):
    """Without the slow tests their files are not imported, either: PyTorch's databases take seconds."""
    return True if config.option.markexpr == "not slow" and is_slow(collection_path) else None


def pytest_collection_modifyitems(items):
    slow = {path for path in {item.path for item in items} if is_slow(path)}
    for item in items:
        if item.path in slow:
            item.add_marker("slow")


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """The garbage collector looks at no tests and modules, which live to the end: not while they are
    collected, either."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def seeded():
    """Every test draws the same numbers in every run, whichever tests ran before it in its process."""
    seeds.rewind()


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
