"""`import mytorch` needs NumPy only, loads nothing heavy, and leaves the process as it was."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

OPTIONAL = [
    "cupy", "torch", "numba", "triton", "matplotlib", "wandb", "datasets", "tiktoken", "mpi4py",
    "ml_dtypes", "safetensors", "tqdm", "multiprocessing", "asyncio", "scipy",
]


def refusing(packages):
    return f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ImportError(f"{{name}} is not there")
sys.meta_path.insert(0, Refuse())
"""


REFUSE = refusing(OPTIONAL)


def python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment},
    )
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


def test_all_that_dir_lists_is_there_without_any_optional_package():
    """As `help` and `inspect.getmembers` want it: bfloat16 is listed where its package is."""
    code = """
import inspect, mytorch
names = dir(mytorch)
members = dict(inspect.getmembers(mytorch))
print(set(names) == set(members), "bfloat16" in names, "compile" in names)
"""
    others = sorted({*OPTIONAL} - {"multiprocessing", "asyncio", "tqdm"})  # Python's own, and one it needs
    assert python(refusing(others) + code).split() == ["True", "False", "True"]


LAZY = {  # a module, and what it imports at its first use
    "mytorch": "accelerate Accelerator accelerator amp autocast bfloat16 capture compile compiler debug "
    "distributed distributions fft foreach get_autocast_dtype GradScaler hub is_autocast_enabled jit "
    "multiprocessing profiler quantize stream summary",
    "mytorch.nn": "attention modules DistributedDataParallel SyncBatchNorm",
    "mytorch.nn.parallel": "DistributedDataParallel SyncBatchNorm",
    "mytorch.nn.utils": "spectral_norm weight_norm add_lora merge_lora parametrizations parametrize prune",
    "mytorch.autograd": "profiler", "mytorch.cuda": "amp",
}


def test_dir_lists_what_is_imported_later_and_imports_none_of_it():
    code = f"""
import importlib, json, sys, mytorch
before = set(sys.modules)
for place, names in {LAZY!r}.items():
    module = importlib.import_module(place)
    print(place, set(names.split()) - set(dir(module)))
print(sorted(name for name in set(sys.modules) - before if name.startswith("mytorch")))
"""
    assert python(code).splitlines() == [*(f"{place} set()" for place in LAZY), "[]"]


def test_a_scaler_needs_no_processes():
    """A GradScaler imports nothing of `distributed`, and is the same with it."""
    code = """
import sys, mytorch.amp
from mytorch.amp import GradScaler
alone = dict(vars(GradScaler))
print([name for name in sys.modules if name.startswith(("mytorch.distributed", "mytorch.accelerate"))])
import mytorch.distributed
print(vars(GradScaler) == alone, mytorch.accelerate.GradScaler is GradScaler is mytorch.GradScaler)
"""
    assert python(code).splitlines() == ["[]", "True True"]


def test_python_s_hints_know_what_is_imported_later():
    code = """
import sys, mytorch
for wrong in ("complie", "bfloat61", "acelerate", "nn.DistributedDataParalel", "nn.utils.wieght_norm",
              "cuda.ammp", "nn.Linaer", "fft.ffft"):
    try:
        eval("mytorch." + wrong)
    except AttributeError:
        sys.excepthook(*sys.exc_info())  # as at the end of a program
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    hints = re.findall(r"Did you mean: '(\w+)'", done.stderr)
    assert hints == [
        "compile", "bfloat16", "accelerate", "DistributedDataParallel", "weight_norm", "amp", "Linear", "fft",
    ], done.stderr


def test_dir_shows_no_module_from_elsewhere():
    """Nor what is of Python's library: in any module that one can get to from `mytorch`."""
    code = """
import sys, types, mytorch
places, seen = [mytorch], set()
while places:
    place = places.pop()
    seen.add(place.__name__)
    for name in dir(place):
        x = getattr(place, name)
        home = x.__name__ if isinstance(x, types.ModuleType) else getattr(x, "__module__", None)
        top = str(home).partition(".")[0]
        if isinstance(x, types.ModuleType) and top == "mytorch":
            places += [x] * (x.__name__ not in seen)
        elif name not in getattr(place, "__all__", ()) and not name.startswith("__") and (
            isinstance(x, types.ModuleType) or top in sys.stdlib_module_names
        ):
            print(place.__name__, name)
public = "nn nn.functional nn.init optim optim.lr_scheduler utils.data linalg fft amp cuda distributed"
print(len(seen) > 150, {f"mytorch.{name}" for name in public.split()} - seen)
"""
    assert python(code) == "True set()\n"


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
)
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
