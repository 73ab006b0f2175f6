"""`import mytorch` needs NumPy only, loads nothing heavy, and leaves the process as it was."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

OPTIONAL = [
    "cupy", "torch", "numba", "triton", "matplotlib", "wandb", "datasets", "tiktoken", "mpi4py",
    "ml_dtypes", "safetensors", "tqdm", "multiprocessing", "asyncio", "scipy",
]  # fmt: skip
REFUSE = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL!r}:
            raise ImportError(f"{{name}} is not there")
sys.meta_path.insert(0, Refuse())
"""


def python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_works_without_any_optional_package():
    code = """
import mytorch
x = mytorch.ones(2, 3, requires_grad=True)
(x * 2).sum().backward()
print(x.grad.tolist())
"""
    out = python(REFUSE + code)
    assert out.strip() == "[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]"


def test_it_loads_nothing_heavy():
    code = "import sys, json, mytorch; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    loaded = set(json.loads(python(code)))
    assert not loaded & set(OPTIONAL), sorted(loaded & set(OPTIONAL))


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    code = """
import mytorch
try:
    mytorch.ones(1, device='cuda')
except RuntimeError as error:
    print(error)
for use in (
    lambda: mytorch.bfloat16, lambda: mytorch.ones(2, dtype="bfloat16"), lambda: mytorch.ones(2).bfloat16()
):
    try:
        use()
    except ImportError as error:
        print(error)
"""
    out = python(REFUSE + code)
    assert "needs CuPy" in out and "pip install 'mytorch[cuda12]'" in out
    assert out.count("bfloat16 needs the package ml_dtypes") == out.count("pip install ml_dtypes") == 3


def test_the_environment_is_left_as_it_was():
    code = "import os; before = dict(os.environ); import mytorch; print(dict(os.environ) == before)"
    assert python(code).strip() == "True"


@pytest.mark.parametrize(
    ("prelude", "environment", "blas"),
    [
        ("", {"MYTORCH_TUNE": "0"}, "off"),
        ("import numpy;", {"MYTORCH_TUNE": "1", "OPENBLAS_CORETYPE": ""}, "NumPy was loaded before"),
        ("", {"MYTORCH_TUNE": "1", "OPENBLAS_CORETYPE": "Haswell"},
         "OPENBLAS_CORETYPE=Haswell (the user's choice)"),
    ],
)  # fmt: skip
def test_tuning_can_be_turned_off_and_never_overrides_the_user(prelude, environment, blas):
    report = python(prelude + "import mytorch; print(mytorch.backends.tune.report()['blas'])", **environment)
    assert blas in report


@pytest.mark.parametrize(
    ("vendor", "flags", "choice"),
    [
        ("AuthenticAMD", "avx2 avx512f avx512bw avx512dq avx512vl avx512cd", "AVX-512 kernels"),
        ("AuthenticAMD", "avx2", "no AVX-512"),
        ("GenuineIntel", "avx2 avx512f avx512bw avx512dq avx512vl avx512cd", "by itself"),
    ],
)
def test_avx512_kernels_are_chosen_where_the_cpu_has_them(vendor, flags, choice):
    code = f"""
import sys, importlib.util
spec = importlib.util.spec_from_file_location("tune", "mytorch/backends/tune.py")
tune = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tune)
tune._cpu = lambda: ({vendor!r}, set({flags!r}.split()))
tune.at_import()
print(tune.report()["blas"], "numpy" in sys.modules)
"""
    out = python(code, MYTORCH_TUNE="1", OPENBLAS_CORETYPE="")
    assert choice in out and ("True" in out) == (choice == "AVX-512 kernels")
